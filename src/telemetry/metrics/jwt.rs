//! Tokens of requests: what became of them, and what they cost.

use super::families::{JWT_SIGNATURES, JWT_TOKENS};
use crate::telemetry::registry::{Counter, Registry};

/// The results of [`JWT_TOKENS`].
const RESULTS: [&str; 9] = [
    "verified",
    "several",
    "malformed",
    "unknown_key",
    "bad_signature",
    "wrong_issuer",
    "wrong_audience",
    "expired",
    "not_yet_valid",
];

/// The counters of tokens.
#[derive(Debug)]
pub struct JwtMetrics {
    results: [Counter; RESULTS.len()],
    signatures: Counter,
}

impl JwtMetrics {
    /// Makes the handles.
    pub fn new(registry: &Registry) -> Self {
        Self {
            results: RESULTS.map(|result| registry.counter(&JWT_TOKENS, &[result])),
            signatures: registry.counter(&JWT_SIGNATURES, &[]),
        }
    }

    /// Counts a request whose token came to this result, one of a closed set.
    pub fn count(&self, result: &str) {
        if let Some(place) = RESULTS.iter().position(|known| *known == result) {
            self.results[place].increment();
        }
    }

    /// Counts signatures that were checked.
    pub fn signatures(&self, number: u64) {
        self.signatures.add(number);
    }
}
