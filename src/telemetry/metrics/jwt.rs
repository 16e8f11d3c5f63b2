//! Tokens of requests: what became of them, and what they cost.

use crate::telemetry::registry::{Counter, Counters, handle_set, label_values};

label_values! {
    /// The result of checking a request's token: the `result` label.
    #[derive(strum::EnumString)]
    TokenResult {
        /// Its claims count.
        Verified,
        /// The request has several.
        Several,
        /// It is no JSON Web Token, is too long, or has critical parameters that are unknown.
        Malformed,
        /// No key has its `kid` and algorithm.
        UnknownKey,
        /// No key has signed it.
        BadSignature,
        /// `iss` is not the wanted one.
        WrongIssuer,
        /// `aud` has none of the wanted ones.
        WrongAudience,
        /// `exp` is over.
        Expired,
        /// `nbf` is still to come.
        NotYetValid,
    }
}

handle_set! {
    /// The counters of tokens.
    JwtMetrics() {
        /// The tokens of requests.
        pub tokens: Counters<TokenResult> = counters("sluicegate_jwt_total"),
        /// Signatures that were checked.
        pub signatures: Counter = counter("sluicegate_jwt_signatures_total"),
    }
}
