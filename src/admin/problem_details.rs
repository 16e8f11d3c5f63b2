//! Errors of the API (RFC 9457).

use std::borrow::Cow;
use std::fmt::Display;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::http::message::reason_phrase;
use crate::nearest;
use crate::telemetry::metrics::AdminRefusal;
use crate::visible;

/// The media type of errors.
pub(super) const MEDIA_TYPE: &str = "application/problem+json";

/// A header field of every response: each is true for a moment only.
pub(super) const NO_STORE: (HeaderName, &str) = (CACHE_CONTROL, "no-store");

/// The longest `detail`, in characters: errors of JSON repeat names of the request.
const MAX_DETAIL: usize = 1_000;

/// An error (RFC 9457).
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// `about:blank`: the status says it all.
    pub r#type: Cow<'static, str>,
    /// The status in words.
    pub title: Cow<'static, str>,
    /// The status of the response.
    pub status: u16,
    /// The problem in a sentence, and the way to solve it.
    pub detail: String,
    /// The problems of a configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub findings: Option<Value>,
}

/// An error of the API, as an answer.
#[derive(Debug)]
pub struct ProblemDetails {
    status: StatusCode,
    /// The problem in a sentence, and the way to solve it.
    pub detail: String,
    findings: Option<Value>,
    /// True if the audit log has it.
    is_logged: bool,
}

/// Marks the response to a change that the audit log has.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedChange;

impl ProblemDetails {
    /// An error with this status. `detail` says in a sentence what is wrong, and what to do.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: visible::cut(&detail.into(), MAX_DETAIL).into_owned(),
            findings: None,
            is_logged: false,
        }
    }

    /// 400 for a request that is malformed.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// 422 for a request that is well-formed, and impossible.
    pub fn impossible(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// 503 for what may be possible later.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// 500 for an error that is a bug.
    pub fn internal(error: impl Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }

    /// The status.
    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Adds the problems of a configuration.
    pub fn with_findings(self, findings: Value) -> Self {
        Self {
            findings: Some(findings),
            ..self
        }
    }

    /// Marks a change that the audit log has.
    pub(super) fn logged(self) -> Self {
        Self {
            is_logged: true,
            ..self
        }
    }

    /// 404 for a name that no `kind` has, such as `policy`. Suggests the nearest of `known`.
    pub(super) fn unknown_name(kind: &str, name: &str, known: &[&str]) -> Self {
        let advice = match nearest::nearest(name, known) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("the configuration names {}", some_of(known)),
        };
        // A path may be as long as a request's head.
        let name = visible::cut(name, 100);
        let detail = format!("there is no {kind} `{name}`: {advice}");
        Self::new(StatusCode::NOT_FOUND, detail)
    }
}

/// The answer to a refused request, without its header fields.
impl From<AdminRefusal> for ProblemDetails {
    fn from(refusal: AdminRefusal) -> Self {
        let (status, detail) = match refusal {
            AdminRefusal::Unauthenticated => (
                StatusCode::UNAUTHORIZED,
                "send a token of admin.tokens: `Authorization: Bearer TOKEN`",
            ),
            AdminRefusal::Throttled => (
                StatusCode::TOO_MANY_REQUESTS,
                "this token is wrong, as were many others from this address: send one of admin.tokens",
            ),
            AdminRefusal::Forbidden => (
                StatusCode::FORBIDDEN,
                "this token may read only: use one of admin.tokens.write",
            ),
            AdminRefusal::CrossOrigin => (
                StatusCode::FORBIDDEN,
                "a page of another origin sent this: the listener serves its own pages only",
            ),
            AdminRefusal::UnknownHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "the listener has another host: use its address, localhost, or a name of \
                 admin.hosts",
            ),
        };
        Self::new(status, detail)
    }
}

/// The first names of a list, and how many more there are.
fn some_of(names: &[&str]) -> String {
    const MOST: usize = 8;
    let shown = nearest::list(&names[..names.len().min(MOST)]);
    match names.len() {
        0 => "none".to_owned(),
        count if count > MOST => format!("{shown} and {} more", count - MOST),
        _ => shown,
    }
}

impl IntoResponse for ProblemDetails {
    fn into_response(self) -> Response {
        let problem = Problem {
            r#type: "about:blank".into(),
            title: reason_phrase(self.status).unwrap_or("Error").into(),
            status: self.status.as_u16(),
            detail: self.detail,
            findings: self.findings,
        };
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let headers = [NO_STORE, (CONTENT_TYPE, MEDIA_TYPE)];
        let mut response = (self.status, headers, body).into_response();
        if self.is_logged {
            response.extensions_mut().insert(LoggedChange);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_is_bounded() {
        let long = "\u{e9}".repeat(2 * MAX_DETAIL);
        let problem = ProblemDetails::new(StatusCode::BAD_REQUEST, long);
        assert_eq!(problem.detail.chars().count(), MAX_DETAIL + 1);
        let whole = "x".repeat(MAX_DETAIL);
        let problem = ProblemDetails::new(StatusCode::BAD_REQUEST, whole.clone());
        assert_eq!(problem.detail, whole);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest_or_some() {
        let detail =
            |name, known: &[&str]| ProblemDetails::unknown_name("policy", name, known).detail;
        assert_eq!(
            detail("per-kei", &["login", "per-key"]),
            "there is no policy `per-kei`: did you mean `per-key`?"
        );
        assert_eq!(
            detail("x", &["login", "per-key"]),
            "there is no policy `x`: the configuration names `login`, `per-key`"
        );
        assert_eq!(
            detail("x", &[]),
            "there is no policy `x`: the configuration names none"
        );
    }
}
