//! Every response of the proxy's own: refusals by a limit, and errors. Their bodies are written when
//! the ruleset is compiled.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::body::ResponseBody;
use super::error::Error;
use super::negotiate::{Format, Formats};

/// What a policy answers when its quota is spent.
#[derive(Clone, Debug)]
pub struct RejectSpec {
    /// 429 unless configured; 400 to 599.
    pub status: StatusCode,
    /// In which form.
    pub formats: Formats,
    /// A body instead of the prepared ones, and its content type unless `headers` has one.
    pub body: Option<String>,
    /// More header fields.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Where people can read about the limits: in the body, and as a `Link` with `rel="help"`.
    pub docs_url: Option<String>,
}

/// A refusal, ready to be sent.
#[derive(Debug)]
pub struct Rejection {
    status: StatusCode,
    headers: HeaderMap,
    formats: Formats,
    /// A content for each form that may be asked for.
    contents: Vec<(Format, Content)>,
}

#[derive(Debug)]
struct Content {
    media_type: HeaderValue,
    body: Bytes,
}

impl Rejection {
    /// Writes the answers of the policy `name`, whose quota reads `quota`, such as `100 per 1m`.
    pub fn new(spec: &RejectSpec, name: &str, quota: &str) -> Self {
        let detail = format!("The limit \"{name}\" of {quota} is used up.");
        let mut headers: HeaderMap = spec.headers.iter().cloned().collect();
        if let Some(url) = &spec.docs_url
            && let Ok(link) = HeaderValue::try_from(format!("<{url}>; rel=\"help\""))
        {
            headers.append(header::LINK, link);
        }
        // RFC 6585 section 4: a 429 must not be stored by a cache.
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
        let media_type = headers.remove(header::CONTENT_TYPE);
        let content = |format: Format| Content {
            media_type: media_type.clone().unwrap_or_else(|| format.media_type()),
            body: match &spec.body {
                Some(body) => Bytes::from(body.clone()),
                None => Bytes::from(spec.write(format, name, &detail)),
            },
        };
        Rejection {
            status: spec.status,
            headers,
            formats: spec.formats,
            contents: spec
                .formats
                .all()
                .iter()
                .map(|&format| (format, content(format)))
                .collect(),
        }
    }

    /// The refusal in the form that a request with these header fields prefers.
    pub(super) fn response(&self, request: &HeaderMap) -> Response<ResponseBody> {
        let chosen = self.formats.choose(request.get(header::ACCEPT));
        let content = self.contents.iter().find(|(format, _)| *format == chosen);
        let (_, content) = content.expect("there is a content for every form that can be chosen");
        let mut response = Response::new(ResponseBody::own(content.body.clone()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.clone_from(&self.headers);
        headers.insert(header::CONTENT_TYPE, content.media_type.clone());
        headers.insert(
            header::CONTENT_LENGTH,
            HeaderValue::from(content.body.len()),
        );
        if self.formats == Formats::Accept {
            headers.append(header::VARY, HeaderValue::from_name(header::ACCEPT));
        }
        response
    }
}

impl RejectSpec {
    fn write(&self, format: Format, name: &str, detail: &str) -> String {
        let title = self.status.canonical_reason().unwrap_or("Refused");
        match format {
            Format::Problem | Format::Json => {
                let mut problem = problem(self.status, title, detail);
                problem["violated-policies"] = serde_json::json!([name]);
                if let Some(url) = &self.docs_url {
                    problem["docs"] = serde_json::json!(url);
                }
                format!("{problem}\n")
            }
            Format::Plain => match &self.docs_url {
                Some(url) => format!("{title}. {detail}\nSee {url}\n"),
                None => format!("{title}. {detail}\n"),
            },
            Format::Html => html(self.status, title, detail, self.docs_url.as_deref()),
        }
    }
}

/// The answer to a request that met an error.
pub(super) fn error(error: &Error, accept: Option<&HeaderValue>) -> Response<ResponseBody> {
    let status = error.status();
    let title = status.canonical_reason().unwrap_or("Error");
    let format = Formats::Accept.choose(accept);
    let body = match format {
        Format::Problem | Format::Json => {
            format!("{}\n", problem(status, title, error.detail()))
        }
        Format::Plain => format!("{title}. {}\n", error.detail()),
        Format::Html => html(status, title, error.detail(), None),
    };
    let mut response = Response::new(ResponseBody::own(Bytes::new()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, format.media_type());
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    *response.body_mut() = ResponseBody::own(Bytes::from(body));
    response
}

/// Problem details, RFC 9457.
fn problem(status: StatusCode, title: &str, detail: &str) -> serde_json::Value {
    serde_json::json!({
        "type": "about:blank",
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    })
}

fn html(status: StatusCode, title: &str, detail: &str, docs: Option<&str>) -> String {
    let link = docs.map_or_else(String::new, |url| {
        let url = escape(url);
        format!("<p><a rel=\"help\" href=\"{url}\">{url}</a></p>\n")
    });
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <title>{code} {title}</title>\n<h1>{title}</h1>\n<p>{detail}</p>\n{link}</html>\n",
        code = status.as_u16(),
        detail = escape(detail),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
