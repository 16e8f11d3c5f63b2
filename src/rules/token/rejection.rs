//! The reasons to reject a token.

use std::time::Duration;

use derive_more::Display;

use crate::clock::text::Span;
use crate::telemetry::metrics::TokenResult;

/// The reason of a rejection. A rejected token counts as missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum TokenRejection {
    /// The token is no JSON Web Token, longer than 8 KiB, or has critical parameters that are
    /// unknown.
    #[display("malformed")]
    Malformed,
    /// No key has its `kid` and algorithm.
    #[display("unknown key: none has its `kid` and algorithm")]
    UnknownKey,
    /// No key has signed it.
    #[display("bad signature")]
    BadSignature,
    /// `iss` is not the wanted one.
    #[display("wrong issuer (`iss`)")]
    WrongIssuer,
    /// `aud` has none of the wanted ones.
    #[display("wrong audience (`aud`)")]
    WrongAudience,
    /// `exp` is so many seconds ago.
    #[display("expired since {}", Span(Duration::from_secs(*_0)))]
    Expired(u64),
    /// `nbf` is so many seconds away.
    #[display("not yet valid: in {}", Span(Duration::from_secs(*_0)))]
    NotYetValid(u64),
}

impl TokenRejection {
    /// Returns the result that metrics count.
    pub fn result(self) -> TokenResult {
        let word: &str = self.into();
        word.parse().expect("each rejection is a result")
    }
}
