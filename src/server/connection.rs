//! One client connection, from its first byte to its close: which protocol it is, then that.

mod http1;
mod http2;

use std::{future::Future, io, pin::Pin, rc::Rc};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tracing::debug;

use super::{
    ClientSpec, HalfClose, HttpService, Protocols, connection_guard::ConnectionGuard,
    drain::DrainWatcher, service::BoxError, tls::Tls,
};
use crate::http::connection::{ClientConnection, Scheme};
use crate::http::informational::InformationalQueue;
use crate::net::socket::Socket;

/// What a client that speaks HTTP/2 with prior knowledge sends first (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Read at once while the protocol is not known.
const FIRST_READ: usize = 8 * 1024;

/// A socket, or a session on one.
trait Io: AsyncRead + AsyncWrite + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + 'static> Io for T {}

/// How connections of one listener are served by one worker.
pub(super) struct ConnectionHandler {
    http2: hyper::server::conn::http2::Builder<http2::LocalExecutor>,
    protocols: Protocols,
    client: ClientSpec,
    tls: Option<Tls>,
}

impl ConnectionHandler {
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
        connection: ClientConnection,
        factory: F,
        held: ConnectionGuard,
        closing: DrainWatcher,
    ) where
        F: Fn(&ClientConnection) -> S,
        S: HttpService,
    {
        let peer = connection.peer;
        let socket = Socket(stream);
        let opening: Negotiation<'_> = match &self.tls {
            None => Box::pin(self.negotiate_clear_text(socket, connection, factory, held, closing)),
            Some(tls) => {
                Box::pin(self.negotiate_tls(tls, socket, connection, factory, held, closing))
            }
        };
        let result = match opening.await {
            Ok(speaking) => speaking.await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = result {
            debug!(%peer, error, "connection closed");
        }
    }

    async fn negotiate_clear_text<S>(
        &self,
        socket: Socket,
        mut connection: ClientConnection,
        factory: impl Fn(&ClientConnection) -> S,
        held: ConnectionGuard,
        closing: DrainWatcher,
    ) -> io::Result<Serving<'_>>
    where
        S: HttpService,
    {
        let first_head = self.first_head();
        let opening = async {
            // Without a buffer, so that a quiet connection holds none. Not `readable`: tokio takes a socket that was
            // just accepted for readable.
            socket.0.peek(&mut [0]).await?;
            detect_version(socket, self.protocols).await
        };
        let (version, io, first) = within_deadline(first_head, closing.clone(), opening).await?;
        let service = version.service(&mut connection, factory);
        let opened = NegotiatedConnection {
            io,
            first,
            first_head,
        };
        Ok(self.serve_requests(version, opened, service, held, closing))
    }

    async fn negotiate_tls<S>(
        &self,
        tls: &Tls,
        socket: Socket,
        mut connection: ClientConnection,
        factory: impl Fn(&ClientConnection) -> S,
        held: ConnectionGuard,
        closing: DrainWatcher,
    ) -> io::Result<Serving<'_>>
    where
        S: HttpService,
    {
        let first_head = self.first_head();
        let accepted = within_deadline(first_head, closing.clone(), tls.accept(socket))
            .await
            .inspect_err(|_| held.handshake_failed())?;
        connection.scheme = Scheme::Https;
        connection.server_name = accepted.server_name;
        let (version, io, first) = match (accepted.version, self.protocols) {
            (Some(version), _) => (version, accepted.stream, BytesMut::new()),
            // Without ALPN, HTTP/2 is for clients that know beforehand, as in clear text.
            (None, Protocols::Http2) => {
                within_deadline(
                    first_head,
                    closing.clone(),
                    detect_version(accepted.stream, self.protocols),
                )
                .await?
            }
            (None, _) => (Version::Http1, accepted.stream, BytesMut::new()),
        };
        let service = version.service(&mut connection, factory);
        let opened = NegotiatedConnection {
            io,
            first,
            first_head,
        };
        Ok(self.serve_requests(version, opened, service, held, closing))
    }

    /// When the first head of a connection that begins now has to be there.
    fn first_head(&self) -> Instant {
        Instant::now() + self.client.timeouts.head
    }

    /// Serves requests.
    fn serve_requests<T, S>(
        &self,
        version: Version,
        opened: NegotiatedConnection<T>,
        served: ConnectionService<S>,
        held: ConnectionGuard,
        closing: DrainWatcher,
    ) -> Serving<'_>
    where
        T: Io,
        S: HttpService,
    {
        match version {
            Version::Http1 => Box::pin(self.http1(opened, served, held, closing)),
            Version::Http2 => Box::pin(self.http2(opened, served.service, held, closing)),
            Version::Unsupported => Box::pin(self.refuse_http1(opened, served, held)),
        }
    }
}

/// A connection whose protocol is known.
struct NegotiatedConnection<T> {
    io: T,
    /// What was read to find out.
    first: BytesMut,
    /// When the first head has to be there.
    first_head: Instant,
}

/// The stages of a connection: until its protocol is known, and until its end. Each has a box of its own, so
/// that an idle connection has room for what it speaks, not for what it might, nor for its handshake.
type Negotiation<'a> = Pin<Box<dyn Future<Output = io::Result<Serving<'a>>> + 'a>>;
type Serving<'a> = Pin<Box<dyn Future<Output = Result<(), BoxError>> + 'a>>;

/// The version of HTTP that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
    /// None that this listener speaks, which is HTTP/2.
    Unsupported,
}

impl Version {
    /// What serves a connection that speaks it.
    fn service<S>(
        self,
        connection: &mut ClientConnection,
        factory: impl Fn(&ClientConnection) -> S,
    ) -> ConnectionService<S> {
        let informational = InformationalQueue::default();
        // hyper has no way to send them in HTTP/2.
        connection.informational = (self == Self::Http1).then(|| informational.clone());
        ConnectionService {
            service: factory(connection),
            interim: informational,
        }
    }
}

/// A service, and the interim responses that it sends.
struct ConnectionService<S> {
    service: S,
    interim: InformationalQueue,
}

/// Runs what comes before the first request: bounded in time, and given up when the server drains while
/// the client sends nothing.
async fn within_deadline<T>(
    deadline: Instant,
    mut closing: DrainWatcher,
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
        result = timeout_at(deadline, work) => result.map_err(|_| late())?,
        () = closing.past_grace() => Err(late()),
    }
}

/// Reads until the protocol is known: of HTTP/2 its preface, of HTTP/1 what differs from that.
async fn detect_version<T: Io>(
    mut io: T,
    protocols: Protocols,
) -> io::Result<(Version, T, BytesMut)> {
    let otherwise = match protocols {
        Protocols::Http1 => return Ok((Version::Http1, io, BytesMut::new())),
        Protocols::Http2 => Version::Unsupported,
        Protocols::Both => Version::Http1,
    };
    let mut first = BytesMut::with_capacity(FIRST_READ);
    loop {
        if io.read_buf(&mut first).await? == 0 {
            return Ok((otherwise, io, first));
        }
        let start = &first[..first.len().min(PREFACE.len())];
        if !PREFACE.starts_with(start) {
            return Ok((otherwise, io, first));
        }
        if start.len() == PREFACE.len() {
            return Ok((Version::Http2, io, first));
        }
    }
}

#[cfg(test)]
mod tests;
