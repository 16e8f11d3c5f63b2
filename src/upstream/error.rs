//! Errors between the proxy and an upstream.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::session::{ExchangeError, InvalidMessage};
use crate::http::body::RequestBodyError;
use crate::telemetry::metrics::EndpointFailure;

/// The reason why an endpoint gave no response.
#[derive(Debug)]
pub struct UpstreamError {
    /// The endpoint's host and port.
    pub endpoint: Arc<str>,
    /// The reason.
    pub kind: UpstreamErrorKind,
}

/// Reasons why an endpoint gave no response.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamErrorKind {
    /// The name does not resolve.
    #[error("the name does not resolve")]
    Resolve(#[source] io::Error),
    /// No connection: refused, unreachable, out of descriptors.
    #[error("no connection")]
    Connect(#[source] io::Error),
    /// The TLS handshake failed, or the certificate was not accepted.
    #[error("no TLS connection")]
    Tls(#[source] io::Error),
    /// The first answer about a name, or connection and handshake, took longer than `timeouts.connect`.
    #[error("no connection within {after:?} (timeouts.connect)")]
    ConnectTimeout {
        /// The limit.
        after: Duration,
        /// The resolver's delay, if the name was not resolved by then.
        source: Option<io::Error>,
    },
    /// The connection broke before a response head was there.
    #[error("the connection closed before a response")]
    Closed(#[source] io::Error),
    /// The response is no HTTP, or cannot be forwarded.
    #[error("the response cannot be passed on")]
    Invalid(#[source] InvalidMessage),
    /// No response head within `timeouts.response`.
    #[error("no response within {0:?} (timeouts.response)")]
    ResponseTimeout(Duration),
    /// The client stopped, or sent too much: not the upstream's fault.
    #[error("the request body did not arrive")]
    RequestBody(#[source] RequestBodyError),
}

impl UpstreamError {
    /// The failure of `endpoint` for this reason.
    pub(super) fn new(endpoint: &Arc<str>, kind: UpstreamErrorKind) -> Self {
        UpstreamError {
            endpoint: Arc::clone(endpoint),
            kind,
        }
    }

    /// The endpoint's failure; `None` if the client failed.
    pub fn reason(&self) -> Option<EndpointFailure> {
        Some(match self.kind {
            UpstreamErrorKind::Resolve(_) => EndpointFailure::Resolve,
            UpstreamErrorKind::Connect(_) => EndpointFailure::Connect,
            UpstreamErrorKind::Tls(_) => EndpointFailure::Tls,
            UpstreamErrorKind::ConnectTimeout { .. } => EndpointFailure::ConnectTimeout,
            UpstreamErrorKind::Closed(_) => EndpointFailure::Closed,
            UpstreamErrorKind::Invalid(_) => EndpointFailure::Invalid,
            UpstreamErrorKind::ResponseTimeout(_) => EndpointFailure::ResponseTimeout,
            UpstreamErrorKind::RequestBody(_) => return None,
        })
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.endpoint, self.kind)
    }
}

impl std::error::Error for UpstreamError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}

impl From<ExchangeError> for UpstreamErrorKind {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Closed(error) => Self::Closed(error),
            ExchangeError::Invalid(invalid) => Self::Invalid(invalid),
            ExchangeError::RequestBody(error) => Self::RequestBody(error),
        }
    }
}
