//! Responses of policies to clients beyond their quota. Bodies without values of the request are
//! written with the ruleset.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};

use super::decoy::{Decoy, DecoySpec, LearnedResponses};
use super::grpc;
use super::negotiate::{ResponseFormat, ResponseFormats};
use super::respond::{html_page, problem_details};
use super::template::{Escape, Placeholder, PlaceholderValue, Template};
use crate::http::headers::Headers;
use crate::http::message::Response;
use crate::proxy::body::ResponseBody;
use crate::rules::Head;

/// Rejections of a policy, as configured.
#[derive(Clone, Debug)]
pub struct RejectSpec {
    /// 400 to 599.
    pub status: StatusCode,
    /// Formats of the body.
    pub formats: ResponseFormats,
    /// A body in place of the default one; its type is that of `headers`, else the format's.
    pub body: Option<Template>,
    /// Additional header fields.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Documentation of the limits: in the body, and as a `Link` with `rel="help"`.
    pub docs_url: Option<String>,
    /// The decoy, if the policy's action is one.
    pub decoy: Option<DecoySpec>,
}

/// Rejections of a policy, ready to be sent.
#[derive(Debug)]
pub struct Rejection {
    spec: RejectSpec,
    /// Name and quota; empty if clients are to learn of neither.
    name: Box<str>,
    quota: Box<str>,
    used_up: Detail,
    banned: Detail,
    /// One for each format that a client may accept.
    prepared: Vec<PreparedResponse>,
}

/// Why requests are refused, and the default bodies for those that one policy refuses.
#[derive(Debug)]
struct Detail {
    text: String,
    /// One for each format that a client may accept.
    bodies: Vec<Bytes>,
}

#[derive(Debug)]
struct PreparedResponse {
    format: ResponseFormat,
    fields: Vec<(HeaderName, HeaderValue)>,
}

/// A refused request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedRequest<'a> {
    pub head: &'a Head<'a>,
    /// The route's name; empty without a route.
    pub route: &'a str,
    /// The names of all policies that refuse it.
    pub violated: &'a [&'a str],
    /// True if the policy bans the key; false if the quota is used up.
    pub is_banned: bool,
    /// Seconds until it is admitted, if ever.
    pub retry_after: Option<u64>,
}

/// Rate-limit fields of one style, for which the list has room.
const FIELDS_PER_STYLE: usize = 3;

impl Rejection {
    /// Writes the bodies of a policy. `announced` has its name and its quota, a text such as
    /// `100 per 1m`; `None` if clients are to learn of neither.
    pub fn new(spec: &RejectSpec, announced: Option<(&str, &str)>) -> Self {
        let (name, quota) = announced.unwrap_or_default();
        let (violated, used_up, banned) = match announced {
            Some(_) => (
                std::slice::from_ref(&name),
                format!("The limit \"{name}\" of {quota} is used up."),
                format!("The limit \"{name}\" bans this client for now."),
            ),
            None => (
                &[][..],
                "A limit is used up.".to_owned(),
                "A limit bans this client for now.".to_owned(),
            ),
        };
        let formats = spec.formats.all();
        let detail = |text: String| Detail {
            bodies: formats
                .iter()
                .map(|&format| spec.write(format, violated, &text))
                .collect(),
            text,
        };
        let prepare = |&format| PreparedResponse {
            format,
            fields: spec.fields(format),
        };
        Rejection {
            prepared: formats.iter().map(prepare).collect(),
            used_up: detail(used_up),
            banned: detail(banned),
            spec: spec.clone(),
            name: name.into(),
            quota: quota.into(),
        }
    }

