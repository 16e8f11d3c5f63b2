//! Decoys imitate the last real response of their route: status, fields in their order, and
//! framing.
//!
//! A decoy copies values of a few fields that no server writes for one client. It has new
//! identifiers and dates. It leaves out all other fields: a value sent to two clients may still be
//! private to both.

mod fields;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

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

/// Most fields of a response that a profile has.
const MAX_FIELDS: usize = 64;
/// Most recent response times that are kept.
const RECENT: usize = 16;
/// The longest time that a decoy takes for the sake of real responses.
const MAX_RESPONSE_TIME: Duration = Duration::from_secs(30);
/// Methods with their own profile: those that HTTP defines for content; all others share one.
const METHOD_GROUPS: usize = 6;

/// The configured part of a policy's decoys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecoySpec {
    /// The status; `None` for the status of real responses.
    pub status: Option<StatusCode>,
    /// Its content type is the configured one, not that of real responses.
    pub has_content_type: bool,
}

/// Profiles of a route's real responses: the last one for each method, of all workers.
#[derive(Debug)]
pub(crate) struct LearnedResponses {
    profiles: [ArcSwapOption<ResponseProfile>; METHOD_GROUPS],
    times: [ResponseTimes; METHOD_GROUPS],
    secret: Secret,
    identifiers_made: AtomicU64,
    pub(crate) origin: LearnedOrigin,
}

/// The times that the last responses took.
#[derive(Debug, Default)]
struct ResponseTimes {
    /// In microseconds.
    recent: [AtomicU32; RECENT],
    noted: AtomicU32,
    used: AtomicU32,
}

/// Author of real responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LearnedOrigin {
    /// Upstream servers: the proxy adds Via to their responses.
    Servers,
    /// A built-in upstream.
    BuiltIn,
}

/// The status, framing and fields that decoys imitate.
#[derive(Debug)]
struct ResponseProfile {
    status: StatusCode,
    is_streamed: bool,
    fields: Vec<(HeaderName, LearnedField)>,
}

/// The parts of a decoy that are not learned.
pub(crate) struct Decoy<'a> {
    pub spec: &'a DecoySpec,
    /// Configured fields.
    pub headers: &'a [(HeaderName, HeaderValue)],
    /// The type of the body, if none is learned.
    pub content_type: HeaderValue,
    pub body: Bytes,
}

impl LearnedResponses {
    pub(crate) fn new(origin: LearnedOrigin) -> Self {
        Self {
            profiles: Default::default(),
            times: Default::default(),
            secret: Secret::random(),
            identifiers_made: AtomicU64::new(0),
            origin,
        }
    }

    /// Learns from a response that took this time, unless it is a failure, a part, or without its
    /// body.
    pub(crate) fn learn(&self, method: &Method, response: &Response<ResponseBody>, took: Duration) {
        let is_whole = response.status() != StatusCode::PARTIAL_CONTENT && method != Method::HEAD;
        if !response.status().is_success() || !is_whole {
            return;
        }
        self.times[method_group(method)].note(took);
        let profile = &self.profiles[method_group(method)];
        if profile
            .load()
            .as_ref()
            .is_some_and(|known| known.matches(response))
        {
            return;
        }
        let learned = ResponseProfile::of(response, |value| self.make_identifier(value));
        profile.store(Some(Arc::new(learned)));
    }

    /// The time from request to response that one of the last real responses took, each in turn;
    /// zero before the first.
    pub(crate) fn response_time(&self, method: &Method) -> Duration {
        let own = self.times[method_group(method)].next();
        let time = own.or_else(|| self.times.iter().find_map(ResponseTimes::next));
        time.unwrap_or_default()
    }

    /// Returns false if the last real response to such a method wasn't one of gRPC.
    pub(crate) fn may_be_grpc(&self, method: &Method) -> bool {
        let is_grpc = |(_, field): &(HeaderName, LearnedField)| matches!(field, LearnedField::ContentType(value) if value.as_bytes().starts_with(b"application/grpc"));
        let known = self.profiles[method_group(method)].load();
        known
            .as_ref()
            .is_none_or(|profile| profile.fields.iter().any(is_grpc))
    }

