//! Decoys look like real answers: each has the status, the fields and the framing that the last real answer of its
//! route had, in the same order.
//!
//! Values are copied of a few fields that no server writes for one client. Identifiers and dates are made anew. Every
//! other field is left out: a value that two clients were sent may still be private to both.

mod fields;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use http_body::Body;

use self::fields::LearnedField;
use crate::http::headers::Headers;
use crate::http::message::Response;
use crate::http::{date, forwarded};
use crate::limiter::{KeyParts, Secret};
use crate::proxy::body::ResponseBody;

/// The most fields that are learned of an answer.
const MAX_FIELDS: usize = 64;
/// Methods that are told apart: those that HTTP defines for content, and all others.
const METHOD_GROUPS: usize = 6;

/// What the decoy of a policy says whatever real answers say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecoySpec {
    /// Its status; that of real answers unless given.
    pub status: Option<StatusCode>,
    /// Whose content type it has.
    pub content_type: DecoyContentType,
}

/// Whose content type a decoy has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecoyContentType {
    /// That of real answers.
    #[default]
    Learned,
    /// The one that the configuration says.
    Configured,
}

/// What is known of the real answers of a route: the last one for each method, on all workers together.
#[derive(Debug)]
pub(crate) struct LearnedResponses {
    profiles: [ArcSwapOption<ResponseProfile>; METHOD_GROUPS],
    secret: Secret,
    identifiers_made: AtomicU64,
    origin: ResponseOrigin,
}

/// Where real answers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseOrigin {
    /// Servers: this proxy adds Via to what they say.
    Servers,
    /// The built-in one.
    Echo,
}

/// A real answer.
#[derive(Debug)]
struct ResponseProfile {
    status: StatusCode,
    framing: Framing,
    fields: Vec<(HeaderName, LearnedField)>,
}

/// Whether the length of a body is known before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length,
    Streamed,
}

/// A decoy without the fields that it has in common with real answers.
pub(crate) struct Decoy<'a> {
    pub spec: &'a DecoySpec,
    /// Fields of the configuration.
    pub headers: &'a [(HeaderName, HeaderValue)],
    /// The type of its body where none is learned.
    pub content_type: HeaderValue,
    pub body: Bytes,
}

impl LearnedResponses {
    pub(crate) fn new(origin: ResponseOrigin) -> Self {
        Self {
            profiles: Default::default(),
            secret: Secret::random(),
            identifiers_made: AtomicU64::new(0),
            origin,
        }
    }

    /// Whether it is about answers from there.
    pub(crate) fn has_origin(&self, origin: ResponseOrigin) -> bool {
        self.origin == origin
    }

    /// Learns from a real answer, if it is a success with all that it has to say.
    pub(crate) fn learn(&self, method: &Method, answer: &Response<ResponseBody>) {
        let is_whole = answer.status() != StatusCode::PARTIAL_CONTENT && method != Method::HEAD;
        if !answer.status().is_success() || !is_whole {
            return;
        }
        let place = &self.profiles[method_group(method)];
        if place
            .load()
            .as_ref()
            .is_some_and(|known| known.matches(answer))
        {
            return;
        }
        let profile = ResponseProfile::of(answer, |value| self.make_identifier(value));
        place.store(Some(Arc::new(profile)));
    }

    /// Makes `response` the decoy for a request.
    pub(crate) fn write_decoy(
        &self,
        decoy: Decoy<'_>,
        method: &Method,
        response: &mut Response<ResponseBody>,
    ) {
        let known = self.profiles[method_group(method)].load();
        let others = || self.profiles.iter().find_map(|place| place.load_full());
        let profile = known.clone().or_else(others);
        let profile = profile.as_deref();
        *response.status_mut() = decoy.status(profile);
        *response.headers_mut() = self.fields(&decoy, profile);
        *response.body_mut() = match profile.map(|profile| profile.framing) {
            Some(Framing::Streamed) => ResponseBody::streamed(decoy.body),
            Some(Framing::Length) | None => ResponseBody::own(decoy.body),
        };
    }

