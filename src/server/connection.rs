//! One client connection, from its first byte to its close: which protocol it is, then that.

mod http1;
mod http2;

use std::{future::Future, io, pin::Pin, rc::Rc, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tracing::debug;

use super::{
    ClientSpec, HalfClose, HttpService, Protocols, drain::Closing, held::Held, service::BoxError,
    tls::Tls,
};
use crate::http_ext::connection::{Connection, Scheme};
use crate::http_ext::interim::Interim;
use crate::http_ext::io::Socket;

/// What a client that speaks HTTP/2 with prior knowledge sends first (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Read at once while the protocol is not known.
const FIRST_READ: usize = 8 * 1024;

/// A socket, or a session on one.
trait Io: AsyncRead + AsyncWrite + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + 'static> Io for T {}

/// How connections of one listener are served by one worker.
pub(super) struct Protocol {
    http2: hyper::server::conn::http2::Builder<http2::LocalExecutor>,
    protocols: Protocols,
    client: ClientSpec,
    tls: Option<Tls>,
}

impl Protocol {
    pub(super) fn new(protocols: Protocols, tls: Option<Tls>, client: &ClientSpec) -> Self {
        Self {
            http2: http2::builder(client),
            protocols,
            client: *client,
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
        let opening: Opening<'_> = match &self.tls {
            None => Box::pin(self.clear_text(socket, connection, factory, held, closing)),
            Some(tls) => Box::pin(self.encrypted(tls, socket, connection, factory, held, closing)),
        };
        let result = match opening.await {
            Ok(speaking) => speaking.await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = result {
            debug!(%peer, error, "connection closed");
        }
    }

    async fn clear_text<S>(
        &self,
        socket: Socket,
        mut connection: Connection,
        factory: impl Fn(&Connection) -> S,
        held: Held,
        closing: Closing,
    ) -> io::Result<Speaking<'_>>
    where
        S: HttpService,
    {
        let sniffed = sniff(socket, self.protocols);
        let (socket, version, first) =
            within(self.client.timeouts.head, closing.clone(), sniffed).await?;
        let service = version.service(&mut connection, factory);
        Ok(self.speak(version, socket, first, service, held, closing))
    }

    async fn encrypted<S>(
        &self,
        tls: &Tls,
        socket: Socket,
        mut connection: Connection,
        factory: impl Fn(&Connection) -> S,
        held: Held,
        closing: Closing,
    ) -> io::Result<Speaking<'_>>
    where
        S: HttpService,
    {
        let accepted = within(
            self.client.timeouts.head,
            closing.clone(),
            tls.accept(socket),
        )
        .await
        .inspect_err(|_| held.handshake_failed())?;
        connection.scheme = Scheme::Https;
        connection.server_name = accepted.server_name;
        let (version, stream) = (accepted.version, accepted.stream);
        let service = version.service(&mut connection, factory);
        Ok(self.speak(version, stream, BytesMut::new(), service, held, closing))
    }

    /// Serves requests, of which `first` has been read already.
    fn speak<T, S>(
        &self,
        version: Version,
        io: T,
        first: BytesMut,
        served: Served<S>,
        held: Held,
        closing: Closing,
    ) -> Speaking<'_>
    where
        T: Io,
        S: HttpService,
    {
        match version {
            Version::Http1 => Box::pin(self.http1(io, first, served, held, closing)),
            Version::Http2 => Box::pin(self.http2(io, first, served.service, held, closing)),
        }
    }
}

/// The stages of a connection: until its protocol is known, and until its end. Each has a box of its own, so
/// that an idle connection has room for what it speaks, not for what it might, nor for its handshake.
type Opening<'a> = Pin<Box<dyn Future<Output = io::Result<Speaking<'a>>> + 'a>>;
type Speaking<'a> = Pin<Box<dyn Future<Output = Result<(), BoxError>> + 'a>>;

/// The version of HTTP that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

impl Version {
    /// What serves a connection that speaks it.
    fn service<S>(
        self,
        connection: &mut Connection,
        factory: impl Fn(&Connection) -> S,
    ) -> Served<S> {
        let interim = Interim::default();
        // hyper has no way to send them in HTTP/2.
        connection.interim = (self == Self::Http1).then(|| interim.clone());
        Served {
            service: factory(connection),
            interim,
        }
    }
}

/// A service, and the interim responses that it sends.
struct Served<S> {
    service: S,
    interim: Interim,
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

/// Reads until the protocol is known; returns what was read. Waits for the first byte without a buffer, so
/// that a quiet connection holds none.
async fn sniff(
    mut socket: Socket,
    protocols: Protocols,
) -> io::Result<(Socket, Version, BytesMut)> {
    // Not `readable`: tokio takes a socket that was just accepted for readable.
    socket.0.peek(&mut [0]).await?;
    match protocols {
        Protocols::Http1 => return Ok((socket, Version::Http1, BytesMut::new())),
        Protocols::Http2 => return Ok((socket, Version::Http2, BytesMut::new())),
        Protocols::Both => {}
    }
    let mut first = BytesMut::with_capacity(FIRST_READ);
    loop {
        if socket.read_buf(&mut first).await? == 0 {
            return Ok((socket, Version::Http1, first));
        }
        let start = &first[..first.len().min(PREFACE.len())];
        if !PREFACE.starts_with(start) {
            return Ok((socket, Version::Http1, first));
        }
        if start.len() == PREFACE.len() {
            return Ok((socket, Version::Http2, first));
        }
    }
}

#[cfg(test)]
mod tests;
