//! JSON in requests and responses of the API.

use std::error::Error;
use std::ops::Deref;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, LengthLimitError};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::problem_details::{NO_STORE, ProblemDetails};
pub use crate::clock::text::Rfc3339;
use crate::http::body::RequestBodyError;

/// The time for the whole body of a request. It ends before the connection does, so that the client
/// is told.
const BODY_TIMEOUT: Duration = Duration::from_secs(4);

/// A body of JSON: of a request, or of a response.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([NO_STORE, (CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => ProblemDetails::internal(error).into_response(),
        }
    }
}

/// Refuses other media types, bodies beyond their bound or slower than their time, and any JSON
/// that is no `T`.
impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = ProblemDetails;

    async fn from_request(request: Request, state: &S) -> Result<Self, ProblemDetails> {
        let JsonText(text) = JsonText::from_request(request, state).await?;
        serde_json::from_slice(&text)
            .map(Json)
            .map_err(|error| ProblemDetails::malformed(error.to_string()))
    }
}

/// The body of a request that says that it is a JSON object, unread.
#[derive(Debug)]
pub(super) struct JsonText(pub(super) Bytes);

/// Refuses other media types, other values than objects, and bodies beyond their bound or slower than
/// their time.
impl<S: Sync> FromRequest<S> for JsonText {
    type Rejection = ProblemDetails;

    async fn from_request(request: Request, _: &S) -> Result<Self, ProblemDetails> {
        if !is_json(request.headers()) {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            let detail = "send JSON, with `Content-Type: application/json`";
            return Err(ProblemDetails::new(status, detail));
        }
        let body = timeout(BODY_TIMEOUT, request.into_body().collect()).await;
        let body = body.map_err(|_| {
            let detail = "the whole body did not arrive within 4 s";
            ProblemDetails::new(StatusCode::REQUEST_TIMEOUT, detail)
        })?;
        let text = body.map_err(broken)?.to_bytes();
        if is_object(&text) {
            Ok(Self(text))
        } else {
            let detail = "the body isn't a JSON object, as in {\"policy\": \"login\"}";
            Err(ProblemDetails::malformed(detail))
        }
    }
}

/// Returns true for a text that is an object if it is JSON. `serde` would also read a list, as the
/// values of all fields in their order.
fn is_object(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"{")
}

fn is_json(headers: &HeaderMap) -> bool {
    let field = headers
        .get(CONTENT_TYPE)
        .and_then(|field| field.to_str().ok());
    let media_type = field.and_then(|field| field.split(';').next());
    media_type.is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("application/json"))
}

/// The answer to a body that did not arrive whole.
fn broken(error: <Body as http_body::Body>::Error) -> ProblemDetails {
    let mut cause: Option<&dyn Error> = Some(&error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            let detail = "the body is larger than this endpoint takes";
            return ProblemDetails::new(StatusCode::PAYLOAD_TOO_LARGE, detail);
        }
        if let Some(error @ RequestBodyError::Quiet(_)) = error.downcast_ref() {
            return ProblemDetails::new(StatusCode::REQUEST_TIMEOUT, error.to_string());
        }
        cause = error.source();
    }
    ProblemDetails::malformed("the body did not arrive whole")
}

/// Segments of a path, percent-decoded.
#[derive(Debug)]
pub(super) struct Names<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Names<T> {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemDetails> {
        let names = Path::from_request_parts(parts, state).await;
        names
            .map(|Path(names)| Self(names))
            .map_err(|rejection| ProblemDetails::malformed(rejection.body_text()))
    }
}

/// Why, for the audit log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(inline, with = "String", extend("maxLength" = MAX_REASON))]
pub struct Reason(String);

/// The longest reason, in characters.
const MAX_REASON: usize = 200;

impl TryFrom<String> for Reason {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.chars().nth(MAX_REASON) {
            None => Ok(Self(text)),
            Some(_) => Err("`reason` has 200 characters at most"),
        }
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}
