//! Bans of keys that go on asking though they are refused.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, Penalty};
use crate::store::Bans;
use crate::telemetry::metrics::BanMetrics;
use crate::telemetry::registry::Registry;

/// What a policy does to keys that it has refused too often.
#[derive(Debug)]
pub struct Penalties {
    rule: Penalty,
    /// Found again at a reload, whatever else has changed.
    bans: Arc<Bans>,
    metrics: BanMetrics,
}

impl Penalties {
    /// By this rule, with the bans of the policy before.
    pub(super) fn new(
        rule: Penalty,
        policy: &str,
        before: Option<&Self>,
        registry: &Registry,
    ) -> Self {
        Penalties {
            rule,
            bans: before
                .map(|before| Arc::clone(&before.bans))
                .unwrap_or_default(),
            metrics: BanMetrics::new(registry, policy),
        }
    }

    /// The end of the ban of this key, if it is banned.
    pub(super) fn banned_until(&self, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        self.bans.banned_until(&self.rule, key, now)
    }

    /// Counts a refusal of this key; the end of the ban that it brings about, or another request has since.
    pub(super) fn strike(&self, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        let until = self.bans.strike(&self.rule, key, now);
        if until.is_some() {
            self.metrics.banned();
        }
        until.or_else(|| self.banned_until(key, now))
    }
}
