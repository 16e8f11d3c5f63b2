//! Errors that the proxy answers itself. Rejections by limits are no errors.

use std::time::Duration;

use http::StatusCode;

use super::grpc::GrpcStatus;
use crate::http::body::RequestBodyError;
use crate::http::framing::FramingError;
use crate::rules::{Denial, InvalidCost};
use crate::telemetry::metrics::UpstreamRefusal;
use crate::upstream::{UpstreamError, UpstreamErrorKind as Kind};

/// Reason for a response that is not the upstream's.
#[derive(Debug)]
pub enum Error {
    /// The request breaks a rule of HTTP, or its path cannot be normalised safely.
    Request {
        /// 400, 417, 501 and the like.
        status: StatusCode,
        /// A sentence for the client.
        reason: &'static str,
    },
    /// A rule of `access` denies the request.
    Denied(Denial),
    /// No route matches.
    NoRoute,
    /// `Content-Length` exceeds `max_body`.
    TooLarge,
    /// The body that limits read broke off.
    Body {
        /// 400, 408, 431.
        status: StatusCode,
        /// A sentence for the client.
        reason: &'static str,
    },
    /// Too many bodies are held for limits to read another.
    HeldBodies,
    /// The store of a limit does not answer, and the policy has `on_store_error: refuse`.
    Undecided,
    /// Too many requests are in flight at upstreams.
    NoShare(UpstreamRefusal),
    /// The request still waited when the time to drain was nearly over.
    DrainDeadline,
    /// The code that serves requests panicked.
    Panicked,
    /// The upstream sent no response.
    Upstream(UpstreamError),
}

impl From<FramingError> for Error {
    fn from(FramingError { status, reason }: FramingError) -> Self {
        Self::Request { status, reason }
    }
}

impl From<InvalidCost> for Error {
    fn from(InvalidCost: InvalidCost) -> Self {
        bad_request("The field that says the request's cost has no whole number.")
    }
}

/// The body that limits read. Not as its own error, which would have to be dropped with each request.
impl From<RequestBodyError> for Error {
    fn from(error: RequestBodyError) -> Self {
        match error {
            RequestBodyError::TooLarge => Self::TooLarge,
            _ => Self::Body {
                status: status_of_body(&error),
                reason: detail_of_body(&error),
            },
        }
    }
}

/// 400, for this reason: a sentence for the client.
pub(in crate::proxy) fn bad_request(reason: impl Into<&'static str>) -> Error {
    Error::Request {
        status: StatusCode::BAD_REQUEST,
        reason: reason.into(),
    }
}

