//! Errors of the API (RFC 9457).

use std::fmt::Display;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use super::NO_STORE;
use crate::nearest;

/// The media type of errors.
pub(super) const MEDIA_TYPE: &str = "application/problem+json";

/// The longest `detail`, in characters: errors of JSON repeat names of the request.
const MAX_DETAIL: usize = 1_000;

/// An error of the API.
#[derive(Debug)]
pub(super) struct ProblemDetails {
    status: StatusCode,
    detail: String,
    /// True if the audit log has it.
    is_logged: bool,
}

/// Marks the response to a change that the audit log has.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedChange;

#[derive(Serialize)]
struct Members<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

impl ProblemDetails {
    /// An error with this status. `detail` says in a sentence what is wrong, and what to do.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if let Some((end, _)) = detail.char_indices().nth(MAX_DETAIL) {
            detail.truncate(end);
            detail += "..";
        }
        Self {
            status,
            detail,
            is_logged: false,
        }
    }

    /// The status.
    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The same, of a change that the audit log has.
    pub(super) fn logged(self) -> Self {
        Self {
            is_logged: true,
            ..self
        }
    }

    /// 500 for an error that is a bug.
    pub(super) fn internal(error: impl Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }

    /// 404 for a name that no `kind` has, such as `policy`. Suggests the nearest of `known`.
    pub(super) fn unknown_name(kind: &str, name: &str, known: &[&str]) -> Self {
        let advice = match nearest::nearest(name, known) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("the configuration names {}", some_of(known)),
        };
        // A path may be as long as a request's head.
        let name: String = name.chars().take(100).collect();
        let detail = format!("there is no {kind} `{name}`: {advice}");
        Self::new(StatusCode::NOT_FOUND, detail)
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
        let members = Members {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
        };
        let body = serde_json::to_vec(&members).unwrap_or_default();
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
        assert_eq!(problem.detail.chars().count(), MAX_DETAIL + 2);
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
