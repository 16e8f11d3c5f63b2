//! Steering of keys whose buckets machines share: in Redis, or synchronised through it.
//!
//! Buckets in Redis change at once, synchronised ones on each machine once it hears of that. Every
//! machine learns of all actions from Redis (`store/redis/steering.rs`).

use std::sync::Arc;
use std::time::Duration;

use super::{SteeredFacts, SteeringError};
use crate::clock::Timestamp;
use crate::limiter::algorithms::WindowEnd;
use crate::limiter::bucket::{BucketFacts, BucketView, Grant};
use crate::limiter::{Algorithm, Cell, Fingerprint};
use crate::store::operator_action::{Attribution, KeyChange, KeyEvent, KeyRule};
use crate::store::redis::client::Caller;
use crate::store::redis::{
    BucketCharge, NameBuilder, Replacement, bucket_label, client::Fault, read_bucket, read_grant,
    shifted, to_local_clock,
};
use crate::store::{Ask, Buckets, Home, Penalties, Probe, Store, redis};

/// The time for which machines with buckets in Redis have to know of a reset or a revoked grant:
/// more than the longest `refusal_cache`.
const REFUSALS_KEPT: Duration = Duration::from_secs(65);

/// A key whose buckets machines share.
#[derive(Debug)]
pub(super) struct SharedKey<'a> {
    pub(super) steering: &'a SharedSteering,
    /// The names of its buckets.
    pub(super) name: NameBuilder<'a>,
    /// The buckets of its quota.
    pub(super) buckets: &'a Arc<Buckets>,
}

/// The sharing of a policy's steered keys.
#[derive(Debug)]
pub(super) struct SharedSteering {
    pub(super) store: Arc<redis::Store>,
    pub(super) label: Box<str>,
    pub(super) home: Home,
}

impl From<Fault> for SteeringError {
    fn from(fault: Fault) -> Self {
        Self::Store(fault.to_string())
    }
}

impl SharedSteering {
    /// `None` if the policy's buckets are in this process alone.
    pub(super) fn new(policy: &str, home: Home, store: &Store) -> Option<Self> {
        let store = store.redis().filter(|_| home != Home::Memory)?;
        Some(Self {
            store: Arc::clone(store),
            label: policy.into(),
            home,
        })
    }

    /// The label of the buckets of granted units. It differs from all names of policies and their
    /// overrides.
    pub(super) fn grant_label(&self) -> String {
        format!("{}/granted", self.label)
    }

    /// Ends a ban or a grant that lasts for `left` more: no machine spends any more what Redis has
    /// of a grant until then.
    pub(super) async fn end(
        &self,
        key: Fingerprint,
        change: KeyChange,
        left: Duration,
    ) -> Result<(), SteeringError> {
        let keep = left.max(REFUSALS_KEPT);
        self.announce(key, change, &Attribution::default(), None, keep)
            .await
    }

    /// Lifts the ban of a key by penalties.
    pub(super) async fn lift(
        &self,
        penalties: &Penalties,
        banned: Fingerprint,
    ) -> Result<(), SteeringError> {
        if let Some(shared) = &penalties.shared {
            let keep = penalties.reported_for();
            self.store.lift_ban(&shared.names, banned, keep).await?;
        }
        Ok(())
    }

    async fn announce(
        &self,
        key: Fingerprint,
        change: KeyChange,
        by: &Attribution,
        at: Option<Timestamp>,
        keep: Duration,
    ) -> Result<(), SteeringError> {
        let event = KeyEvent {
            policy: self.label.clone(),
            key,
            change,
            by: by.clone(),
            at: Timestamp::EPOCH,
            keep: Timestamp::EPOCH,
        };
        self.store.announce(&event, at, keep).await?;
        Ok(())
    }
}