    fn detail(&self, refused: &RefusedRequest<'_>) -> &Detail {
        match refused.is_banned {
            true => &self.banned,
            false => &self.used_up,
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.spec.status
    }

    /// Makes `response` a decoy, for clients of all kinds.
    pub(crate) fn write_decoy(
        &self,
        refused: &RefusedRequest<'_>,
        learned: Option<&LearnedResponses>,
        response: &mut Response<ResponseBody>,
    ) {
        let (Some(spec), Some(learned)) = (&self.spec.decoy, learned) else {
            return self.write_http(refused, response);
        };
        let head = refused.head;
        let (prepared, body) = self.prepared(refused);
        let decoy = Decoy {
            spec,
            headers: &self.spec.headers,
            content_type: prepared.format.media_type(),
            body,
        };
        learned.write_decoy(decoy, head.method, response);
    }

    /// Makes `response` the rejection in the format that the client prefers.
    pub(crate) fn write(
        &self,
        refused: &RefusedRequest<'_>,
        response: &mut Response<ResponseBody>,
    ) {
        match grpc::response_content_type(refused.head.headers) {
            Some(content_type) => {
                *response = self.grpc_response(content_type, &self.detail(refused).text);
            }
            None => self.write_http(refused, response),
        }
    }

    fn grpc_response(&self, content_type: HeaderValue, detail: &str) -> Response<ResponseBody> {
        let status = grpc::GrpcStatus::ResourceExhausted;
        let mut response = grpc::trailers_only(content_type, status, detail);
        for (name, value) in &self.spec.headers {
            response.headers_mut().insert_missing(name, value.clone());
        }
        response
    }

    fn write_http(&self, refused: &RefusedRequest<'_>, response: &mut Response<ResponseBody>) {
        let (prepared, body) = self.prepared(refused);
        let mut headers = Headers::with_capacity(prepared.fields.len() + FIELDS_PER_STYLE);
        for (name, value) in &prepared.fields {
            headers.append(name, value.clone());
        }
        *response.headers_mut() = headers;
        *response.body_mut() = ResponseBody::own(body);
        *response.status_mut() = self.spec.status;
    }

    /// The response in the format that the client prefers, and its body.
    fn prepared(&self, refused: &RefusedRequest<'_>) -> (&PreparedResponse, Bytes) {
        let accept = refused.head.headers.get(header::ACCEPT);
        let chosen = self.spec.formats.choose(accept);
        let detail = self.detail(refused);
        let mut all = self.prepared.iter().zip(&detail.bodies);
        let found = all.find(|(one, _)| one.format == chosen);
        let (prepared, prepared_body) = found.expect("there is one for every format");
        let is_other = |name: &&str| **name != *self.name;
        let body = match &self.spec.body {
            Some(template) => Bytes::from(self.render(template, chosen, refused)),
            None if refused.violated.iter().any(is_other) => {
                self.spec.write(chosen, refused.violated, &detail.text)
            }
            None => prepared_body.clone(),
        };
        (prepared, body)
    }

    fn render<'a>(
        &'a self,
        template: &Template,
        format: ResponseFormat,
        refused: &RefusedRequest<'a>,
    ) -> String {
        template.render(self.spec.escape(format), |placeholder| {
            let head = refused.head;
            PlaceholderValue::Text(match placeholder {
                Placeholder::RetryAfter => return PlaceholderValue::Number(refused.retry_after),
                Placeholder::Status => {
                    return PlaceholderValue::Number(Some(self.spec.status.as_u16().into()));
                }
                Placeholder::Policies => refused.violated.join(", ").into(),
                Placeholder::ClientIp => head.client_ip.to_string().into(),
                Placeholder::Policy => Cow::Borrowed(&*self.name),
                Placeholder::Quota => Cow::Borrowed(&*self.quota),
                Placeholder::Title => Cow::Borrowed(self.spec.title()),
                Placeholder::Detail => Cow::Borrowed(&self.detail(refused).text),
                Placeholder::DocsUrl => {
                    Cow::Borrowed(self.spec.docs_url.as_deref().unwrap_or_default())
                }
                Placeholder::Method => Cow::Borrowed(head.method.as_str()),
                Placeholder::Host => Cow::Borrowed(head.host),
                Placeholder::Path => Cow::Borrowed(head.path),
                Placeholder::Route => Cow::Borrowed(refused.route),
            })
        })
    }
}

impl RejectSpec {
    fn title(&self) -> &'static str {
        self.status.canonical_reason().unwrap_or("Refused")
    }

    /// Escaping of values in the configured body.
    fn escape(&self, format: ResponseFormat) -> Escape {
        let mut headers = self.headers.iter();
        let own = headers.find(|(name, _)| *name == header::CONTENT_TYPE);
        match own.and_then(|(_, value)| value.to_str().ok()) {
            Some(media_type) => Escape::of_media_type(media_type),
            None => Escape::of(format),
        }
    }

    fn write(&self, format: ResponseFormat, violated: &[&str], detail: &str) -> Bytes {
        let title = self.title();
        Bytes::from(match format {
            ResponseFormat::Problem | ResponseFormat::Json => {
                let mut problem = problem_details(self.status, title, detail);
                problem["violated-policies"] = serde_json::json!(violated);
                if let Some(url) = &self.docs_url {
                    problem["docs"] = serde_json::json!(url);
                }
                format!("{problem}\n")
            }
            ResponseFormat::Plain => match &self.docs_url {
                Some(url) => format!("{title}. {detail}\nSee {url}\n"),
                None => format!("{title}. {detail}\n"),
            },
            ResponseFormat::Html => html_page(self.status, title, detail, self.docs_url.as_deref()),
        })
    }

    /// The header fields of a rejection in this format.
    fn fields(&self, format: ResponseFormat) -> Vec<(HeaderName, HeaderValue)> {
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
        if self.formats == ResponseFormats::Accept {
            fields.push((header::VARY, HeaderValue::from_static("accept")));
        }
        fields
    }
}
