//! What is known of a client's connection before its first request.

use std::{net::SocketAddr, sync::Arc};

use super::informational::InformationalQueue;

/// A client's connection, the same for all requests on it.
#[derive(Clone, Debug)]
pub struct ClientConnection {
    /// The other end; an IPv4 address mapped into IPv6 stands here as IPv4.
    pub peer: SocketAddr,
    /// The address of the listener that accepted it.
    pub local: SocketAddr,
    /// Whether it is encrypted.
    pub scheme: Scheme,
    /// The name that the client asked for in TLS (RFC 6066 section 3), lower case.
    pub server_name: Option<Arc<str>>,
    /// Which worker serves it, from 0.
    pub worker: usize,
    /// Where it takes interim responses, if it does.
    pub informational: Option<InformationalQueue>,
}

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In clear text.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// Returns the scheme as URIs and X-Forwarded-Proto write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}
