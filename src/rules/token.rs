//! Claims of JSON Web Tokens (RFC 7519) that a trusted issuer has signed. Claims of unverified
//! tokens are never read.
//!
//! A key has one algorithm, and verifies only tokens of that algorithm, whatever their header says
//! (RFC 8725 section 3.1). `config` reads the keys.

mod cache;
mod key;
mod request_token;
mod rejection;

use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Header, Validation};
use serde_json::{Map, Value};

use self::cache::Cache;
pub use self::key::{KeyError, TokenAlgorithm, TokenKey};
pub use self::rejection::TokenRejection;
pub use self::request_token::{RequestToken, TokenCheck};
use super::{Lookup, credentials};
use crate::clock::Timestamp;
use crate::http::headers::Headers;

/// The longest token that is read, in bytes.
const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// Keys that are tried on a token without a `kid`, or that a key without a name may have signed.
const MAX_KEYS_TRIED: usize = 8;

/// The requirements on tokens.
#[derive(Clone, Debug)]
pub struct TokenSpec {
    /// The field with the token; in `authorization` after `Bearer`.
    pub header: HeaderName,
    /// The keys of the issuers.
    pub keys: Vec<TokenKey>,
    /// The required `iss`, if any.
    pub issuer: Option<String>,
    /// If not empty, `aud` must have one of these.
    pub audiences: Vec<String>,
    /// The tolerated difference to the issuer's clock, in seconds.
    pub leeway: u64,
    /// The claims that limits read; the others are not kept.
    pub claims: Vec<String>,
}

/// Verifies tokens, and caches the results.
#[derive(Debug)]
pub struct Verifier {
    spec: TokenSpec,
    cache: Cache,
}

/// The token of a request.
#[derive(Clone, Debug)]
pub enum Token {
    /// A verified token.
    Verified(Arc<Claims>),
    /// Several different tokens: the upstream may use any of them.
    Several,
}

/// The claims of a verified token.
#[derive(Debug)]
pub struct Claims {
    values: Vec<(Box<str>, Box<str>)>,
    /// In seconds since the Unix epoch.
    not_before: u64,
    expires: u64,
}

