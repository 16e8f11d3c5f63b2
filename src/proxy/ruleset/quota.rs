//! Quotas that run: those of policies, of overrides, and of overflow buckets.

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};

use crate::clock::Timestamp;
use crate::limiter::algorithms::WindowEnd;
use crate::limiter::{Algorithm, Decision};
use crate::proxy::admission::mode::Enforcement;
use crate::proxy::answers::action::Action;
use crate::proxy::answers::limit_headers::{AdvertisedPolicy, AppliedPolicy};
use crate::proxy::answers::rejection::Rejection;
use crate::rules::{Head, KeyPart, LocalPeriods, StatedLimit};
use crate::store::Buckets;
use crate::upstream::Dscp;

/// An override that runs.
#[derive(Debug)]
pub struct Override {
    /// Its quota; `None` for the policy's, and its buckets.
    pub quota: Option<Quota>,
    /// Units that its requests have to leave in the policy's bucket.
    pub(in crate::proxy) kept: u64,
    /// The effect of decisions, if it isn't the policy's.
    pub enforcement: Option<Enforcement>,
    /// Action and rejections, if they aren't the policy's.
    pub(in crate::proxy) refusal: Option<Box<(Action, Arc<Rejection>)>>,
    /// The requests that it is for, without values, unless the quota's id names them.
    pub(in crate::proxy) selection: Option<Box<str>>,
}

/// A soft limit that runs: requests beyond it are charged, and answered by its action.
#[derive(Debug)]
pub struct SoftLimit {
    /// The name in metrics and logs: that of the policy, a slash and `above`.
    pub name: Arc<str>,
    /// Used units of a bucket beyond which it answers.
    pub(in crate::proxy) above: u64,
    /// Action and rejections.
    pub(in crate::proxy) refusal: (Action, Arc<Rejection>),
}

/// A quota that runs: that of a policy, of an override, or of an overflow bucket.
#[derive(Debug)]
pub struct Quota {
    /// The key as configured, with the keys that an override is for. Identifies the quota among
    /// those of its policy.
    pub id: String,
    /// The quota as configured.
    pub text: String,
    /// Its buckets, one for each key.
    pub buckets: Arc<Buckets>,
    /// Ends of windows by the time zone in a claim.
    pub local_periods: Option<LocalPeriods>,
    /// The limit that each request states.
    pub stated: Option<StatedLimit>,
    /// Name and quota in header fields.
    pub advertised: AdvertisedPolicy,
    /// Rejections that name the quota.
    pub rejection: Arc<Rejection>,
    /// The bucket for requests that this one cannot pay.
    pub overflow: Option<Box<Overflow>>,
}

/// A further bucket of a quota, which admits at a lower priority; `Q` is its quota, or the spec of it.
#[derive(Debug)]
pub struct Overflow<Q = Quota> {
    /// The bucket's quota.
    pub quota: Q,
    /// Fields that tell the upstream of the priority.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// DSCP of the forwarded requests.
    pub dscp: Option<Dscp>,
}

impl Quota {
    /// The algorithm of its buckets.
    pub fn algorithm(&self) -> &Algorithm {
        self.buckets.algorithm()
    }

    /// The start and end of a window that this request opens, by the time zone of its token.
    pub fn period(&self, head: &Head<'_>, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        self.local_periods.as_ref()?.period(head, now)
    }

    /// The end of a window that this request opens, by the time zone of its token.
    pub fn window_end(&self, head: &Head<'_>, now: Timestamp) -> Option<WindowEnd> {
        self.period(head, now).map(WindowEnd::of)
    }

    /// The quota and its decision on a request, as clients read of them.
    pub(in crate::proxy) fn applied<'a>(&'a self, decision: &'a Decision) -> AppliedPolicy<'a> {
        let (policy, algorithm) = (&self.advertised, self.algorithm());
        let has_own = self.stated.is_some() || decision.capacity < policy.capacity;
        AppliedPolicy {
            policy,
            own: has_own.then(|| self.own_policy(decision)).flatten(),
            algorithm,
            decision,
        }
    }

    /// The policy under a limit that the request states, or the smaller burst of an override.
    #[cold]
    fn own_policy(&self, decision: &Decision) -> Option<Box<AdvertisedPolicy>> {
        let (policy, algorithm) = (&self.advertised, self.algorithm());
        let own = match self.stated {
            Some(_) => policy.with_limit(decision.capacity, algorithm.window()?)?,
            None => policy.with_burst(decision.capacity, algorithm),
        };
        Some(Box::new(own))
    }

    /// The quota of a request with this decision, if the request states its limit.
    pub(in crate::proxy) fn stated_text(&self, decision: &Decision) -> Option<String> {
        let stated = self.stated.as_ref()?;
        Some(stated.quota(decision.capacity))
    }

    /// Reads a claim of the token.
    pub(super) fn reads_token(&self) -> bool {
        let zone = self.local_periods.iter().map(|local| &local.part);
        let mut parts = zone.chain(self.stated.iter().map(|stated| &stated.part));
        parts.any(|part| matches!(part, KeyPart::Claim(_)))
    }

    /// The quota, and its further overflow buckets.
    pub fn tiers(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |quota| Some(&quota.overflow.as_ref()?.quota))
    }
}
