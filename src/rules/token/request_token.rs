//! The token of one request, verified once, when a limit first reads a claim.

use std::cell::OnceCell;

use super::{Token, TokenRejection, Verifier};
use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::rules::Lookup;

/// The result of checking a request's token.
#[derive(Clone, Debug)]
pub struct TokenCheck {
    /// The token, if there is one.
    pub token: Result<Option<Token>, TokenRejection>,
    /// Signatures that were checked for it.
    pub signatures: u64,
}

/// A request's token, which is checked on first use.
#[derive(Clone, Copy, Debug)]
pub struct RequestToken<'a> {
    /// Checks it.
    pub verifier: &'a Verifier,
    /// The fields of the request.
    pub headers: &'a Headers,
    /// The instant at which it has to be valid.
    pub now: Timestamp,
    /// Keeps the result while the request lasts.
    pub checked: &'a OnceCell<TokenCheck>,
}

impl<'a> RequestToken<'a> {
    /// Returns the claim of this name: a text, a number or a boolean, as text.
    pub(in crate::rules) fn claim(&self, name: &str) -> Lookup<&'a str> {
        let check = || self.verifier.check(self.headers, self.now);
        match &self.checked.get_or_init(check).token {
            Ok(Some(token)) => token.claim(name),
            Ok(None) | Err(_) => Lookup::Missing,
        }
    }

    /// Returns true if the claims are known, or can be without checking a signature.
    pub fn is_known_without_signature(&self) -> bool {
        if self.checked.get().is_some() {
            return true;
        }
        let recalled = self.verifier.check_cached(self.headers, self.now);
        recalled.is_some_and(|checked| self.checked.set(checked).is_ok())
    }
}