    fn fields(&self, decoy: &Decoy<'_>, profile: Option<&ResponseProfile>) -> Headers {
        let learned = profile.map_or(&[][..], |profile| &profile.fields);
        let mut headers = Headers::with_capacity(learned.len() + decoy.headers.len() + 1);
        let own = |name: &HeaderName| decoy.headers.iter().find(|(own, _)| own == name);
        for (name, learned) in learned {
            if let Some((name, value)) = own(name) {
                headers.insert_missing(name, value.clone());
                continue;
            }
            match learned {
                LearnedField::Copied(value) => headers.append(name, value.clone()),
                LearnedField::Identifier(like) => headers.append(name, self.make_identifier(like)),
                LearnedField::ContentType(value) => {
                    headers.append(name, decoy.content_type(value).clone());
                }
                LearnedField::Date => {
                    let now = date::with_now(HeaderValue::from_bytes);
                    if let Ok(now) = now {
                        headers.append(name, now);
                    }
                }
                LearnedField::Length => headers.append(name, decoy.body.len() as u64),
                LearnedField::Omitted => {}
            }
        }
        for (name, value) in decoy.headers {
            headers.insert_missing(name, value.clone());
        }
        let is_typed = profile.is_none()
            || !decoy.body.is_empty()
            || decoy.spec.content_type == DecoyContentType::Configured;
        if is_typed {
            headers.insert_missing(header::CONTENT_TYPE, decoy.content_type.clone());
        }
        if profile.is_none() && self.origin == ResponseOrigin::Servers {
            let (name, value) = forwarded::via(http::Version::HTTP_11);
            headers.append(name, value);
        }
        headers
    }

    /// An identifier that looks like this one: letters for letters, digits for digits.
    fn make_identifier(&self, like: &HeaderValue) -> HeaderValue {
        let mut random = 0_u64;
        let is_hex = like
            .as_bytes()
            .iter()
            .all(|byte| !byte.is_ascii_alphanumeric() || byte.is_ascii_hexdigit());
        let made_up = like.as_bytes().iter().enumerate().map(|(place, &byte)| {
            if place % 8 == 0 {
                let mut hasher = self.secret.hasher();
                hasher.part(
                    3,
                    &self.identifiers_made.fetch_add(1, Relaxed).to_be_bytes(),
                );
                random = hasher.finish().bits();
            }
            let number = (random >> (place % 8 * 8)) as u8;
            let letters = if is_hex { 6 } else { 26 };
            match byte {
                b'0'..=b'9' => b'0' + number % 10,
                b'a'..=b'z' => b'a' + number % letters,
                b'A'..=b'Z' => b'A' + number % letters,
                other => other,
            }
        });
        let made_up: Vec<u8> = made_up.collect();
        HeaderValue::from_bytes(&made_up).unwrap_or_else(|_| HeaderValue::from_static("0"))
    }
}

impl ResponseProfile {
    fn of(answer: &Response<ResponseBody>, make_up: impl Fn(&HeaderValue) -> HeaderValue) -> Self {
        let fields = answer.headers().iter().take(MAX_FIELDS);
        let fields = fields.map(|(name, value)| {
            let learned = match LearnedField::of(name, value) {
                LearnedField::Identifier(value) => LearnedField::Identifier(make_up(&value)),
                learned => learned,
            };
            (name.clone(), learned)
        });
        ResponseProfile {
            status: answer.status(),
            framing: Framing::of(answer),
            fields: fields.collect(),
        }
    }

    /// Whether nothing can be learned from this answer.
    fn matches(&self, answer: &Response<ResponseBody>) -> bool {
        let count = answer.headers().len().min(MAX_FIELDS);
        let mut fields = self.fields.iter().zip(answer.headers().iter());
        (self.status, self.framing, self.fields.len())
            == (answer.status(), Framing::of(answer), count)
            && fields.all(|((known, learned), (name, value))| {
                known == name && learned.matches(name, value)
            })
    }
}

impl Framing {
    fn of(answer: &Response<ResponseBody>) -> Self {
        match answer.body().size_hint().exact() {
            Some(_) => Self::Length,
            None => Self::Streamed,
        }
    }
}

impl Decoy<'_> {
    /// The status of real answers has to suit the body.
    fn status(&self, profile: Option<&ResponseProfile>) -> StatusCode {
        let learned = profile.map(|profile| profile.status).filter(|status| {
            let bodiless = [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT];
            self.body.is_empty() || !bodiless.contains(status)
        });
        self.spec.status.or(learned).unwrap_or(StatusCode::OK)
    }

    fn content_type<'v>(&'v self, learned: &'v HeaderValue) -> &'v HeaderValue {
        match self.spec.content_type {
            DecoyContentType::Configured => &self.content_type,
            DecoyContentType::Learned => learned,
        }
    }
}

/// Where answers to requests of this method are.
fn method_group(method: &Method) -> usize {
    match *method {
        Method::GET | Method::HEAD => 0,
        Method::POST => 1,
        Method::PUT => 2,
        Method::PATCH => 3,
        Method::DELETE => 4,
        _ => METHOD_GROUPS - 1,
    }
}

#[cfg(test)]
mod tests;
