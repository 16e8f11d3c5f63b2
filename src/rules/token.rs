//! Who a request says it is from, where somebody whom the configuration trusts has signed it: claims of JSON Web
//! Tokens (RFC 7519), and no claim of a token that was not verified.
//!
//! A key has one algorithm, and verifies tokens of that alone, whatever they say of themselves (RFC 8725 section
//! 3.1). Where keys are read from is the business of `config`.

mod cache;
mod key;

use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName};
use jsonwebtoken::{Algorithm, Header, Validation};
use serde_json::{Map, Value};

use self::cache::Cache;
pub use self::key::{KeyError, TokenAlgorithm, TokenKey};
use super::{Found, credentials};
use crate::clock::Timestamp;
use crate::http_ext::headers::Headers;

/// The longest token that is looked at, in bytes.
const LONGEST: usize = 8 * 1024;
/// How many keys are tried on a token that does not say by which it was signed, or that a key without a name may
/// have signed.
const TRIES: usize = 8;

/// What tokens have to be.
#[derive(Clone, Debug)]
pub struct TokenSpec {
    /// The field that has them; in `authorization` after `Bearer`.
    pub header: HeaderName,
    /// By whom they are signed.
    pub keys: Vec<TokenKey>,
    /// What their `iss` has to be, if anything.
    pub issuer: Option<String>,
    /// One of which their `aud` has to have, if there are any.
    pub audiences: Vec<String>,
    /// How far the clock of whoever signs them may be from ours, in seconds.
    pub leeway: u64,
    /// The claims that anybody asks for; the others are not kept.
    pub claims: Vec<String>,
}

/// Verifies tokens, each once as long as it is remembered.
#[derive(Debug)]
pub struct Verifier {
    spec: TokenSpec,
    cache: Cache,
}

/// What a request has of a token.
#[derive(Clone, Debug)]
pub enum Token {
    /// One that is verified.
    Verified(Arc<Claims>),
    /// Several different ones, of which nobody knows which the upstream will use.
    Several,
}

/// What a verified token says.
#[derive(Debug)]
pub struct Claims {
    values: Vec<(Box<str>, Box<str>)>,
    /// In seconds since the Unix epoch.
    not_before: u64,
    expires: u64,
}

impl Token {
    /// What it says under this name: a text, a number or a truth value.
    pub(super) fn claim(&self, name: &str) -> Found<&str> {
        match self {
            Self::Several => Found::Several,
            Self::Verified(claims) => {
                let found = claims.values.iter().find(|(known, _)| **known == *name);
                found.map_or(Found::Missing, |(_, value)| Found::One(&**value))
            }
        }
    }
}

impl Verifier {
    /// Verifies tokens as `spec` says.
    pub fn new(spec: TokenSpec) -> Self {
        Self {
            spec,
            cache: Cache::new(),
        }
    }

    /// The token of a request, if it has one that is good at `now`.
    ///
    /// A token that is remembered costs a look-up; any other at most as many verifications as there are keys that
    /// may have signed it, and never more than eight.
    pub fn token(&self, headers: &Headers, now: Timestamp) -> Option<Token> {
        let value = match Found::among(headers.get_all(&self.spec.header)) {
            Found::One(value) => value,
            Found::Missing => return None,
            Found::Several => return Some(Token::Several),
        };
        let token = match credentials::after(value, "bearer") {
            Some(token) => token,
            None if self.spec.header == AUTHORIZATION => return None,
            None => value,
        };
        if token.len() > LONGEST {
            return None;
        }
        let claims = self.cache.get(token, || self.verify(token))?;
        let seconds = now.as_micros() / 1_000_000;
        let good = claims.are_good(seconds, self.spec.leeway);
        good.then_some(Token::Verified(claims))
    }

    /// The claims of a token that one of the keys has signed, whatever the time.
    fn verify(&self, token: &[u8]) -> Option<Claims> {
        let header = jsonwebtoken::decode_header(token).ok()?;
        // What it says must be understood, and what we do not (RFC 7515 section 4.1.11).
        if header.crit.is_some() {
            return None;
        }
        let mut keys = self
            .spec
            .keys
            .iter()
            .filter(|key| key.may_have_signed(&header));
        let claims = keys
            .by_ref()
            .take(TRIES)
            .find_map(|key| signed_claims(token, key, &header))?;
        let meant = self.is_from_issuer(&claims) && self.is_for_us(&claims);
        meant.then(|| self.kept(&claims)).flatten()
    }

    fn is_from_issuer(&self, claims: &Map<String, Value>) -> bool {
        let wanted = self.spec.issuer.as_deref();
        wanted.is_none_or(|wanted| claims.get("iss").and_then(Value::as_str) == Some(wanted))
    }

    fn is_for_us(&self, claims: &Map<String, Value>) -> bool {
        let ours = |value: &Value| {
            let mut audiences = self.spec.audiences.iter();
            audiences.any(|audience| value.as_str() == Some(audience))
        };
        self.spec.audiences.is_empty()
            || match claims.get("aud") {
                Some(Value::Array(several)) => several.iter().any(ours),
                Some(one) => ours(one),
                None => false,
            }
    }

    /// What is kept of the claims; `None` where they say no proper time.
    fn kept(&self, claims: &Map<String, Value>) -> Option<Claims> {
        let values = self.spec.claims.iter().filter_map(|name| {
            let value = text(claims.get(name)?)?;
            Some((name.as_str().into(), value.into_boxed_str()))
        });
        Some(Claims {
            values: values.collect(),
            not_before: seconds(claims.get("nbf"), 0)?,
            expires: seconds(claims.get("exp"), u64::MAX)?,
        })
    }
}

impl Claims {
    /// Whether they hold at this second.
    fn are_good(&self, now: u64, leeway: u64) -> bool {
        now < self.expires.saturating_add(leeway) && self.not_before <= now.saturating_add(leeway)
    }
}

/// The claims of a token, if this key has signed it. Times are looked at elsewhere: the library would ask the
/// system's clock.
fn signed_claims(token: &[u8], key: &TokenKey, header: &Header) -> Option<Map<String, Value>> {
    let mut validation = Validation::new(header.alg);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let decoded = jsonwebtoken::decode(token, key.decoding(), &validation);
    decoded.ok().map(|token| token.claims)
}

/// A claim that can tell clients apart; `None` for one that is empty, or made of several values.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A time (RFC 7519: a number of seconds, also with a fraction), rounded down; `default` where there is none, and
/// `None` where it is something else.
fn seconds(value: Option<&Value>, default: u64) -> Option<u64> {
    let Some(value) = value else {
        return Some(default);
    };
    let fraction = || value.as_f64().filter(|seconds| *seconds >= 0.0);
    value
        .as_u64()
        .or_else(|| fraction().map(|seconds| seconds as u64))
}

impl From<TokenAlgorithm> for Algorithm {
    fn from(algorithm: TokenAlgorithm) -> Self {
        match algorithm {
            TokenAlgorithm::Hs256 => Self::HS256,
            TokenAlgorithm::Rs256 => Self::RS256,
            TokenAlgorithm::Es256 => Self::ES256,
            TokenAlgorithm::EdDsa => Self::EdDSA,
        }
    }
}

#[cfg(test)]
mod tests;
