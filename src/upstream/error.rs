//! Errors between the proxy and an upstream. Where an error is created decides whose fault it is,
//! and if the request may be sent again.

use std::io;
use std::time::Duration;

use super::http1::{ExchangeError, InvalidMessage};
use crate::http::body::RequestBodyError;
use crate::telemetry::metrics::EndpointFailure;

/// Reasons why an upstream gave no response. Each names the endpoint as `host:port`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name does not resolve.
    #[error("{endpoint}: the name does not resolve")]
    Resolve {
        /// The endpoint.
        endpoint: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// No connection: refused, unreachable, out of descriptors.
    #[error("{endpoint}: no connection")]
    Connect {
        /// The endpoint.
        endpoint: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The TLS handshake failed, or the certificate was not accepted.
    #[error("{endpoint}: no TLS connection")]
    Tls {
        /// The endpoint.
        endpoint: String,
        /// The error of rustls.
        source: io::Error,
    },
    /// Name, connection and handshake took longer than `timeouts.connect`.
    #[error("{endpoint}: no connection within {after:?} (timeouts.connect)")]
    ConnectTimeout {
        /// The endpoint.
        endpoint: String,
        /// The limit.
        after: Duration,
        /// The resolver's delay, if the name was not resolved by then.
        source: Option<io::Error>,
    },
    /// The connection broke before a response head was there.
    #[error("{endpoint}: the connection closed before a response")]
    Closed {
        /// The endpoint.
        endpoint: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The response is no HTTP, or cannot be forwarded.
    #[error("{endpoint}: the response cannot be passed on")]
    Invalid {
        /// The endpoint.
        endpoint: String,
        /// The reason.
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

/// The party at fault, which determines the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The upstream is unreachable or answers nonsense.
    Upstream,
    /// The upstream took too long.
    UpstreamTooSlow,
    /// The client.
    Client,
}

impl Error {
    /// The error of a failed exchange with `endpoint`.
    pub(super) fn exchange(endpoint: &str, failure: ExchangeError) -> Self {
        let endpoint = endpoint.to_owned();
        match failure {
            ExchangeError::Closed(source) => Self::Closed { endpoint, source },
            ExchangeError::Invalid(source) => Self::Invalid { endpoint, source },
            ExchangeError::RequestBody(source) => Self::RequestBody(source),
        }
    }

    /// The endpoint's failure; `None` if the client failed.
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

    /// The party at fault.
    pub fn fault(&self) -> Fault {
        match self {
            Self::ConnectTimeout { .. } | Self::ResponseTimeout { .. } => Fault::UpstreamTooSlow,
            Self::RequestBody(_) => Fault::Client,
            _ => Fault::Upstream,
        }
    }

    /// The error of the request's body, if the client is at fault.
    pub fn request_body(&self) -> Option<&RequestBodyError> {
        match self {
            Self::RequestBody(source) => Some(source),
            _ => None,
        }
    }
}