impl SharedKey<'_> {
    /// The buckets of the key in Redis, and its granted units. Its ban is left out.
    pub(super) async fn facts(
        &self,
        probe: Probe,
        now: Timestamp,
    ) -> Result<SteeredFacts, SteeringError> {
        if self.buckets.algorithm().is_concurrency() {
            let facts = self.in_use(probe, now).await?;
            let is_idle = matches!(facts.view, BucketView::Concurrency { in_use: 0, .. });
            return Ok(SteeredFacts {
                has_bucket: !is_idle,
                buckets: vec![facts],
                granted: None,
                ban: None,
            });
        }
        let mut names = self.bucket_names();
        names.push(self.grant_name());
        let store = &self.steering.store;
        let (at, mut values) = store.replace(&names, Replacement::Read).await?;
        let granted = values.pop().unwrap_or_default();
        let unreadable = || SteeringError::Store("has a bucket that cannot be read".to_owned());
        let granted = match &*granted {
            [] => None,
            value => Some(read_grant(value).ok_or_else(unreadable)?),
        };
        let granted = granted.filter(|cell| cell.is_live(at));
        let there = Probe {
            window_end: probe.window_end.map(|end| WindowEnd {
                at: shifted(end.at, now, at),
                ..end
            }),
            ..probe
        };
        let has_bucket = values.iter().any(|value| !value.is_empty());
        let tiers = self.buckets.tiers().enumerate().zip(values);
        let buckets = tiers.map(|((place, tier), value)| {
            let demand = there.demand_of(place);
            let there = Probe { demand, ..there };
            let facts = read_bucket(tier.algorithm(), self.name.key(), &value, there, at);
            Ok(moved(facts.ok_or_else(unreadable)?, at, now))
        });
        let granted = granted.map(|cell| KeyRule {
            left: cell.a,
            units: cell.b,
            since: now,
            until: shifted(Timestamp::from_micros(cell.expires), at, now),
            by: Attribution::default(),
        });
        Ok(SteeredFacts {
            buckets: buckets.collect::<Result<_, SteeringError>>()?,
            has_bucket,
            granted,
            ban: None,
        })
    }

    /// The units in use of the key.
    async fn in_use(&self, probe: Probe, now: Timestamp) -> Result<BucketFacts, SteeringError> {
        let (names, algorithm) = (self.bucket_names(), self.buckets.algorithm());
        let name = names.first().map_or(&[][..], Vec::as_slice);
        let question = BucketCharge::new(algorithm, name, self.name.key(), 0);
        let store = &self.steering.store;
        let caller = Caller {
            worker: store.operator_worker(),
            client: None,
        };
        let replies = store.peek(caller, &[question], Ask::Peek, now).await;
        let reply = replies.into_iter().next().transpose();
        let reply = reply.map_err(|error| SteeringError::Store(error.to_string()))?;
        let cell = reply.map_or(Cell::EMPTY, |reply| reply.decision.cell);
        Ok(algorithm.facts(cell, probe.demand, now))
    }

    /// Makes a change to the buckets in Redis, and tells all machines. Ends are in the time of this
    /// machine. In Redis a grant ends by the server's clock, after as long.
    pub(super) async fn change(
        &self,
        change: KeyChange,
        by: &Attribution,
        now: Timestamp,
    ) -> Result<(), SteeringError> {
        let (steering, is_in_redis) = (self.steering, self.buckets.is_in_redis());
        let (change, at, keep) = match change {
            KeyChange::Reset if is_in_redis => {
                let (names, delete) = (self.bucket_names(), Replacement::Delete);
                let (at, _) = steering.store.replace(&names, delete).await?;
                (change, Some(at), REFUSALS_KEPT)
            }
            KeyChange::Reset => (change, None, self.buckets.reset_kept()),
            KeyChange::Ban { until } => (change, None, until.since(now)),
            KeyChange::Unban => (change, None, REFUSALS_KEPT),
            KeyChange::Grant { units, until } => {
                let keep = match units {
                    0 => REFUSALS_KEPT,
                    _ => until.since(now),
                };
                let replacement = match units {
                    0 => Replacement::Delete,
                    _ if is_in_redis => Replacement::Grant(units, keep),
                    _ => Replacement::Read,
                };
                let names = [self.grant_name()];
                let (at, _) = steering.store.replace(&names, replacement).await?;
                let until = distinct_end(now.saturating_add(keep), at);
                (KeyChange::Grant { units, until }, Some(at), keep)
            }
        };
        let key = self.name.key();
        steering.announce(key, change, by, at, keep).await
    }

    /// The name of the key's granted units.
    fn grant_name(&self) -> Vec<u8> {
        let label = bucket_label(&self.steering.grant_label(), &Algorithm::Grant(Grant));
        self.name.name(&label)
    }

    /// The names of the key's buckets in Redis.
    fn bucket_names(&self) -> Vec<Vec<u8>> {
        let bindings = self.buckets.tiers().filter_map(|one| one.redis.as_ref());
        let names = bindings.map(|binding| self.name.name(&binding.label));
        names.collect()
    }
}

/// The end of a synchronised grant that is made at `at`: within 10 ms of `until`, and not that of
/// another grant of the key, under which its totals are kept.
fn distinct_end(until: Timestamp, at: Timestamp) -> Timestamp {
    const GRID: u64 = 10_000;
    let start = until.as_micros() / GRID * GRID;
    Timestamp::from_micros(start + at.as_micros() % GRID)
}

/// Moves the instants of facts from the server's clock to the local one.
fn moved(facts: BucketFacts, at: Timestamp, now: Timestamp) -> BucketFacts {
    let of = |decision| to_local_clock(decision, at, now);
    BucketFacts {
        decision: of(facts.decision),
        next: of(facts.next),
        ..facts
    }
}