    /// Makes `response` a decoy.
    pub(crate) fn write_decoy(
        &self,
        decoy: Decoy<'_>,
        method: &Method,
        response: &mut Response<ResponseBody>,
    ) {
        let known = self.profiles[method_group(method)].load();
        let others = || self.profiles.iter().find_map(ArcSwapOption::load_full);
        let profile = known.clone().or_else(others);
        let profile = profile.as_deref();
        *response.status_mut() = decoy.status(profile);
        *response.headers_mut() = self.fields(&decoy, profile);
        let is_streamed = profile.is_some_and(|profile| profile.is_streamed);
        *response.body_mut() = if is_streamed {
            ResponseBody::streamed(decoy.body)
        } else {
            ResponseBody::own(decoy.body)
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
                LearnedField::ContentType(_) if decoy.spec.has_content_type => {
                    headers.append(name, decoy.content_type.clone());
                }
                LearnedField::ContentType(value) => headers.append(name, value.clone()),
                LearnedField::Date => {
                    headers.append(name, date::with_now(HeaderValue::clone));
                }
                LearnedField::Length => headers.append(name, decoy.body.len() as u64),
                LearnedField::Omitted => {}
            }
        }
        for (name, value) in decoy.headers {
            headers.insert_missing(name, value.clone());
        }
        let is_typed = profile.is_none() || !decoy.body.is_empty() || decoy.spec.has_content_type;
        if is_typed {
            headers.insert_missing(header::CONTENT_TYPE, decoy.content_type.clone());
        }
        if profile.is_none() && self.origin == LearnedOrigin::Servers {
            let (name, value) = forwarded::via(http::Version::HTTP_11);
            headers.append(name, value);
        }
        headers
    }

    /// Makes a new identifier of the same shape: letters for letters, digits for digits.
    fn make_identifier(&self, like: &HeaderValue) -> HeaderValue {
        let mut random = 0_u64;
        let is_hex = like
            .as_bytes()
            .iter()
            .all(|byte| !byte.is_ascii_alphanumeric() || byte.is_ascii_hexdigit());
        let identifier = like.as_bytes().iter().enumerate().map(|(place, &byte)| {
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
        let identifier: Vec<u8> = identifier.collect();
        HeaderValue::from_bytes(&identifier).unwrap_or_else(|_| HeaderValue::from_static("0"))
    }
}

impl ResponseTimes {
    fn note(&self, took: Duration) {
        let place = self.noted.fetch_add(1, Relaxed) as usize % RECENT;
        let micros = took.min(MAX_RESPONSE_TIME).as_micros() as u32;
        self.recent[place].store(micros, Relaxed);
    }

    fn next(&self) -> Option<Duration> {
        let known = (self.noted.load(Relaxed) as usize).min(RECENT);
        let place = (self.used.fetch_add(1, Relaxed) as usize).checked_rem(known)?;
        let micros = self.recent[place].load(Relaxed);
        Some(Duration::from_micros(micros.into()))
    }
}

impl ResponseProfile {
    fn of(
        response: &Response<ResponseBody>,
        make_up: impl Fn(&HeaderValue) -> HeaderValue,
    ) -> Self {
        let fields = response.headers().iter().take(MAX_FIELDS);
        let fields = fields.map(|(name, value)| {
            let learned = match LearnedField::of(name, value) {
                LearnedField::Identifier(value) => LearnedField::Identifier(make_up(&value)),
                learned => learned,
            };
            (name.clone(), learned)
        });
        ResponseProfile {
            status: response.status(),
            is_streamed: is_streamed(response),
            fields: fields.collect(),
        }
    }

    /// The response would give an equal profile.
    fn matches(&self, response: &Response<ResponseBody>) -> bool {
        let count = response.headers().len().min(MAX_FIELDS);
        let mut fields = self.fields.iter().zip(response.headers().iter());
        (self.status, self.is_streamed, self.fields.len())
            == (response.status(), is_streamed(response), count)
            && fields.all(|((known, learned), (name, value))| {
                known == name && learned.matches(name, value)
            })
    }
}

/// The length of its body isn't known.
fn is_streamed(response: &Response<ResponseBody>) -> bool {
    response.body().size_hint().exact().is_none()
}

impl Decoy<'_> {
    /// The status of real responses has to suit the body.
    fn status(&self, profile: Option<&ResponseProfile>) -> StatusCode {
        let learned = profile.map(|profile| profile.status).filter(|status| {
            let bodiless = [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT];
            self.body.is_empty() || !bodiless.contains(status)
        });
        self.spec.status.or(learned).unwrap_or(StatusCode::OK)
    }
}

/// The index of the method's profile.
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
