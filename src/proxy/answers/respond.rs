//! Responses to requests that failed with an [`Error`], and the shared body formats.

use std::borrow::Cow;
use std::net::IpAddr;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderValue};

use super::error::Error;
use super::error_pages::ErrorPages;
use super::grpc;
use super::negotiate::{ResponseFormat, ResponseFormats};
use super::template::{Escape, Placeholder, Template, escape_html};
use crate::http::body::RequestBody;
use crate::http::host;
use crate::http::message::{Request, Response, reason_phrase};
use crate::http::path::{self, EncodedSlashes};
use crate::proxy::body::{ResponseBody, empty_response};
use crate::rules::Head;

/// A request that gets an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedRequest<'a> {
    pub request: &'a Request<RequestBody>,
    /// The head as the client sent it, if the request was changed for the upstream.
    pub kept: Option<&'a KeptHead>,
    pub client_ip: IpAddr,
    /// The route's name; empty without a route.
    pub route: &'a str,
    /// Another proxy may have asked, and takes every 200 for a yes. Errors of gRPC have it, too.
    pub is_question: bool,
}

/// Parts of a head as the client sent it, for the proxy's own pages.
#[derive(Debug)]
pub(crate) struct KeptHead {
    pub accept: Option<Box<[u8]>>,
    pub host: Box<str>,
    /// The path as it is matched; that of the client if it has no normal form.
    pub path: Box<str>,
}

impl KeptHead {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let received = request.uri().path();
        let path = path::normalise(received, EncodedSlashes::Keep);
        let path = path.unwrap_or(Cow::Borrowed(received));
        KeptHead {
            accept: request.headers().get(header::ACCEPT).map(Box::from),
            host: host::effective(request)
                .as_deref()
                .unwrap_or_default()
                .into(),
            path: path::comparable(&path).into(),
        }
    }
}

/// Builds the response to a request.
pub(crate) fn error_response(
    error: &Error,
    failed: FailedRequest<'_>,
    pages: &ErrorPages,
) -> Response<ResponseBody> {
    let status = error.status();
    let content_type = grpc::response_content_type(failed.request.headers());
    if let Some(content_type) = content_type.filter(|_| !failed.is_question) {
        return grpc::trailers_only(content_type, error.grpc_status(), error.detail());
    }
    let title = reason_phrase(status).unwrap_or("Error");
    let accept = match failed.kept {
        Some(kept) => kept.accept.as_deref(),
        None => failed.request.headers().get(header::ACCEPT),
    };
    let preferred = ResponseFormats::Accept.choose(accept);
    let page = pages.find(status, preferred);
    let format = page.map_or(preferred, |(format, _)| format);
    let body = match (page, format) {
        (Some((_, page)), _) => failed.render(page, format, error),
        (None, ResponseFormat::Plain) => format!("{title}. {}\n", error.detail()),
        (None, ResponseFormat::Html) => html_page(status, title, error.detail(), None),
        (None, _) => format!("{}\n", problem_details(status, title, error.detail())),
    };
    let mut response = empty_response(status);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, format.media_type());
    // Caches may keep 404 and 501 without being asked (RFC 9110 section 15.1).
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    if let Some(after) = error.retry_after() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    if let Error::Denied(denial) = error
        && let Some(challenge) = &denial.challenge
    {
        headers.insert(header::WWW_AUTHENTICATE, challenge.clone());
    }
    *response.body_mut() = ResponseBody::own(Bytes::from(body));
    response
}

impl FailedRequest<'_> {
    /// Writes a page. Values of limits are empty.
    fn render(&self, page: &Template, format: ResponseFormat, error: &Error) -> String {
        let (request, status) = (self.request, error.status());
        let own;
        let kept = match self.kept {
            Some(kept) => kept,
            None => {
                own = KeptHead::of(request);
                &own
            }
        };
        let head = Head::new(request, &kept.host, &kept.path, self.client_ip);
        let after = error.retry_after().map(|after| after.as_secs());
        page.render(
            Escape::of(format),
            Some(status),
            after,
            |placeholder| match placeholder {
                Placeholder::Title => reason_phrase(status).unwrap_or("Error").into(),
                Placeholder::Detail => error.detail().into(),
                other => other.of_request(&head, self.route),
            },
        )
    }
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
