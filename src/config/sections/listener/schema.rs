//! Listeners, and TLS towards clients.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::located::{List, Located};
use crate::config::value::{FilePath, ListenAddress};

/// An item of `listeners`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The IP address and port to listen on.
    pub address: Located<ListenAddress>,
    /// What is spoken; with TLS the client chooses (ALPN), without it `h2` is for clients that
    /// know beforehand. `[h2]` alone answers HTTP/1 with 505. Both unless given.
    #[serde(default = "both")]
    #[schemars(length(min = 1))]
    pub protocols: List<Protocol>,
    /// TLS; cleartext without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Located<Tls>>,
}

impl Default for Listener {
    fn default() -> Self {
        let address = SocketAddr::from(([0, 0, 0, 0], 8080));
        Self {
            address: ListenAddress::new(address).into(),
            protocols: both(),
            tls: None,
        }
    }
}

fn both() -> List<Protocol> {
    vec![Protocol::Http1.into(), Protocol::Http2.into()].into()
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Protocol {
    /// HTTP/1.1, and 1.0.
    #[default]
    #[serde(rename = "http/1.1")]
    Http1,
    /// HTTP/2.
    #[serde(rename = "h2")]
    Http2,
}

/// `tls` of a listener.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Chosen by the name that the client asks for (SNI); the first is for all other names. Read
    /// again when the files change.
    #[schemars(length(min = 1))]
    pub certificates: List<Certificate>,
    /// The oldest version of TLS that is accepted.
    #[serde(default)]
    pub min_version: Located<TlsVersion>,
}

/// A certificate and its private key, in PEM.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The file with the certificate, the intermediate ones after it.
    pub certificate: Located<FilePath>,
    /// The file with the private key.
    pub key: Located<FilePath>,
}

/// A version of TLS.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    #[serde(rename = "tls1.2")]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "tls1.3")]
    Tls13,
}
