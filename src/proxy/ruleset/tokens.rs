//! The verifier of a ruleset, and what is counted and logged of the tokens of requests.

use std::cell::OnceCell;

use crate::clock::Timestamp;
use crate::proxy::failure_log::FailureLog;
use crate::rules::{CheckedToken, Token, TokenRejection, Verifier};
use crate::telemetry::metrics::JwtMetrics;
use crate::telemetry::registry::Registry;

/// What verifies the tokens of requests.
#[derive(Debug)]
pub struct Tokens {
    pub(crate) verifier: Verifier,
    metrics: JwtMetrics,
    /// One for each kind of rejection that is logged, so that garbage hides no exchanged key.
    complaints: [FailureLog; LOGGED.len()],
}

/// Rejections that may mean that the configuration is wrong, or a key was exchanged. Others are everyday.
const LOGGED: [TokenRejection; 4] = [
    TokenRejection::UnknownKey,
    TokenRejection::BadSignature,
    TokenRejection::WrongIssuer,
    TokenRejection::WrongAudience,
];

impl Tokens {
    pub(crate) fn new(verifier: Verifier, registry: &Registry) -> Self {
        Self {
            verifier,
            metrics: JwtMetrics::new(registry),
            complaints: Default::default(),
        }
    }

    /// Counts and logs what became of a request's token, the first time that it is known.
    pub(crate) fn note(&self, checked: &OnceCell<CheckedToken>, was_known: bool, now: Timestamp) {
        let Some(checked) = checked.get().filter(|_| !was_known) else {
            return;
        };
        self.metrics.signatures(checked.signatures);
        match &checked.token {
            Ok(None) => {}
            Ok(Some(Token::Verified(_))) => self.metrics.count("verified"),
            Ok(Some(Token::Several)) => self.metrics.count("several"),
            Err(why) => {
                self.metrics.count(why.name());
                let place = LOGGED.iter().position(|logged| logged == why);
                if let Some(place) = place {
                    self.complaints[place].report_token(now, *why);
                }
            }
        }
    }
}
