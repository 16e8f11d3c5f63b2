//! Responses of policies to clients beyond their quota. Bodies without values of the request are
//! written with the ruleset.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};
use readable::money::amount;

use super::decoy::{Decoy, DecoySpec, LearnedResponses};
use super::error_pages::ErrorPages;
use super::grpc::{self, GrpcStatus};
use super::negotiate::{ResponseFormat, ResponseFormats};
use super::respond::{html_page, problem_details};
use super::template::{Escape, Placeholder, Template};
use crate::http::headers::Headers;
use crate::http::message::{Response, reason_phrase};
use crate::limiter::Decision;
use crate::proxy::body::ResponseBody;
use crate::rules::{Head, KeyFault};

/// Rejections of a policy, as configured.
#[derive(Clone, Debug)]
pub struct RejectSpec {
    /// 400 to 599.
    pub status: StatusCode,
    /// The status for requests that have no bucket for their key.
    pub keyless_status: StatusCode,
    /// Formats of the body.
    pub formats: ResponseFormats,
    /// A body in place of the default one; its type is that of `headers`, else the format's.
    pub body: Option<Template>,
    /// Bodies by status, without a `body`.
    pub pages: Arc<ErrorPages>,
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
    pub(crate) spec: RejectSpec,
    /// Name and quota; empty if clients are to learn of neither.
    name: Box<str>,
    quota: Box<str>,
    used_up: Detail,
    banned: Detail,
    /// The header fields for each format that a client may accept.
    fields: Vec<Vec<(HeaderName, HeaderValue)>>,
}

/// Why requests are refused, and the default bodies for those that one policy refuses.
#[derive(Debug)]
struct Detail {
    text: String,
    /// One for each format that a client may accept.
    bodies: Vec<Bytes>,
}

/// A refused request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedRequest<'a> {
    pub head: &'a Head<'a>,
    /// The route's name; empty without a route.
    pub route: &'a str,
    /// The names of all policies that refuse it.
    pub violated: &'a [&'a str],
    /// The quota, if the request states its limit.
    pub quota: Option<&'a str>,
    pub reason: RefusalReason<'a>,
    /// Seconds until it is admitted, if ever.
    pub retry_after: Option<u64>,
}

