//! A request's charge to one policy. It has no reference to the buckets: the limits of the request's
//! route have them, also after a wait for Redis.

use std::sync::Arc;

use super::redis::DecisionTerms;
use super::{Buckets, Penalties, Role, Steered};
use crate::clock::Timestamp;
use crate::limiter::algorithms::WindowEnd;
use crate::limiter::{Demand, Fingerprint, KeyParts};

/// The payer of a charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payer {
    /// A bucket of the policy.
    #[default]
    Quota,
    /// Units that an operator has granted, because no bucket of the policy can pay.
    Grant,
}

/// The number of a charge, as the caller counts, and the bucket that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeId {
    /// The number of the limit.
    pub limit: u16,
    /// The number of the override; `None` for the policy's own quota.
    pub place: Option<u32>,
    /// The overflow tier; 0 is the first bucket.
    pub tier: u8,
    /// The payer.
    pub payer: Payer,
    /// The place of the soft limit that the charge exceeds. The store leaves it open.
    pub soft: Option<u8>,
}

/// A charge to the buckets of one policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyCharge {
    /// The number of the charge, and its deciding bucket.
    pub id: ChargeId,
    /// The role of the charge.
    pub role: Role,
    /// The key of the bucket.
    pub key: Fingerprint,
    /// The key that the policy's penalty bans.
    pub ban_key: Fingerprint,
    /// The units that the request needs in the policy's first bucket. A cost of 0 decides and charges
    /// nothing.
    pub demand: Demand,
    /// The end of a window in memory that this charge opens, if requests decide it.
    pub window_end: Option<WindowEnd>,
    /// The response settles the charge.
    pub settles: bool,
    /// The end of the key's ban, which refuses the request.
    pub banned_until: Option<Timestamp>,
    /// Units that an operator has granted to the key may pay.
    pub is_granted: bool,
    /// The last change of the key's units by an operator, in the time of the store.
    pub steered_at: Option<Timestamp>,
}

/// The limits that are charged, by their numbers.
pub trait ChargedLimits: Sync {
    /// The first buckets of the quota that a charge is under.
    fn buckets(&self, id: ChargeId) -> &Arc<Buckets>;

    /// The buckets of a policy's granted units, if it ever had any.
    fn granted(&self, limit: u16) -> Option<&Arc<Buckets>>;

    /// The penalty of a policy.
    fn penalties(&self, limit: u16) -> Option<&Penalties>;
}

/// The request's side of charges, read only if a store needs it.
pub trait ChargeSource {
    /// The limits of the request.
    fn limits(&self) -> &dyn ChargedLimits;

    /// Writes the parts of the charged key; false if the request lacks it.
    fn write_key(&self, limit: u16, parts: &mut dyn KeyParts) -> bool;

    /// The start and end of a window that the request opens at `now`, if requests decide them.
    fn period(&self, id: ChargeId, now: Timestamp) -> Option<(Timestamp, Timestamp)>;
}

impl ChargeId {
    /// The first bucket of a limit's quota, or of its override at `place`.
    pub fn new(limit: u16, place: Option<u32>) -> Self {
        Self {
            limit,
            place,
            tier: 0,
            payer: Payer::Quota,
            soft: None,
        }
    }
}

impl PolicyCharge {
    /// A charge that stays as it is made, to a key without bans and grants.
    pub fn new(id: ChargeId, key: Fingerprint, cost: u32) -> Self {
        Self {
            id,
            role: Role::Refuses,
            key,
            ban_key: key,
            demand: Demand::of(cost),
            window_end: None,
            settles: false,
            banned_until: None,
            is_granted: false,
            steered_at: None,
        }
    }

    /// The charge to a key that is banned until `banned_until`, if it is, and steered by operators.
    /// Granted units that end before the ban pay nothing.
    #[must_use]
    pub fn steered(self, banned_until: Option<Timestamp>, steered: Option<Steered>) -> Self {
        let granted_until = steered.and_then(|steered| steered.granted_until);
        Self {
            banned_until,
            is_granted: granted_until.is_some_and(|until| Some(until) > banned_until),
            steered_at: steered.and_then(|steered| steered.at),
            ..self
        }
    }

    /// The charge of a request that another store refuses: independent of the others, of all units that
    /// it needs, and not paid by granted ones.
    pub(super) fn owed(self) -> Self {
        Self {
            role: Role::Shadows,
            demand: self.demand.owed(),
            is_granted: false,
            ..self
        }
    }

    /// The units that the request needs in the bucket that decides. Overflow buckets and granted units
    /// have no other burst.
    pub(super) fn demand_there(&self) -> Demand {
        match (self.id.tier, self.id.payer) {
            (0, Payer::Quota) => self.demand,
            _ => Demand {
                kept: 0,
                ..self.demand
            },
        }
    }

    /// The terms of a decision of the bucket.
    pub(super) fn terms(&self) -> DecisionTerms {
        let demand = self.demand_there();
        DecisionTerms {
            needed: demand.needed(),
            kept: demand.kept,
            steered_at: self.steered_at,
            banned_until: self.banned_until,
        }
    }
}

/// The request of a key's facts, which is not charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Units that it needs of the first bucket.
    pub demand: Demand,
    /// The end of a window that it opens, if requests decide it, in the time of this machine.
    pub window_end: Option<WindowEnd>,
}

impl Probe {
    /// The units that it needs of the bucket of this overflow tier: only the first has other bursts.
    pub(super) fn demand_of(&self, tier: usize) -> Demand {
        let kept = if tier == 0 { self.demand.kept } else { 0 };
        Demand {
            kept,
            ..self.demand
        }
    }
}
