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
    spec: RejectSpec,
    detail: String,
    /// One for each form that may be asked for.
    prepared: Vec<Prepared>,
}

#[derive(Debug)]
struct Prepared {
    format: Format,
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

/// Room for the fields that say where the client stands, in one style.
const MORE_FIELDS: usize = 3;

impl Rejection {
    /// Writes the answers of the policy `name`, whose quota reads `quota`, such as `100 per 1m`.
    pub fn new(spec: &RejectSpec, name: &str, quota: &str) -> Self {
        let detail = format!("The limit \"{name}\" of {quota} is used up.");
        let prepare = |&format| Prepared {
            format,
            fields: spec.fields(format),
            body: spec.write(format, &[name], &detail),
        };
        Rejection {
            prepared: spec.formats.all().iter().map(prepare).collect(),
            spec: spec.clone(),
            detail,
        }
    }

    /// The refusal in the form that a request with these header fields prefers. `violated` are the names of all
    /// policies that refuse.
    pub(super) fn response(
        &self,
        request: &HeaderMap,
        violated: &[&str],
    ) -> Response<ResponseBody> {
        let chosen = self.spec.formats.choose(request.get(header::ACCEPT));
        let prepared = self.prepared.iter().find(|one| one.format == chosen);
        let prepared = prepared.expect("there is one for every form that can be chosen");
        let mut headers = HeaderMap::with_capacity(prepared.fields.len() + MORE_FIELDS);
        for (name, value) in &prepared.fields {
            headers.append(name, value.clone());
        }
        let body = match violated.len() {
            0 | 1 => prepared.body.clone(),
            _ => self.spec.write(chosen, violated, &self.detail),
        };
        let mut response = Response::new(ResponseBody::own(body));
        *response.status_mut() = self.spec.status;
        *response.headers_mut() = headers;
        response
    }
}

impl RejectSpec {
    fn write(&self, format: Format, violated: &[&str], detail: &str) -> Bytes {
        if let Some(body) = &self.body {
            return Bytes::from(body.clone());
        }
        let title = self.status.canonical_reason().unwrap_or("Refused");
        Bytes::from(match format {
            Format::Problem | Format::Json => {
                let mut problem = problem(self.status, title, detail);
                problem["violated-policies"] = serde_json::json!(violated);
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
        })
    }

    /// The header fields of an answer in this form.
    fn fields(&self, format: Format) -> Vec<(HeaderName, HeaderValue)> {
        let mut fields = self.headers.clone();
        let has = |fields: &[(HeaderName, _)], name| fields.iter().any(|(field, _)| field == name);
        if let Some(url) = &self.docs_url
            && let Ok(link) = HeaderValue::try_from(format!("<{url}>; rel=\"help\""))
        {
            fields.push((header::LINK, link));
        }
        // RFC 6585 section 4: a 429 must not be stored by a cache.
        if !has(&fields, header::CACHE_CONTROL) {
            fields.push((header::CACHE_CONTROL, HeaderValue::from_static("no-store")));
        }
        if !has(&fields, header::CONTENT_TYPE) {
            fields.push((header::CONTENT_TYPE, format.media_type()));
        }
        if self.formats == Formats::Accept {
            fields.push((header::VARY, HeaderValue::from_static("accept")));
        }
        fields
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