impl Error {
    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Request { status, .. } | Self::Body { status, .. } => *status,
            Self::Denied(denial) => denial.status,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Undecided | Self::HeldBodies | Self::NoShare(_) | Self::DrainDeadline => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Upstream(error) => match &error.kind {
                Kind::ConnectTimeout { .. }
                | Kind::ResponseTimeout(_)
                | Kind::AttemptTimeout(_)
                | Kind::Deadline(_)
                | Kind::Stalled => StatusCode::GATEWAY_TIMEOUT,
                Kind::NoStream(_)
                | Kind::Shortage(_)
                | Kind::PendingFull(_)
                | Kind::PendingTimeout(_)
                | Kind::Draining => StatusCode::SERVICE_UNAVAILABLE,
                Kind::NoWebSocket => StatusCode::NOT_IMPLEMENTED,
                Kind::RequestBody(error) => status_of_body(error),
                Kind::InvalidHost => StatusCode::BAD_REQUEST,
                _ => StatusCode::BAD_GATEWAY,
            },
        }
    }

    /// The status for clients of gRPC. A connection that is not made in time is no deadline: the
    /// request may be sent again.
    pub(crate) fn grpc_status(&self) -> GrpcStatus {
        match self {
            Self::Upstream(UpstreamError {
                kind: Kind::ConnectTimeout { .. },
                ..
            }) => GrpcStatus::Unavailable,
            _ => GrpcStatus::of(self.status()),
        }
    }

    /// Value of Retry-After: what `access` says; and the store is in use again within a second of its return, and a full
    /// upstream or proxy may take a request at any moment.
    pub fn retry_after(&self) -> Option<Duration> {
        let is_for_now = match self {
            Self::Denied(denial) => return denial.retry_after,
            Self::Undecided | Self::HeldBodies | Self::NoShare(_) | Self::DrainDeadline => true,
            Self::Upstream(error) => {
                matches!(
                    error.kind,
                    Kind::PendingFull(_) | Kind::PendingTimeout(_) | Kind::Shortage(_)
                )
            }
            _ => false,
        };
        is_for_now.then_some(Duration::from_secs(1))
    }

    /// The `error` of the access log.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Request { .. } => "bad_request",
            Self::Denied(_) => "denied",
            Self::NoRoute => "no_route",
            Self::TooLarge => "body_too_large",
            Self::Body { .. } => "request_body",
            Self::HeldBodies => "held_bodies",
            Self::Undecided => "store",
            Self::NoShare(refusal) => refusal.as_str(),
            Self::DrainDeadline => "drain_deadline",
            Self::Panicked => "panic",
            Self::Upstream(error) => error.reason(),
        }
    }

    /// The [`detail`](Self::detail) for operators, who may know which rule denies a request.
    pub fn explanation(&self) -> String {
        match self {
            Self::Denied(denial) => format!("{} ({denial})", self.detail()),
            _ => self.detail().to_owned(),
        }
    }

    /// A sentence for the client: names the step that failed, and no internal address.
    pub fn detail(&self) -> &'static str {
        match self {
            Self::Request { reason, .. } | Self::Body { reason, .. } => reason,
            Self::Denied(denial) if denial.status.is_server_error() => {
                "The service is closed at the moment."
            }
            Self::Denied(denial) if denial.challenge.is_some() => "A known key is needed.",
            Self::Denied(_) => "Access is denied.",
            Self::NoRoute => "No route takes this request.",
            Self::TooLarge => "The request body is larger than allowed.",
            Self::HeldBodies => "The proxy takes no more requests at the moment.",
            Self::Undecided => "A limit cannot be checked at the moment.",
            Self::NoShare(UpstreamRefusal::ClientShare) => {
                "This client has too many requests in flight at the moment."
            }
            Self::NoShare(_) => "The proxy takes no more requests at the moment.",
            Self::DrainDeadline => "The proxy ends this connection. Another may be served.",
            Self::Panicked => "The proxy failed on this request.",
            Self::Upstream(error) => match &error.kind {
                Kind::Resolve(_) => "The upstream's name does not resolve.",
                Kind::Shortage(_) => "The proxy takes no more requests at the moment.",
                Kind::Connect(_) => "The upstream accepts no connection.",
                Kind::Tls(_) => "No TLS connection to the upstream could be made.",
                Kind::ConnectTimeout { .. } => "The upstream accepted no connection in time.",
                Kind::Handshake(_) => "The upstream does not speak HTTP/2.",
                Kind::NoStream(_)
                | Kind::PendingFull(_)
                | Kind::PendingTimeout(_)
                | Kind::Draining => "The upstream takes no more requests at the moment.",
                Kind::InvalidHost => "Host is not a host with an optional port.",
                Kind::NoWebSocket => "The upstream does not take WebSockets over HTTP/2.",
                Kind::Reset(_) => "The upstream reset the stream without a response.",
                Kind::Closed(_) | Kind::Bystander(_) => {
                    "The upstream closed the connection without a response."
                }
                Kind::Invalid(_) | Kind::Protocol(_) => {
                    "The upstream's response is not valid HTTP."
                }
                Kind::ResponseTimeout(_)
                | Kind::AttemptTimeout(_)
                | Kind::Deadline(_)
                | Kind::Stalled => "The upstream sent no response in time.",
                Kind::RequestBody(error) => detail_of_body(error),
            },
        }
    }
}

fn status_of_body(error: &RequestBodyError) -> StatusCode {
    match error {
        RequestBodyError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        RequestBodyError::Quiet(_) => StatusCode::REQUEST_TIMEOUT,
        RequestBodyError::LargeTrailers => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        RequestBodyError::Client(_) | RequestBodyError::Incomplete => StatusCode::BAD_REQUEST,
    }
}

fn detail_of_body(error: &RequestBodyError) -> &'static str {
    match error {
        RequestBodyError::TooLarge => "The request body is larger than allowed.",
        RequestBodyError::Quiet(_) => "The request body did not arrive in time.",
        RequestBodyError::LargeTrailers => "The request's trailers are larger than 16 KiB.",
        RequestBodyError::Client(_) | RequestBodyError::Incomplete => {
            "The request body did not arrive whole."
        }
    }
}