/// Why a policy refuses a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RefusalReason<'a> {
    UsedUp,
    /// Units remain, but fewer than these, which the request needs.
    TooFew(&'a Decision, u32),
    Banned,
    /// It has no bucket for the request.
    Key(KeyFault<'a>),
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
                used_up(name, quota),
                format!("This client is banned by the limit \"{name}\"."),
            ),
            None => (
                &[][..],
                "A limit is used up.".to_owned(),
                "This client is banned by a limit.".to_owned(),
            ),
        };
        let formats = spec.formats.all();
        let detail = |text: String| Detail {
            bodies: formats
                .iter()
                .map(|&format| spec.write(format, spec.status, violated, &text))
                .collect(),
            text,
        };
        Rejection {
            fields: formats.iter().map(|&format| spec.fields(format)).collect(),
            used_up: detail(used_up),
            banned: detail(banned),
            spec: spec.clone(),
            name: name.into(),
            quota: quota.into(),
        }
    }

    /// The sentence about the refusal.
    fn text(&self, refused: &RefusedRequest<'_>) -> Cow<'_, str> {
        let name = &self.name;
        Cow::Owned(match refused.reason {
            RefusalReason::UsedUp => match self.stated_quota(refused) {
                Some(quota) => used_up(name, quota),
                None => return Cow::Borrowed(&self.used_up.text),
            },
            RefusalReason::Banned => return Cow::Borrowed(&self.banned.text),
            RefusalReason::TooFew(..) if name.is_empty() => {
                "A limit has too few units left for this request.".to_owned()
            }
            RefusalReason::TooFew(decision, needed) => {
                let quota = refused.quota.unwrap_or(&self.quota);
                let amount = |units| amount(units, quota.starts_with('$'));
                let (left, all) = (amount(decision.remaining), amount(decision.capacity));
                let needed = amount(needed.into());
                format!(
                    "The limit \"{name}\" of {quota} has {left} of {all} left, and this request \
                     needs {needed}."
                )
            }
            RefusalReason::Key(_) if name.is_empty() => {
                "A limit needs one value that the request lacks, or has several of.".to_owned()
            }
            RefusalReason::Key(KeyFault::Missing(part)) => {
                format!("The limit \"{name}\" needs {part}, which this request lacks.")
            }
            RefusalReason::Key(KeyFault::Several(part)) => {
                format!("The limit \"{name}\" needs one {part}, and this request has several.")
            }
        })
    }

    /// The bodies for a request that only this policy refuses; `None` if they are not prepared.
    fn bodies(&self, refused: &RefusedRequest<'_>) -> Option<&[Bytes]> {
        match refused.reason {
            RefusalReason::UsedUp => {
                let is_fixed = self.stated_quota(refused).is_none();
                is_fixed.then_some(&self.used_up.bodies)
            }
            RefusalReason::Banned => Some(&self.banned.bodies),
            RefusalReason::TooFew(..) | RefusalReason::Key(_) => None,
        }
    }

    /// The quota that the request states, if clients may learn of it.
    fn stated_quota<'a>(&self, refused: &RefusedRequest<'a>) -> Option<&'a str> {
        refused.quota.filter(|_| !self.name.is_empty())
    }

    /// The status of refusals for this reason.
    fn status_for(&self, reason: RefusalReason<'_>) -> StatusCode {
        match reason {
            RefusalReason::Key(_) => self.spec.keyless_status,
            _ => self.spec.status,
        }
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
        let grpc = grpc::response_content_type(head.headers);
        let grpc = grpc.filter(|_| learned.may_be_grpc(head.method));
        let (chosen, _, mut body) = self.prepared(refused);
        if grpc.is_some() {
            body.clear();
        }
        let decoy = Decoy {
            spec,
            headers: &self.spec.headers,
            content_type: self.spec.formats.all()[chosen].media_type(),
            body,
        };
        learned.write_decoy(decoy, head.method, response);
        if let Some(content_type) = grpc {
            grpc::succeed(content_type, response);
        }
    }

    /// Makes `response` the rejection in the format that the client prefers. Returns true for a
    /// client of gRPC.
    pub(crate) fn write(
        &self,
        refused: &RefusedRequest<'_>,
        response: &mut Response<ResponseBody>,
    ) -> bool {
        let grpc = grpc::response_content_type(refused.head.headers);
        let is_grpc = grpc.is_some();
        match grpc {
            Some(content_type) => {
                let status = match refused.reason {
                    RefusalReason::Key(_) => GrpcStatus::InvalidArgument,
                    _ => GrpcStatus::ResourceExhausted,
                };
                *response = grpc::trailers_only(content_type, status, &self.text(refused));
                for (name, value) in &self.spec.headers {
                    response.headers_mut().insert_missing(name, value.clone());
                }
            }
            None => self.write_http(refused, response),
        }
        is_grpc
    }

    fn write_http(&self, refused: &RefusedRequest<'_>, response: &mut Response<ResponseBody>) {
        let (chosen, format, body) = self.prepared(refused);
        let fields = &self.fields[chosen];
        let mut headers = Headers::with_capacity(fields.len() + FIELDS_PER_STYLE);
        for (name, value) in fields {
            headers.append(name, value.clone());
        }
        if format != self.spec.formats.all()[chosen] {
            headers.insert(header::CONTENT_TYPE, format.media_type());
        }
        *response.headers_mut() = headers;
        *response.body_mut() = ResponseBody::own(body);
        *response.status_mut() = self.status_for(refused.reason);
    }

    /// The place of the format that the client prefers, and the body with its own format.
    fn prepared(&self, refused: &RefusedRequest<'_>) -> (usize, ResponseFormat, Bytes) {
        let accept = refused.head.headers.get(header::ACCEPT);
        let chosen = self.spec.formats.choose(accept);
        let mut formats = self.spec.formats.all().iter();
        let place = formats.position(|one| *one == chosen);
        let place = place.expect("there is one for every format");
        let is_other = |name: &&str| **name != *self.name;
        let is_alone = !refused.violated.iter().any(is_other);
        let status = self.status_for(refused.reason);
        let template = match &self.spec.body {
            Some(template) => Some((chosen, template)),
            None => self.spec.pages.find(status, chosen),
        };
        let body = match (template, self.bodies(refused)) {
            (Some((format, template)), _) => {
                let body = self.render(template, format, refused);
                return (place, format, Bytes::from(body));
            }
            (None, Some(bodies)) if is_alone => bodies[place].clone(),
            (None, _) => {
                let (violated, text) = (refused.violated, self.text(refused));
                self.spec.write(chosen, status, violated, &text)
            }
        };
        (place, chosen, body)
    }

    fn render<'a>(
        &'a self,
        template: &Template,
        format: ResponseFormat,
        refused: &RefusedRequest<'a>,
    ) -> String {
        let status = self.status_for(refused.reason);
        let escape = self.spec.escape(format);
        template.render(
            escape,
            Some(status),
            refused.retry_after,
            |placeholder| match placeholder {
                Placeholder::Policies => refused.violated.join(", ").into(),
                Placeholder::Policy => Cow::Borrowed(&*self.name),
                Placeholder::Quota => self.stated_quota(refused).unwrap_or(&self.quota).into(),
                Placeholder::Title => title(status).into(),
                Placeholder::Detail => self.text(refused),
                Placeholder::DocsUrl => self.spec.docs_url.as_deref().unwrap_or_default().into(),
                of_request => of_request.of_request(refused.head, refused.route),
            },
        )
    }
}

