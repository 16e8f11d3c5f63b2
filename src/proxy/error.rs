//! Why a request got an answer of the proxy's own that no limit decided.

use http::StatusCode;

use crate::http_ext::body::RequestBodyError;
use crate::upstream::{self, Fault};

/// What kept a request from being answered by its upstream.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request breaks a rule of HTTP, or has a path that cannot be normalised safely.
    #[error("{reason}")]
    Request {
        /// 400, 405, 417, 501 and the like.
        status: StatusCode,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No route takes the request.
    #[error("no route takes this request")]
    NoRoute,
    /// The body is announced to be larger than `max_body`.
    #[error("the request body is larger than max_body")]
    TooLarge,
    /// The upstream gave no response.
    #[error(transparent)]
    Upstream(#[from] upstream::Error),
}

impl Error {
    /// The status that tells the client.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Request { status, .. } => *status,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Upstream(error) => match error.fault() {
                Fault::Upstream => StatusCode::BAD_GATEWAY,
                Fault::UpstreamTooSlow => StatusCode::GATEWAY_TIMEOUT,
                Fault::Client => match error.request_body() {
                    Some(RequestBodyError::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
                    Some(RequestBodyError::Quiet(_)) => StatusCode::REQUEST_TIMEOUT,
                    _ => StatusCode::BAD_REQUEST,
                },
            },
        }
    }

    /// What the client may know: which step failed, but no address of ours.
    pub fn detail(&self) -> &'static str {
        use upstream::Error as U;
        match self {
            Self::Request { reason, .. } => reason,
            Self::NoRoute => "No route takes this request.",
            Self::TooLarge => "The request body is larger than allowed.",
            Self::Upstream(error) => match error {
                U::Resolve { .. } => "The upstream's name does not resolve.",
                U::Connect { .. } => "The upstream accepts no connection.",
                U::Tls { .. } => "No TLS connection to the upstream could be made.",
                U::ConnectTimeout { .. } => "The upstream accepted no connection in time.",
                U::Closed { .. } => "The upstream closed the connection without a response.",
                U::Invalid { .. } => "The upstream's response is not valid HTTP.",
                U::ResponseTimeout { .. } => "The upstream sent no response in time.",
                U::RequestBody(_) => match error.request_body() {
                    Some(RequestBodyError::TooLarge) => "The request body is larger than allowed.",
                    Some(RequestBodyError::Quiet(_)) => "The request body did not arrive in time.",
                    _ => "The request body did not arrive whole.",
                },
            },
        }
    }
}
