//! Responses to requests that failed with an [`Error`], and the shared body formats.

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderValue};

use super::error::Error;
use super::grpc;
use super::negotiate::{ResponseFormat, ResponseFormats};
use super::template::escape_html;
use crate::http::headers::Headers;
use crate::http::message::Response;
use crate::proxy::body::ResponseBody;

/// Builds the response to a request with these header fields.
pub(crate) fn error_response(
    error: &Error,
    accept: Option<&[u8]>,
    request: &Headers,
) -> Response<ResponseBody> {
    let status = error.status();
    if let Some(content_type) = grpc::response_content_type(request) {
        return grpc::trailers_only(content_type, error.grpc_status(), error.detail());
    }
    let title = status.canonical_reason().unwrap_or("Error");
    let format = ResponseFormats::Accept.choose(accept);
    let body = match format {
        ResponseFormat::Problem | ResponseFormat::Json | ResponseFormat::OpenAi => {
            format!("{}\n", problem_details(status, title, error.detail()))
        }
        ResponseFormat::Plain => format!("{title}. {}\n", error.detail()),
        ResponseFormat::Html => html_page(status, title, error.detail(), None),
    };
    let mut response = Response::new(ResponseBody::own(Bytes::new()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, format.media_type());
    if let Some(after) = error.retry_after() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    *response.body_mut() = ResponseBody::own(Bytes::from(body));
    response
}

/// Builds problem details (RFC 9457).
pub(crate) fn problem_details(status: StatusCode, title: &str, detail: &str) -> serde_json::Value {
    serde_json::json!({
        "type": "about:blank",
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    })
}

/// Builds an HTML page.
pub(crate) fn html_page(
    status: StatusCode,
    title: &str,
    detail: &str,
    docs: Option<&str>,
) -> String {
    let link = docs.map_or_else(String::new, |url| {
        let url = escape_html(url);
        format!("<p><a rel=\"help\" href=\"{url}\">{url}</a></p>\n")
    });
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <title>{code} {title}</title>\n<h1>{title}</h1>\n<p>{detail}</p>\n{link}</html>\n",
        code = status.as_u16(),
        detail = escape_html(detail),
    )
}
