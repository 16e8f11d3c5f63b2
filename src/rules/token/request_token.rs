//! The token of one request, verified when a limit first asks for a claim, and once.

use std::cell::OnceCell;

use super::{Token, TokenRejection, Verifier};
use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::rules::Lookup;

/// What became of a request's token.
#[derive(Clone, Debug)]
pub struct TokenCheck {
    /// The token, if there is one.
    pub token: Result<Option<Token>, TokenRejection>,
    /// Signatures that were checked for it.
    pub signatures: u64,
}

/// A request's token, which nobody may have looked at yet.
#[derive(Clone, Copy, Debug)]
pub struct RequestToken<'a> {
    verifier: &'a Verifier,
    headers: &'a Headers,
    now: Timestamp,
    checked: &'a OnceCell<TokenCheck>,
}

impl<'a> RequestToken<'a> {
    /// The token in these fields, which has to be good at `now`. What becomes of it is kept in `checked`, for
    /// as long as the request lasts.
    pub fn new(
        verifier: &'a Verifier,
        headers: &'a Headers,
        now: Timestamp,
        checked: &'a OnceCell<TokenCheck>,
    ) -> Self {
        Self {
            verifier,
            headers,
            now,
            checked,
        }
    }

    /// What it says under this name: a text, a number or a truth value.
    pub(in crate::rules) fn claim(&self, name: &str) -> Lookup<&'a str> {
        let check = || self.verifier.check(self.headers, self.now);
        match &self.checked.get_or_init(check).token {
            Ok(Some(token)) => token.claim(name),
            Ok(None) | Err(_) => Lookup::Missing,
        }
    }

    /// Whether it is known what it says, or can be without a signature.
    pub fn is_known_without_signature(&self) -> bool {
        if self.checked.get().is_some() {
            return true;
        }
        let recalled = self.verifier.check_cached(self.headers, self.now);
        recalled.is_some_and(|checked| self.checked.set(checked).is_ok())
    }
}
