//! One client connection, from accept to close: preamble, TLS, version detection, then HTTP/1 or
//! HTTP/2.

mod http1;
pub(super) mod http2;
#[cfg(any(fuzzing, test))]
#[path = "connection/tests/in_memory.rs"]
pub(crate) mod in_memory;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::client_rules::CurrentRules;
use super::connection_guard::{ConnectionGuard, Evicted};
use super::drain::past_grace;
use super::factory::ServiceFactory;
use super::listener::ListenerSettings;
use super::preamble;
use super::spec::{ClientSpec, HttpVersion, ListenerSpec, Protocols};
use crate::http::connection::{ClientConnection, Scheme};
use crate::http::informational::InformationalQueue;
use crate::http::service::{BoxError, HttpService};
use crate::net::drain::DrainWatcher;
use crate::net::listener::Accepted;
use crate::net::peer_address::PeerAddress;
use crate::net::socket::{Socket, StreamAddress};

/// The client preface of HTTP/2 (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes to read at once while the version is unknown.
const FIRST_READ: usize = 8 * 1024;

/// A socket, or a TLS session over one.
trait Io: AsyncRead + AsyncWrite + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + 'static> Io for T {}

/// Serves the connections of one listener on one worker.
pub(super) struct ConnectionHandler {
    pub(super) worker: usize,
    pub(super) settings: Arc<ListenerSettings>,
    pub(super) http2: h2::server::Builder,
    pub(super) client: ClientSpec,
    pub(super) client_rules: CurrentRules,
    /// The drain of the connections.
    pub(super) drain: DrainWatcher,
}

impl ConnectionHandler {
    /// Returns true if connections of this peer begin with a header of the PROXY protocol.
    pub(super) fn expects_header(&self, peer: PeerAddress) -> bool {
        self.settings.spec.proxy_protocol
            && (peer == PeerAddress::Unix || self.client_rules.load().client_ip.trusts(peer))
    }

