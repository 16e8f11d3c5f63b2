//! The amounts of a bucket: options that policies, overrides, candidates and overflow buckets
//! share.

use std::fmt;

use crate::config::sections::prelude::*;

/// The amounts of a bucket: a quota, a capacity with a refill, or a `max`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Amounts {
    /// Units per window: up to 4294967295, or 549755813887 of `fixed_window`, per `1ms` to `366d`, or per `1mo` or `1y`; 0 refuses
    /// always. Or the part of the request that states the units:
    /// `{ from: header:x-rate, per: 1s, default: 100, max: 5000 }`, for windows and logs only.
    pub quota: Option<Located<Quota>>,
    /// Units that can be taken at once, 1 to 4294967295; as many as the quota has unless given.
    /// For `gcra` and `token_bucket` only.
    pub burst: Option<Located<Units>>,
    /// Tokens in a full bucket, 1 to 4294967295. For `token_bucket` with a `refill`.
    pub capacity: Option<Located<Units>>,
    /// Tokens that come back at once, and how often, from the instant at which the bucket stopped
    /// being full: `1 per 10ms`. For `token_bucket` with a `capacity`, in place of a `quota`.
    pub refill: Option<Located<Refill>>,
    /// Units that requests in flight can have taken at once, up to 4294967295; 0 refuses always.
    /// For `concurrency`, in place of a `quota`.
    pub max: Option<Located<InUse>>,
}

impl Amounts {
    /// True without any amount.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The units of the quota, 0 without one.
    pub fn limit(&self) -> u64 {
        let quota = self.quota.as_ref();
        quota.map_or(0, |quota| quota.largest().limit())
    }

    /// The units of a full bucket, unless its algorithm says otherwise.
    pub fn capacity(&self) -> u64 {
        self.at_once().map_or(self.limit(), |(most, _)| most)
    }

    /// The node of the amount that an algorithm most likely can't have.
    pub(in crate::config) fn node(&self) -> NodeId {
        let tokens = self.burst.given().or(self.refill.given());
        tokens.or(self.quota.given()).unwrap_or(NodeId::ABSENT)
    }

    /// The burst or the capacity, and its node.
    pub fn at_once(&self) -> Option<(u64, NodeId)> {
        let most = self.burst.as_ref().or(self.capacity.as_ref());
        most.map(|most| (most.units(), most.node))
    }
}

/// Shows the quota, or the settings in its place.
impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.max, &self.quota, &self.capacity, &self.refill) {
            (Some(max), ..) => write!(f, "{max} at a time"),
            (None, Some(quota), ..) => quota.fmt(f),
            (None, None, Some(capacity), Some(refill)) => write!(f, "{capacity}, {refill}"),
            _ => Ok(()),
        }
    }
}
