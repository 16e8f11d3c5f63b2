//! Tokens that operators send: their form, and their digests.

use super::secret_value::{self, SecretForm, SecretValue};
use crate::config::compile::Compiler;
use crate::config::{Findings, Located};
use crate::http::token_digest::TokenDigest;

/// The shortest token, in characters: too long to guess.
const MIN_LENGTH: usize = 16;
/// The longest token, in characters.
const MAX_LENGTH: usize = 512;

const FORM: SecretForm<TokenDigest> = SecretForm {
    parse,
    help: "`openssl rand -hex 32` prints a good one",
};

/// Checks a token that is written in the configuration.
pub(in crate::config) fn check(token: &Located<SecretValue>, findings: &Findings<'_>) {
    secret_value::check(token, &FORM, findings);
}

/// Checks the length and the characters of a token (RFC 6750 section 2.1). The error never has its
/// text.
fn parse(token: &str) -> Result<TokenDigest, String> {
    let bare = token.trim_end_matches('=');
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~+/".contains(c);
    if !bare.chars().all(allowed) {
        return Err("a token has letters, digits and `-._~+/` only".to_owned());
    }
    match token.len() {
        MIN_LENGTH..=MAX_LENGTH => Ok(TokenDigest::of(token)),
        length => Err(format!(
            "a token has {MIN_LENGTH} to {MAX_LENGTH} characters, and this has {length}"
        )),
    }
}

impl Compiler<'_> {
    /// The digest of a token; one in a file is read.
    pub(in crate::config) fn token_digest(&mut self, token: &SecretValue) -> Option<TokenDigest> {
        self.secret(token, &FORM)
    }
}
