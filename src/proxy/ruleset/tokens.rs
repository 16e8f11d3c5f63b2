//! The token verifier of a ruleset, with counters and log lines.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::rules::{Token, TokenCheck, TokenRejection, Verifier};
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::{JwtMetrics, TokenResult};
use crate::telemetry::registry::Registry;

/// Verifies the tokens of requests, and counts the results.
#[derive(Debug)]
pub struct TokenVerifier {
    pub(crate) verifier: Verifier,
    metrics: JwtMetrics,
    /// One throttle for each kind of rejection, so that frequent garbage does not hide an unknown
    /// key.
    rejection_logs: [LogThrottle; LOGGED_REJECTIONS.len()],
}

/// Rejections that may come from a wrong configuration or a new key. Others are everyday and not
/// logged.
const LOGGED_REJECTIONS: [TokenRejection; 4] = [
    TokenRejection::UnknownKey,
    TokenRejection::BadSignature,
    TokenRejection::WrongIssuer,
    TokenRejection::WrongAudience,
];

/// Pauses between log lines about rejections of one kind.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl TokenVerifier {
    pub(crate) fn new(verifier: Verifier, registry: &Registry) -> Self {
        Self {
            verifier,
            metrics: JwtMetrics::new(registry),
            rejection_logs: [const { LogThrottle::with_backoff(SHORTEST_PAUSE, LONGEST_PAUSE) };
                LOGGED_REJECTIONS.len()],
        }
    }

    /// Counts and logs the result for a request's token.
    pub(crate) fn record(&self, checked: &TokenCheck, now: Timestamp) {
        self.metrics.signatures.add(checked.signatures);
        match &checked.token {
            Ok(None) => {}
            Ok(Some(Token::Verified(_))) => self.metrics.tokens.record(TokenResult::Verified),
            Ok(Some(Token::Several)) => self.metrics.tokens.record(TokenResult::Several),
            Err(why) => {
                self.metrics.tokens.record(why.result());
                let place = LOGGED_REJECTIONS.iter().position(|logged| logged == why);
                if let Some(omitted) = place.and_then(|at| self.rejection_logs[at].admit(now)) {
                    tracing::warn!(reason = %why, omitted, "a token was rejected: the request counts as without one");
                }
            }
        }
    }
}
