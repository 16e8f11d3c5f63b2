//! The client's connection, as it is known before the first request.

use std::sync::Arc;

use http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use super::informational::InformationalQueue;
use crate::net::drain::DrainWatcher;
use crate::net::peer_address::PeerAddress;
use crate::net::socket::StreamAddress;

/// A client's connection, the same for all requests on it.
#[derive(Clone, Debug)]
pub struct ClientConnection {
    /// Distinguishes the connections that a worker accepts.
    pub id: u64,
    /// The other end: the peer, or the client that its preamble names.
    pub peer: PeerAddress,
    /// The address at which it was accepted.
    pub local: StreamAddress,
    /// The port that the client connected to, if its preamble names it.
    pub asked_port: Option<u16>,
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

/// A version of TLS.
// As a text it has the name that other servers log.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, Deserialize, Serialize, JsonSchema,
)]
#[strum(const_into_str)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    #[serde(rename = "tls1.2")]
    #[strum(serialize = "TLSv1.2")]
    V1_2,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "tls1.3")]
    #[strum(serialize = "TLSv1.3")]
    V1_3,
}

/// The scheme of requests, which has the name that URIs and X-Forwarded-Proto write.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    IntoStaticStr,
    EnumString,
    Deserialize,
    Serialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", ascii_case_insensitive)]
pub enum Scheme {
    /// In clear text.
    #[default]
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// Returns the port of URLs that name none (RFC 9110 section 4.2).
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// Returns the scheme of an absolute URI; `None` for another or a relative one.
    pub fn of(uri: &Uri) -> Option<Self> {
        uri.scheme_str()?.parse().ok()
    }
}