fn used_up(name: &str, quota: &str) -> String {
    format!("The limit \"{name}\" of {quota} is used up.")
}

fn title(status: StatusCode) -> &'static str {
    reason_phrase(status).unwrap_or("Refused")
}

impl RejectSpec {
    /// Escaping of values in the configured body.
    fn escape(&self, format: ResponseFormat) -> Escape {
        let mut headers = self.headers.iter();
        let own = headers.find(|(name, _)| *name == header::CONTENT_TYPE);
        match own.and_then(|(_, value)| value.to_str().ok()) {
            Some(media_type) => Escape::of_media_type(media_type),
            None => Escape::of(format),
        }
    }

    fn write(
        &self,
        format: ResponseFormat,
        status: StatusCode,
        violated: &[&str],
        detail: &str,
    ) -> Bytes {
        let title = title(status);
        Bytes::from(match format {
            ResponseFormat::Problem | ResponseFormat::Json => {
                let mut problem = problem_details(status, title, detail);
                problem["violated-policies"] = serde_json::json!(violated);
                if let Some(url) = &self.docs_url {
                    problem["docs"] = serde_json::json!(url);
                }
                format!("{problem}\n")
            }
            ResponseFormat::OpenAi => {
                let (kind, code) = match status {
                    StatusCode::BAD_REQUEST => ("invalid_request_error", "invalid_key"),
                    _ => ("rate_limit_error", "rate_limit_exceeded"),
                };
                let error = serde_json::json!({
                    "error": { "message": detail, "type": kind, "param": null, "code": code },
                });
                format!("{error}\n")
            }
            ResponseFormat::Anthropic => {
                let kind = match status {
                    StatusCode::BAD_REQUEST => "invalid_request_error",
                    _ => "rate_limit_error",
                };
                let error = serde_json::json!({ "type": kind, "message": detail });
                format!(
                    "{}\n",
                    serde_json::json!({ "type": "error", "error": error })
                )
            }
            ResponseFormat::Plain => match &self.docs_url {
                Some(url) => format!("{title}. {detail}\nSee {url}\n"),
                None => format!("{title}. {detail}\n"),
            },
            ResponseFormat::Html => html_page(status, title, detail, self.docs_url.as_deref()),
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