impl Token {
    /// Returns the claim of this name: a text, a number or a boolean, as text.
    pub(super) fn claim(&self, name: &str) -> Lookup<&str> {
        match self {
            Self::Several => Lookup::Several,
            Self::Verified(claims) => {
                let found = claims.values.iter().find(|(known, _)| **known == *name);
                found.map_or(Lookup::Missing, |(_, value)| Lookup::One(&**value))
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

    /// The header field that has tokens.
    pub fn header(&self) -> &HeaderName {
        &self.spec.header
    }

    /// Checks the token of a request at `now`.
    ///
    /// A cached token costs a look-up. Another token costs at most one signature if a key has its
    /// `kid`; else one for each key that may have signed it, at most eight.
    pub fn check(&self, headers: &Headers, now: Timestamp) -> TokenCheck {
        let token = match self.token_field(headers) {
            Ok(token) => token,
            Err(token) => {
                return TokenCheck {
                    token,
                    signatures: 0,
                };
            }
        };
        let place = self.cache.slot(token);
        let mut signatures = 0;
        let claims = self.cache.get(&place).unwrap_or_else(|| {
            let verified = self.verify(token, &mut signatures).map(Arc::new);
            self.cache.insert(&place, &verified);
            verified
        });
        let token = claims.and_then(|claims| {
            claims.check(now.as_micros() / 1_000_000, self.spec.leeway)?;
            Ok(Some(Token::Verified(claims)))
        });
        TokenCheck { token, signatures }
    }

    /// Checks the token without a signature; `None` if it needs one.
    fn check_cached(&self, headers: &Headers, now: Timestamp) -> Option<TokenCheck> {
        if let Ok(token) = self.token_field(headers) {
            let _known = self.cache.get(&self.cache.slot(token))?;
        }
        Some(self.check(headers, now))
    }

    /// The text of the only token in the field.
    ///
    /// # Errors
    /// The result without a look at such a text: there is none, or several, or it is too long.
    fn token_field<'h>(
        &'h self,
        headers: &'h Headers,
    ) -> Result<&'h [u8], Result<Option<Token>, TokenRejection>> {
        let value = match Lookup::among(headers.get_all(&self.spec.header)) {
            Lookup::One(value) => value,
            Lookup::Missing => return Err(Ok(None)),
            Lookup::Several => return Err(Ok(Some(Token::Several))),
        };
        match credentials::strip_scheme(value, "bearer") {
            None if self.spec.header == AUTHORIZATION => Err(Ok(None)),
            token => match token.unwrap_or(value) {
                token if token.len() > MAX_TOKEN_BYTES => Err(Err(TokenRejection::Malformed)),
                token => Ok(token),
            },
        }
    }

    /// Returns the claims of a token that one of the keys has signed, whatever the time.
    fn verify(&self, token: &[u8], signatures: &mut u64) -> Result<Claims, TokenRejection> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| TokenRejection::Malformed)?;
        // A token with critical header parameters that we do not know is invalid (RFC 7515 section
        // 4.1.11).
        if header.crit.is_some() {
            return Err(TokenRejection::Malformed);
        }
        let mut why = TokenRejection::UnknownKey;
        for key in self.candidates(&header).take(MAX_KEYS_TRIED) {
            *signatures += 1;
            match signed_claims(token, key, &header) {
                Ok(claims) => return self.accept_claims(&claims),
                Err(rejection) => why = rejection,
            }
        }
        Err(why)
    }

    /// Returns the key with the token's `kid`, or the keys that may have signed it: of its
    /// algorithm, and without a name if the token names one.
    fn candidates<'a>(&'a self, header: &'a Header) -> impl Iterator<Item = &'a TokenKey> {
        let keys = self.spec.keys.iter();
        let mut of_algorithm = keys.filter(|key| key.algorithm == header.alg);
        let kid = header.kid.as_deref();
        let named = kid.and_then(|kid| {
            of_algorithm
                .clone()
                .find(|key| key.id.as_deref() == Some(kid))
        });
        let others = move || of_algorithm.find(|key| kid.is_none() || key.id.is_none());
        let others = std::iter::from_fn(others).take(if named.is_some() { 0 } else { usize::MAX });
        named.into_iter().chain(others)
    }

    fn accept_claims(&self, claims: &Map<String, Value>) -> Result<Claims, TokenRejection> {
        let issuer = claims.get("iss").and_then(Value::as_str);
        if self.spec.issuer.is_some() && self.spec.issuer.as_deref() != issuer {
            return Err(TokenRejection::WrongIssuer);
        }
        if !self.is_for_us(claims) {
            return Err(TokenRejection::WrongAudience);
        }
        self.select_claims(claims).ok_or(TokenRejection::Malformed)
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

    /// Selects the claims that limits read; `None` if a time is malformed.
    fn select_claims(&self, claims: &Map<String, Value>) -> Option<Claims> {
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
    /// Checks that the claims are valid at this second.
    fn check(&self, now: u64, leeway: u64) -> Result<(), TokenRejection> {
        if self.expires.saturating_add(leeway) <= now {
            return Err(TokenRejection::Expired(now - self.expires));
        }
        match self.not_before.checked_sub(now.saturating_add(leeway)) {
            None | Some(0) => Ok(()),
            Some(_) => Err(TokenRejection::NotYetValid(self.not_before - now)),
        }
    }
}

/// Returns the claims of a token that this key has signed. Times are checked elsewhere: the library
/// would read the system's clock.
fn signed_claims(
    token: &[u8],
    key: &TokenKey,
    header: &Header,
) -> Result<Map<String, Value>, TokenRejection> {
    let mut validation = Validation::new(header.alg);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let decoded = jsonwebtoken::decode(token, &key.key, &validation);
    decoded
        .map(|token| token.claims)
        .map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => TokenRejection::BadSignature,
            _ => TokenRejection::Malformed,
        })
}

/// Returns a claim as text; `None` if it is empty or has several values.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Parses a time (RFC 7519: seconds, also with a fraction), rounded down; `default` without one,
/// and `None` for anything else.
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
