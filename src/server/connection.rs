//! One client connection, from its first byte to its close: which protocol, then hyper, then the end.

mod http1;
mod http2;

use std::{future::Future, io, pin::Pin, rc::Rc, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tracing::debug;

use super::{
    ClientSpec, HttpService, Protocols, Timeouts,
    activity::{Activity, Wait, Watchdog},
    drain::Closing,
    service::BoxError,
    tls::Tls,
    tracked::Held,
};
use crate::http_ext::connection::{Connection, Scheme};
use crate::http_ext::io::Socket;

/// What a client that speaks HTTP/2 with prior knowledge sends first (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Read at once while the protocol is not known; hyper's own first buffer is as large.
const FIRST_READ: usize = 8 * 1024;

/// What hyper buffers of a body in each direction: larger costs memory and latency (p99 of large bodies
/// was halved against hyper's default of 400 KiB).
const BUFFER: usize = 64 * 1024;

/// A socket, or a session on one.
trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// How connections of one listener are served by one worker.
pub(super) struct Protocol {
    http1: hyper::server::conn::http1::Builder,
    http2: hyper::server::conn::http2::Builder<http2::LocalExecutor>,
    protocols: Protocols,
    timeouts: Timeouts,
    tls: Option<Tls>,
}

impl Protocol {
    pub(super) fn new(protocols: Protocols, tls: Option<Tls>, client: &ClientSpec) -> Self {
        Self {
            http1: http1::builder(client),
            http2: http2::builder(client),
            protocols,
            timeouts: client.timeouts,
            tls,
        }
    }

    /// Serves one connection to its end. What goes wrong on it is the client's, and logged at debug.
    pub(super) async fn serve<F, S>(
        self: Rc<Self>,
        stream: TcpStream,
        connection: Connection,
        factory: F,
        held: Held,
        closing: Closing,
    ) where
        F: Fn(&Connection) -> S,
        S: HttpService,
    {
        let peer = connection.peer;
        let socket = Socket(stream);
        let result = match &self.tls {
            None => {
                self.clear_text(socket, connection, factory, held, closing)
                    .await
            }
            Some(tls) => {
                self.encrypted(tls, socket, connection, factory, held, closing)
                    .await
            }
        };
        if let Err(error) = result {
            debug!(%peer, error, "connection closed");
        }
    }

    async fn clear_text<S>(
        &self,
        socket: Socket,
        connection: Connection,
        factory: impl Fn(&Connection) -> S,
        held: Held,
        closing: Closing,
    ) -> Result<(), BoxError>
    where
        S: HttpService,
    {
        let sniffed = sniff(socket, self.protocols);
        let (socket, version, first) = within(self.timeouts.head, closing.clone(), sniffed).await?;
        let service = factory(&connection);
        self.speak(version, socket, first, service, held, closing)
            .await
    }

    async fn encrypted<S>(
        &self,
        tls: &Tls,
        socket: Socket,
        mut connection: Connection,
        factory: impl Fn(&Connection) -> S,
        held: Held,
        closing: Closing,
    ) -> Result<(), BoxError>
    where
        S: HttpService,
    {
        let accepted = within(self.timeouts.head, closing.clone(), tls.accept(socket))
            .await
            .inspect_err(|_| held.handshake_failed())?;
        connection.scheme = Scheme::Https;
        connection.server_name = accepted.server_name;
        let service = factory(&connection);
        let (version, stream) = (accepted.version, accepted.stream);
        self.speak(version, stream, Bytes::new(), service, held, closing)
            .await
    }

    /// Serves requests, of which `first` has been read already.
    async fn speak<T, S>(
        &self,
        version: Version,
        io: T,
        first: Bytes,
        service: S,
        held: Held,
        closing: Closing,
    ) -> Result<(), BoxError>
    where
        T: Io,
        S: HttpService,
    {
        match version {
            Version::Http1 => self.http1(io, first, service, held, closing).await,
            Version::Http2 => self.http2(io, first, service, held, closing).await,
        }
    }
}

/// Runs hyper's side of a connection to its end, or until it has waited for its client too long. `drain` tells
/// hyper that the server drains.
async fn watch<C>(
    connection: &mut C,
    activity: &Arc<Activity>,
    timeouts: Timeouts,
    mut closing: Closing,
    drain: impl Fn(Pin<&mut C>),
) -> End
where
    C: Future<Output = hyper::Result<()>> + Unpin,
{
    let mut watchdog = Watchdog::new(activity.clone(), timeouts);
    let mut draining = false;
    loop {
        tokio::select! {
            biased;
            result = &mut *connection => return End::Closed(result),
            () = closing.started(), if !draining => {
                draining = true;
                activity.close();
                drain(Pin::new(connection));
            }
            wait = &mut watchdog => return End::Waited(wait),
        }
    }
}

/// How a connection came to its end.
enum End {
    Closed(hyper::Result<()>),
    Waited(Wait),
}

impl Wait {
    fn into_result(self) -> Result<(), BoxError> {
        match self {
            Self::FirstByte | Self::NextRequest { .. } | Self::Nothing | Self::Service => Ok(()),
            Self::Head { .. } => Err("the head did not arrive in time".into()),
            Self::Reader { .. } | Self::Window { .. } => Err("the client stopped reading".into()),
            Self::Gone => Err("the client left before its answer".into()),
        }
    }
}

/// The version of HTTP that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

/// Runs what comes before the first request: bounded in time, and given up when the server drains while
/// the client sends nothing.
async fn within<T>(
    limit: Duration,
    mut closing: Closing,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let late = || {
        io::Error::new(
            io::ErrorKind::TimedOut,
            "the client sent nothing of use in time",
        )
    };
    tokio::select! {
        biased;
        result = timeout(limit, work) => result.map_err(|_| late())?,
        () = closing.past_grace() => Err(late()),
    }
}

/// Reads until the protocol is known; returns what was read. Waits for readability first, so that a quiet
/// connection holds no buffer.
async fn sniff(mut socket: Socket, protocols: Protocols) -> io::Result<(Socket, Version, Bytes)> {
    socket.0.readable().await?;
    match protocols {
        Protocols::Http1 => return Ok((socket, Version::Http1, Bytes::new())),
        Protocols::Http2 => return Ok((socket, Version::Http2, Bytes::new())),
        Protocols::Both => {}
    }
    let mut first = BytesMut::with_capacity(FIRST_READ);
    loop {
        if socket.read_buf(&mut first).await? == 0 {
            return Ok((socket, Version::Http1, first.freeze()));
        }
        let start = &first[..first.len().min(PREFACE.len())];
        if !PREFACE.starts_with(start) {
            return Ok((socket, Version::Http1, first.freeze()));
        }
        if start.len() == PREFACE.len() {
            return Ok((socket, Version::Http2, first.freeze()));
        }
    }
}

#[cfg(test)]
mod tests;
