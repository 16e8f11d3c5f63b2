//! One client connection, from its first byte to its close: version detection, then HTTP/1 or
//! HTTP/2.

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

/// The client preface of HTTP/2 (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes to read at once while the version is unknown.
const FIRST_READ: usize = 8 * 1024;

/// A socket, or a TLS session over one.
trait Io: AsyncRead + AsyncWrite + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + 'static> Io for T {}

/// Serves the connections of one listener on one worker.
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

    /// Serves one connection to its end. Its errors are the client's, and logged at debug.
    pub(super) async fn serve<F, S>(
        self: Rc<Self>,
        stream: TcpStream,
        connection: ClientConnection,
        factory: F,
        guard: ConnectionGuard,
        closing: DrainWatcher,
    ) where
        F: Fn(&ClientConnection) -> S,
        S: HttpService,
    {
        let peer = connection.peer;
        let socket = Socket(stream);
        let opening: Negotiation<'_> = match &self.tls {
            None => {
                Box::pin(self.negotiate_clear_text(socket, connection, factory, guard, closing))
            }
            Some(tls) => {
                Box::pin(self.negotiate_tls(tls, socket, connection, factory, guard, closing))
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
        guard: ConnectionGuard,
        closing: DrainWatcher,
    ) -> io::Result<Serving<'_>>
    where
        S: HttpService,
    {
        let first_head = self.first_head();
        let opening = async {
            // Without a buffer, so that a quiet connection holds none. `readable` would not do:
            // tokio considers a socket that was just accepted readable.
            socket.0.peek(&mut [0]).await?;
            detect_version(socket, self.protocols).await
        };
        let (version, io, first) = within_deadline(first_head, closing.clone(), opening).await?;
        let service = version.service(&mut connection, factory);
        let negotiated = NegotiatedConnection {
            io,
            first,
            first_head,
        };
        Ok(self.serve_requests(version, negotiated, service, guard, closing))
    }

    async fn negotiate_tls<S>(
        &self,
        tls: &Tls,
        socket: Socket,
        mut connection: ClientConnection,
        factory: impl Fn(&ClientConnection) -> S,
        guard: ConnectionGuard,
        closing: DrainWatcher,
    ) -> io::Result<Serving<'_>>
    where
        S: HttpService,
    {
        let first_head = self.first_head();
        let accepted = within_deadline(first_head, closing.clone(), tls.accept(socket))
            .await
            .inspect_err(|_| guard.handshake_failed())?;
        connection.scheme = Scheme::Https;
        connection.server_name = accepted.server_name;
        let (version, io, first) = match (accepted.version, self.protocols) {
            (Some(version), _) => (version, accepted.stream, BytesMut::new()),
            // Without ALPN, HTTP/2 needs prior knowledge, as in clear text.
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
        let negotiated = NegotiatedConnection {
            io,
            first,
            first_head,
        };
        Ok(self.serve_requests(version, negotiated, service, guard, closing))
    }

    /// The deadline for the first head of a connection that begins now.
    fn first_head(&self) -> Instant {
        Instant::now() + self.client.timeouts.head
    }

    /// Serves requests.
    fn serve_requests<T, S>(
        &self,
        version: Version,
        negotiated: NegotiatedConnection<T>,
        service: ConnectionService<S>,
        guard: ConnectionGuard,
        closing: DrainWatcher,
    ) -> Serving<'_>
    where
        T: Io,
        S: HttpService,
    {
        match version {
            Version::Http1 => Box::pin(self.http1(negotiated, service, guard, closing)),
            Version::Http2 => Box::pin(self.http2(negotiated, service.service, guard, closing)),
            Version::Unsupported => Box::pin(self.refuse_http1(negotiated, service, guard)),
        }
    }
}

/// A connection whose version of HTTP is known.
struct NegotiatedConnection<T> {
    io: T,
    /// Bytes that were read to detect the version.
    first: BytesMut,
    /// The deadline for the first head.
    first_head: Instant,
}

/// The stages of a connection: version detection, then serving. Each is boxed by itself: an idle
/// connection has room for its own protocol, not for others or for its handshake.
type Negotiation<'a> = Pin<Box<dyn Future<Output = io::Result<Serving<'a>>> + 'a>>;
type Serving<'a> = Pin<Box<dyn Future<Output = Result<(), BoxError>> + 'a>>;

/// The version of HTTP that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
    /// Not HTTP/2, on a listener that speaks HTTP/2 alone.
    Unsupported,
}

impl Version {
    /// Makes the service of a connection.
    fn service<S>(
        self,
        connection: &mut ClientConnection,
        factory: impl Fn(&ClientConnection) -> S,
    ) -> ConnectionService<S> {
        let informational = InformationalQueue::default();
        // hyper cannot send them in HTTP/2.
        connection.informational = (self == Self::Http1).then(|| informational.clone());
        ConnectionService {
            service: factory(connection),
            informational,
        }
    }
}

/// A service, and the informational responses that it sends.
struct ConnectionService<S> {
    service: S,
    informational: InformationalQueue,
}

/// Runs a stage before the first request: bounded in time, and given up when the server drains
/// while the client sends nothing.
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

/// Reads until the version is known: the whole preface of HTTP/2, or the first bytes that differ
/// from it.
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
