//! The client's connection, as it is known before the first request.

use std::net::SocketAddr;
use std::sync::Arc;

use strum::IntoStaticStr;

use super::informational::InformationalQueue;
use crate::net::drain::DrainWatcher;
use crate::net::peer_address::PeerAddress;

/// A client's connection, the same for all requests on it.
#[derive(Clone, Debug)]
pub struct ClientConnection {
    /// Distinguishes the connections that a worker accepts.
    pub id: u64,
    /// The other end: the peer, or the client that its preamble names.
    pub peer: PeerAddress,
    /// The address at which it was accepted; `None` for a Unix socket.
    pub local: Option<SocketAddr>,
    /// `https` if the connection is encrypted.
    pub scheme: Scheme,
    /// The version of TLS; `None` in clear text.
    pub tls_version: Option<TlsVersion>,
    /// The server name of TLS (RFC 6066 section 3), lower case.
    pub server_name: Option<Arc<str>>,
    /// The index of the worker that serves it.
    pub worker: usize,
    /// The queue for informational responses.
    pub informational: InformationalQueue,
    /// The drain of its listener.
    pub drain: DrainWatcher,
}

/// A version of TLS, which has the name that other servers log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(const_into_str)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[strum(serialize = "TLSv1.2")]
    V1_2,
    /// TLS 1.3 (RFC 8446).
    #[strum(serialize = "TLSv1.3")]
    V1_3,
}

/// The scheme of requests, which has the name that URIs and X-Forwarded-Proto write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Scheme {
    /// In clear text.
    Http,
    /// Over TLS.
    Https,
}
