//! The connection of a policy to its buckets in Redis.

use super::redis::{ChargeError, KeyKnowledge, RefusalCache};
use super::{OnStoreError, Refusals, Table};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint};
use crate::telemetry::log_throttle::LogThrottle;

/// A policy's part in Redis.
#[derive(Debug)]
pub(super) struct RedisBinding {
    /// The policy's name in keys.
    pub(super) label: Box<str>,
    /// The decision without an answer of Redis.
    pub(super) on_error: OnStoreError,
    /// Recent refusals of Redis.
    pub(super) refusals: RefusalCache,
    /// Bounds the log lines about requests that Redis did not decide.
    pub(super) undecided_log: LogThrottle,
}

impl RedisBinding {
    /// The treatment of a request that Redis did not decide, which is logged.
    pub(super) fn on_error(
        &self,
        table: &Table,
        error: &ChargeError,
        now: Timestamp,
    ) -> OnStoreError {
        // Faults of the whole server are logged elsewhere.
        if !error.is_server_fault()
            && let Some(omitted) = self.undecided_log.admit(now)
        {
            let policy = table.policy();
            tracing::warn!(policy, %error, omitted, "no decision from the store");
        }
        self.on_error
    }

    /// Remembers a refusal of Redis that lasts, unless Redis has to charge each refusal, or any
    /// decision on a banned key, which is charged nothing.
    pub(super) fn remember(
        &self,
        table: &Table,
        (key, needed): (Fingerprint, (u32, u32)),
        decision: &Decision,
        known: KeyKnowledge,
        now: Timestamp,
    ) {
        // Units that are given back arrive earlier than the refusal said.
        let is_given_back = table.algorithm().is_concurrency() || table.has_settlement();
        let is_lasting = table.refusals() == Refusals::Free && !is_given_back;
        if is_lasting || known.banned_until.is_some() {
            self.refusals.note(key, needed, decision, known, now);
        }
    }
}