    /// Serves one connection to its end. Its errors are the client's, and logged at debug.
    ///
    /// Not async: its future would have room for each argument.
    pub(super) fn serve<F: ServiceFactory>(
        self: Rc<Self>,
        id: u64,
        accepted: Accepted,
        factory: F,
        guard: ConnectionGuard,
    ) -> impl Future<Output = ()> + use<F> {
        let peer = accepted.peer;
        // Each stage is boxed by itself: an idle connection has room for its own protocol, not for
        // others or for its handshake.
        let opening = Box::pin(self.open(id, accepted, factory, guard));
        async move {
            let result = match opening.await {
                Ok(serving) => serving.await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = result {
                debug!(%peer, error, "connection closed");
            }
        }
    }

    /// Reads the preamble, shakes hands and detects the version of HTTP. Returns the future that
    /// serves requests.
    async fn open(
        self: Rc<Self>,
        id: u64,
        accepted: Accepted,
        factory: impl ServiceFactory,
        guard: ConnectionGuard,
    ) -> io::Result<Serving> {
        let deadline = self.first_head();
        let Accepted { mut socket, peer } = accepted;
        let local = self.local_address(&socket);
        let (mut client, mut asked_port) = (peer, None);
        if self.expects_header(peer) {
            let reading = Box::pin(preamble::read(&mut socket, peer));
            let read = within_deadline(deadline, &guard, reading).await;
            (client, asked_port) = read.inspect_err(|error| guard.preamble_failed(error))?;
            guard.count_client(client, &self.client_rules.load().client_ip)?;
        }
        let mut connection = ClientConnection {
            id,
            peer: client,
            local,
            asked_port,
            scheme: Scheme::Http,
            tls_version: None,
            server_name: None,
            worker: self.worker,
            informational: InformationalQueue::default(),
            drain: guard.closing().clone(),
        };
        let ListenerSpec { tls, protocols, .. } = &self.settings.spec;
        let Some(tls) = tls else {
            let detection = async {
                // Without a buffer, so that a quiet connection holds none.
                socket.first_byte().await?;
                detect_version(socket, *protocols, deadline).await
            };
            let negotiated = within_deadline(deadline, &guard, detection).await?;
            return Ok(self.serve_requests(negotiated, connection, factory, guard));
        };
        // Probes that connect and send nothing don't fail a handshake.
        if !within_deadline(deadline, &guard, socket.first_byte()).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let handshake = Box::pin(tls.accept(socket));
        let session = within_deadline(deadline, &guard, handshake)
            .await
            .inspect_err(|error| guard.handshake_failed(error))?;
        connection.scheme = Scheme::Https;
        connection.tls_version = session.tls_version;
        connection.server_name = session.server_name;
        let negotiated = match (session.version, protocols) {
            (Some(version), _) => NegotiatedConnection::new(version, session.stream, deadline),
            // Without ALPN, HTTP/2 needs prior knowledge, as in clear text.
            (None, Protocols::Http2) => {
                let detection = detect_version(session.stream, *protocols, deadline);
                within_deadline(deadline, &guard, detection).await?
            }
            (None, _) => NegotiatedConnection::new(HttpVersion::Http1, session.stream, deadline),
        };
        Ok(self.serve_requests(negotiated, connection, factory, guard))
    }

    /// The address at which a connection was accepted: the listener's, or the system's answer if
    /// that listens on all addresses.
    fn local_address(&self, socket: &Socket) -> StreamAddress {
        let listener = &self.settings.local;
        match (listener, socket) {
            (StreamAddress::Tcp(address), Socket::Tcp(stream)) if address.ip().is_unspecified() => {
                StreamAddress::Tcp(stream.local_addr().unwrap_or(*address))
            }
            _ => listener.clone(),
        }
    }

    /// The deadline for the first head of a connection that begins now.
    fn first_head(&self) -> Instant {
        Instant::now() + self.client.timeouts.head
    }

    /// Makes the service of a connection, and serves requests.
    fn serve_requests<S: HttpService>(
        self: Rc<Self>,
        negotiated: NegotiatedConnection<impl Io>,
        connection: ClientConnection,
        factory: impl Fn(&ClientConnection) -> S,
        guard: ConnectionGuard,
    ) -> Serving {
        let service = ConnectionService {
            id: connection.id,
            service: factory(&connection),
            informational: connection.informational,
        };
        match negotiated.version {
            HttpVersion::Http2 => Box::pin(self.http2(negotiated, service, guard)),
            HttpVersion::Http1 | HttpVersion::Unsupported => {
                Box::pin(self.http1(negotiated, service, guard))
            }
        }
    }
}

/// A connection whose version of HTTP is known.
struct NegotiatedConnection<T> {
    version: HttpVersion,
    io: T,
    /// Bytes that were read to detect the version.
    first: BytesMut,
    /// The deadline for the first head.
    first_head: Instant,
}

impl<T> NegotiatedConnection<T> {
    fn new(version: HttpVersion, io: T, first_head: Instant) -> Self {
        Self {
            version,
            io,
            first: BytesMut::new(),
            first_head,
        }
    }
}

/// The future that serves the requests of a connection.
type Serving = Pin<Box<dyn Future<Output = Result<(), BoxError>>>>;

/// A service, and the informational responses that it sends.
struct ConnectionService<S> {
    /// The connection's number.
    id: u64,
    service: S,
    informational: InformationalQueue,
}

/// Runs a stage before the first request: bounded in time, and given up when the server drains
/// while the client sends nothing, or when the connection has to give way to another.
async fn within_deadline<T>(
    deadline: Instant,
    guard: &ConnectionGuard,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let what = "the client sent nothing of use in time";
    let late = || io::Error::new(io::ErrorKind::TimedOut, what);
    tokio::select! {
        biased;
        result = timeout_at(deadline, work) => result.map_err(|_| late())?,
        () = past_grace(guard.closing().clone()) => Err(late()),
        () = poll_fn(|cx| guard.poll_evicted(cx, Instant::now)) => Err(io::Error::other(Evicted)),
    }
}

/// Reads until the version is known: the whole preface of HTTP/2, or the first bytes that differ
/// from it.
async fn detect_version<T: Io>(
    io: T,
    protocols: Protocols,
    first_head: Instant,
) -> io::Result<NegotiatedConnection<T>> {
    let otherwise = match protocols {
        Protocols::Http2 => HttpVersion::Unsupported,
        Protocols::Http1 | Protocols::Both => HttpVersion::Http1,
    };
    let mut negotiated = NegotiatedConnection::new(otherwise, io, first_head);
    if protocols == Protocols::Http1 {
        return Ok(negotiated);
    }
    let first = &mut negotiated.first;
    first.reserve(FIRST_READ);
    while negotiated.io.read_buf(first).await? > 0 {
        let start = &first[..first.len().min(PREFACE.len())];
        if !PREFACE.starts_with(start) {
            break;
        }
        if start.len() == PREFACE.len() {
            negotiated.version = HttpVersion::Http2;
            break;
        }
    }
    Ok(negotiated)
}

#[cfg(test)]
mod tests;
