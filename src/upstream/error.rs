//! Errors between the proxy and an upstream.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use derive_more::Display;

use crate::http::body::RequestBodyError;
use crate::http::http1::InvalidMessage;
use crate::net::file_budget::{self, is_shortage};
use crate::telemetry::metrics::EndpointFailure;

/// The reason why an endpoint gave no response.
#[derive(Debug, Display)]
#[display("{endpoint}: {kind}")]
pub struct UpstreamError {
    /// The endpoint's host and port; the upstream's name if the request has waited for any of them.
    pub endpoint: Arc<str>,
    /// The reason.
    pub kind: UpstreamErrorKind,
}

/// Reasons why an endpoint gave no response, each with its word for the access log. It is that of the
/// [`EndpointFailure`], if it is one.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum UpstreamErrorKind {
    /// The name does not resolve.
    #[error("the name does not resolve")]
    Resolve(#[source] io::Error),
    /// This machine lacks what a connection needs: a file, memory, a port.
    #[error("this machine has nothing left for another connection")]
    Shortage(#[source] io::Error),
    /// No connection: refused, unreachable.
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
    /// The server does not speak HTTP/2, or sent no SETTINGS.
    #[error("no HTTP/2 connection")]
    Handshake(#[source] io::Error),
    /// All streams of the most connections were in use for `timeouts.connect`.
    #[error("no free stream within {0:?} (timeouts.connect)")]
    NoStream(Duration),
    /// The request's Host is no `:authority`, which HTTP/2 needs.
    #[error("the request's Host isn't an authority")]
    #[strum(serialize = "bad_request")]
    InvalidHost,
    /// The server does not support extended CONNECT (RFC 8441).
    #[error("no such upgrade over HTTP/2")]
    #[strum(serialize = "invalid")]
    NoWebSocket,
    /// The connection broke before a response head was there.
    #[error("the connection closed before a response")]
    Closed(#[source] io::Error),
    /// The response is no HTTP, or cannot be forwarded.
    #[error("the response cannot be passed on")]
    Invalid(#[source] InvalidMessage),
    /// The server violates HTTP/2.
    #[error("the response violates HTTP/2")]
    #[strum(serialize = "invalid")]
    Protocol(#[source] h2::Error),
    /// The server violates HTTP/2 on another stream of the connection.
    #[error("another response on the connection violates HTTP/2")]
    #[strum(serialize = "closed")]
    Bystander(#[source] h2::Error),
    /// The server reset the stream before a response head was there.
    #[error("the stream was reset before a response")]
    Reset(#[source] h2::Error),
    /// No response head within `timeouts.response`.
    #[error("no response within {0:?} (timeouts.response)")]
    ResponseTimeout(Duration),
    /// No response head within `timeouts.attempt`.
    #[error("no response within {0:?} (timeouts.attempt)")]
    AttemptTimeout(Duration),
    /// No response head within `timeouts.request`.
    #[error("no response within {0:?} (timeouts.request)")]
    #[strum(serialize = "request_timeout")]
    Deadline(Duration),
    /// The host took requests and answered none, while others answered theirs.
    #[error("the endpoint answers no request, while others do")]
    Stalled,
    /// No host had a free slot, and so many requests waited for one.
    #[error("no free slot, and {0} requests wait for one (connections.max_pending)")]
    PendingFull(u32),
    /// No host had a free slot within `connections.max_wait`.
    #[error("no free slot within {0:?} (connections.max_wait)")]
    PendingTimeout(Duration),
    /// All endpoints drain: an operator has taken them out of use.
    #[error("all endpoints drain")]
    Draining,
    /// The client stopped, or sent too much: not the upstream's fault.
    #[error("the request body did not arrive")]
    RequestBody(#[source] RequestBodyError),
}

impl UpstreamErrorKind {
    /// The failure to dial: the host's, or this machine's.
    pub(super) fn of_dial(error: io::Error) -> Self {
        if is_shortage(&error) {
            file_budget::UPSTREAMS.note_shortage(&error);
            Self::Shortage(error)
        } else {
            Self::Connect(error)
        }
    }

    /// The error of a request that had no connection after `limit`.
    pub(super) fn late(limit: Duration) -> Self {
        Self::ConnectTimeout {
            after: limit,
            source: None,
        }
    }

    /// Returns true if there is no connection, so that nothing was sent.
    pub(super) fn is_of_connecting(&self) -> bool {
        matches!(
            self,
            Self::Resolve(_)
                | Self::Shortage(_)
                | Self::Connect(_)
                | Self::Tls(_)
                | Self::ConnectTimeout { .. }
                | Self::Handshake(_)
                | Self::NoStream(_)
        )
    }

    /// The failure to open a connection, for another request that waited for it.
    pub(super) fn copy(&self) -> Self {
        let copy = |error: &io::Error| match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        match self {
            Self::Resolve(error) => Self::Resolve(copy(error)),
            Self::Tls(error) => Self::Tls(copy(error)),
            Self::ConnectTimeout { after, source } => Self::ConnectTimeout {
                after: *after,
                source: source.as_ref().map(copy),
            },
            Self::Handshake(error) => Self::Handshake(copy(error)),
            Self::Connect(error) => Self::Connect(copy(error)),
            Self::Shortage(error) => Self::Shortage(copy(error)),
            other => Self::Connect(io::Error::other(other.to_string())),
        }
    }
}

/// An error of h2, as an exchange has it.
impl From<h2::Error> for UpstreamErrorKind {
    fn from(error: h2::Error) -> Self {
        if error.is_library() {
            return Self::Protocol(error);
        }
        if error.is_reset() {
            return Self::Reset(error);
        }
        Self::Closed(into_io(error))
    }
}

/// The error of the connection, or `error` itself.
pub(super) fn into_io(error: h2::Error) -> io::Error {
    if error.is_io() {
        error
            .into_io()
            .unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    } else {
        io::Error::other(error)
    }
}

impl UpstreamError {
    /// The failure of `endpoint` for this reason.
    pub(super) fn new(endpoint: &Arc<str>, kind: UpstreamErrorKind) -> Self {
        UpstreamError {
            endpoint: Arc::clone(endpoint),
            kind,
        }
    }

    /// Returns true if the client failed, and not the upstream.
    pub fn is_clients(&self) -> bool {
        matches!(
            self.kind,
            UpstreamErrorKind::RequestBody(_) | UpstreamErrorKind::InvalidHost
        )
    }

    /// Returns true if this machine failed, and not the upstream.
    pub fn is_own(&self) -> bool {
        matches!(self.kind, UpstreamErrorKind::Shortage(_))
    }

    /// The endpoint's failure; `None` if the client or this machine failed, or the request was sent
    /// nowhere.
    pub fn failure(&self) -> Option<EndpointFailure> {
        self.reason().parse().ok()
    }

    /// The `error` of the access log.
    pub fn reason(&self) -> &'static str {
        match &self.kind {
            UpstreamErrorKind::RequestBody(RequestBodyError::TooLarge) => "body_too_large",
            kind => kind.into(),
        }
    }
}

impl std::error::Error for UpstreamError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}
