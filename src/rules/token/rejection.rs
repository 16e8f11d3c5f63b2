//! The reasons to reject a token.

use std::fmt;
use std::time::Duration;

use crate::clock::text::Span;
use crate::telemetry::metrics::TokenResult;

/// The reason of a rejection. A rejected token counts as missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRejection {
    /// The token is no JSON Web Token, longer than 8 KiB, or has critical parameters that are
    /// unknown.
    Malformed,
    /// No key has its `kid` and algorithm.
    UnknownKey,
    /// No key has signed it.
    BadSignature,
    /// `iss` is not the wanted one.
    WrongIssuer,
    /// `aud` has none of the wanted ones.
    WrongAudience,
    /// `exp` is so many seconds ago.
    Expired(u64),
    /// `nbf` is so many seconds away.
    NotYetValid(u64),
}

impl TokenRejection {
    /// Returns the result that metrics count.
    pub fn result(self) -> TokenResult {
        match self {
            Self::Malformed => TokenResult::Malformed,
            Self::UnknownKey => TokenResult::UnknownKey,
            Self::BadSignature => TokenResult::BadSignature,
            Self::WrongIssuer => TokenResult::WrongIssuer,
            Self::WrongAudience => TokenResult::WrongAudience,
            Self::Expired(_) => TokenResult::Expired,
            Self::NotYetValid(_) => TokenResult::NotYetValid,
        }
    }
}

impl fmt::Display for TokenRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |number| Span(Duration::from_secs(number));
        match *self {
            Self::Malformed => f.write_str("malformed"),
            Self::UnknownKey => f.write_str("unknown key: none has its `kid` and algorithm"),
            Self::BadSignature => f.write_str("bad signature"),
            Self::WrongIssuer => f.write_str("wrong issuer (`iss`)"),
            Self::WrongAudience => f.write_str("wrong audience (`aud`)"),
            Self::Expired(ago) => write!(f, "expired since {}", seconds(ago)),
            Self::NotYetValid(ahead) => write!(f, "not yet valid: in {}", seconds(ahead)),
        }
    }
}
