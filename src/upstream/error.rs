//! What can go wrong between the proxy and an upstream: whose fault it was, and whether the request
//! may be sent again, decided where the error is born.

use std::io;
use std::time::Duration;

use super::http1::{ExchangeError, InvalidMessage};
use crate::http::body::RequestBodyError;
use crate::telemetry::metrics::EndpointFailure;

/// Why an upstream gave no response. Each names the endpoint as `host:port`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name could not be resolved.
    #[error("{endpoint}: the name does not resolve")]
    Resolve {
        /// The endpoint.
        endpoint: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// No connection: refused, unreachable, out of descriptors.
    #[error("{endpoint}: no connection")]
    Connect {
        /// The endpoint.
        endpoint: String,
        /// What the system said.
        source: io::Error,
    },
    /// The TLS handshake failed, or the certificate was not accepted.
    #[error("{endpoint}: no TLS connection")]
    Tls {
        /// The endpoint.
        endpoint: String,
        /// What rustls said.
        source: io::Error,
    },
    /// Name, connection and handshake took longer than `timeouts.connect`.
    #[error("{endpoint}: no connection within {after:?} (timeouts.connect)")]
    ConnectTimeout {
        /// The endpoint.
        endpoint: String,
        /// The limit.
        after: Duration,
    },
    /// The connection broke before a response head was there.
    #[error("{endpoint}: the connection closed before a response")]
    Closed {
        /// The endpoint.
        endpoint: String,
        /// What the system said.
        source: io::Error,
    },
    /// What came was not HTTP, or cannot be passed on.
    #[error("{endpoint}: the response cannot be passed on")]
    Invalid {
        /// The endpoint.
        endpoint: String,
        /// Why not.
        source: InvalidMessage,
    },
    /// No response head within `timeouts.response`.
    #[error("{endpoint}: no response within {after:?} (timeouts.response)")]
    ResponseTimeout {
        /// The endpoint.
        endpoint: String,
        /// The limit.
        after: Duration,
    },
    /// The client stopped, or sent too much: not the upstream's fault.
    #[error("the request body did not arrive")]
    RequestBody(#[source] RequestBodyError),
}

/// Who is to blame, and so which status tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The upstream is unreachable or answers nonsense.
    Upstream,
    /// The upstream took too long.
    UpstreamTooSlow,
    /// The client's request body.
    Client,
}

impl Error {
    /// What broke off an exchange with `endpoint`.
    pub(super) fn exchange(endpoint: &str, failure: ExchangeError) -> Self {
        let endpoint = endpoint.to_owned();
        match failure {
            ExchangeError::Closed(source) => Self::Closed { endpoint, source },
            ExchangeError::Invalid(source) => Self::Invalid { endpoint, source },
            ExchangeError::RequestBody(source) => Self::RequestBody(source),
        }
    }

    /// Why the endpoint failed, if it did, and not the client.
    pub fn reason(&self) -> Option<EndpointFailure> {
        Some(match self {
            Self::Resolve { .. } => EndpointFailure::Resolve,
            Self::Connect { .. } => EndpointFailure::Connect,
            Self::Tls { .. } => EndpointFailure::Tls,
            Self::ConnectTimeout { .. } => EndpointFailure::ConnectTimeout,
            Self::Closed { .. } => EndpointFailure::Closed,
            Self::Invalid { .. } => EndpointFailure::Invalid,
            Self::ResponseTimeout { .. } => EndpointFailure::ResponseTimeout,
            Self::RequestBody(_) => return None,
        })
    }

    /// Whose fault it was.
    pub fn fault(&self) -> Fault {
        match self {
            Self::ConnectTimeout { .. } | Self::ResponseTimeout { .. } => Fault::UpstreamTooSlow,
            Self::RequestBody(_) => Fault::Client,
            _ => Fault::Upstream,
        }
    }

    /// The client's fault behind this error, if it was the client's.
    pub fn request_body(&self) -> Option<&RequestBodyError> {
        match self {
            Self::RequestBody(source) => Some(source),
            _ => None,
        }
    }
}
