//! Actions of a policy on a request beyond its quota.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};

use crate::rules::BodyChange;
use crate::telemetry::metrics;
use crate::telemetry::registry::{Gauge, GaugeGuard, Registry};
use crate::upstream::Upstream;

/// Action on requests beyond the quota, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionSpec {
    /// Answers with an error.
    Reject,
    /// Answers with an imitation of a success, without a header field that names the policy.
    Decoy,
    /// Answers with an error after a delay.
    Tarpit(TarpitSpec),
    /// Closes the connection, or resets the stream, without a response.
    Drop,
    /// Forwards the request with this field, which names the policy.
    Tag(HeaderName),
    /// Forwards the request to another upstream.
    Route(ReroutingSpec),
    /// Has the request wait for units.
    Wait(WaitSpec),
}

/// Delay before a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TarpitSpec {
    /// Time from the decision to the response.
    pub delay: Duration,
    /// Most requests that wait at a time; further ones get their response at once.
    pub max_held: u32,
}

/// Another upstream for requests beyond a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReroutingSpec {
    /// The name of the upstream.
    pub upstream: String,
    /// Changes to the bodies of these requests.
    pub changes: Vec<BodyChange>,
}

/// Bounds of waits for units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitSpec {
    /// Longest wait.
    pub max_wait: Duration,
    /// Most requests of a key that wait, at least 1; further ones are refused at once.
    pub queue: u32,
}

/// Action of a policy that runs, which has the name that the configuration writes.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum Action {
    /// As [`ActionSpec::Reject`].
    Reject,
    /// As [`ActionSpec::Decoy`], after the time that real responses take.
    Decoy(Tarpit),
    /// As [`ActionSpec::Tarpit`].
    Tarpit(Tarpit),
    /// As [`ActionSpec::Drop`].
    Drop,
    /// As [`ActionSpec::Tag`].
    Tag(Tag),
    /// As [`ActionSpec::Route`].
    Route(Rerouting),
    /// As [`ActionSpec::Wait`].
    Wait(WaitSpec),
}

/// As [`ReroutingSpec`].
#[derive(Debug)]
pub struct Rerouting {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) changes: Vec<BodyChange>,
}

/// Field that names the policy to the upstream.
#[derive(Clone, Debug)]
pub struct Tag {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
}

/// Delays answers to refused requests, of a bounded number at a time.
#[derive(Debug)]
pub struct Tarpit {
    spec: TarpitSpec,
    waiting: Gauge,
}

/// Place of a waiting request, free again on drop.
#[derive(Debug)]
pub(crate) struct TarpitSlot {
    delay: Duration,
    _waiting: GaugeGuard,
}

/// Decoys wait as long as real responses do, and so many at a time.
const DECOYS: TarpitSpec = TarpitSpec {
    delay: Duration::ZERO,
    max_held: 1_000,
};

impl Action {
    /// Builds the action of `policy`. Its count of waiting requests is found again by that name, so
    /// that it survives a reload. `upstreams` are those of the ruleset.
    pub(crate) fn new(
        spec: ActionSpec,
        policy: &str,
        upstreams: &[Arc<Upstream>],
        registry: &Registry,
    ) -> Self {
        let tarpit = |spec| Tarpit {
            spec,
            waiting: metrics::held(registry, policy),
        };
        match spec {
            ActionSpec::Reject => Self::Reject,
            ActionSpec::Decoy => Self::Decoy(tarpit(DECOYS)),
            ActionSpec::Tarpit(spec) => Self::Tarpit(tarpit(spec)),
            ActionSpec::Drop => Self::Drop,
            ActionSpec::Tag(name) => Self::Tag(Tag {
                name,
                value: HeaderValue::from_str(policy).expect("names are visible ASCII"),
            }),
            ActionSpec::Route(ReroutingSpec { upstream, changes }) => {
                let upstream = upstreams.iter().find(|one| **one.name() == *upstream);
                let upstream = Arc::clone(upstream.expect("the ruleset has its upstreams"));
                Self::Route(Rerouting { upstream, changes })
            }
            ActionSpec::Wait(spec) => Self::Wait(spec),
        }
    }

    /// Clients are to learn nothing of the refusal.
    pub(crate) fn is_decoy(&self) -> bool {
        matches!(self, Self::Decoy(_))
    }

    /// A verb for the answer line of `explain`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Reject => "limited",
            Self::Decoy(_) => "answered with a decoy",
            Self::Tarpit(_) => "held, then limited",
            Self::Drop => "dropped",
            Self::Tag(_) => "tagged",
            Self::Route(_) => "routed",
            Self::Wait(_) => "limited",
        }
    }

    /// True if requests beyond the quota are forwarded nevertheless.
    pub(crate) fn forwards(&self) -> bool {
        matches!(self, Self::Tag(_) | Self::Route(_))
    }

    /// The other upstream, if the action routes.
    pub(crate) fn rerouting(&self) -> Option<&Rerouting> {
        match self {
            Self::Route(rerouting) => Some(rerouting),
            _ => None,
        }
    }

    /// The field, if the action only tags.
    pub(crate) fn tag(&self) -> Option<&Tag> {
        match self {
            Self::Tag(tag) => Some(tag),
            _ => None,
        }
    }
}

impl Tarpit {
    /// Takes a place for the configured delay, if one is free.
    pub(crate) fn acquire(&self) -> Option<TarpitSlot> {
        self.acquire_for(self.spec.delay)
    }

    /// Takes a place for this delay, if one is free.
    pub(crate) fn acquire_for(&self, delay: Duration) -> Option<TarpitSlot> {
        let _waiting = self.waiting.hold_below(self.spec.max_held.into())?;
        Some(TarpitSlot { delay, _waiting })
    }
}

impl TarpitSlot {
    /// Waits for the delay, and frees the place.
    pub(crate) async fn wait(self) {
        self.wait_beside(std::future::ready(())).await;
    }

    /// Waits for the delay and for `other`, and frees the place.
    pub(crate) async fn wait_beside<T>(self, other: impl Future<Output = T>) -> T {
        tokio::join!(tokio::time::sleep(self.delay), other).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tarpit(max_held: u32, registry: &Registry) -> Tarpit {
        let delay = Duration::from_secs(10);
        let spec = ActionSpec::Tarpit(TarpitSpec { delay, max_held });
        match Action::new(spec, "p", &[], registry) {
            Action::Tarpit(tarpit) => tarpit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_tarpit_is_bounded_also_over_a_reload() {
        let registry = Registry::default();
        let before = tarpit(2, &registry);
        let first = before.acquire().expect("a place");
        let after = tarpit(2, &registry);
        let second = after.acquire().expect("a place");
        drop(before);
        assert!(after.acquire().is_none());
        drop(first);
        assert!(after.acquire().is_some());
        drop(second);
        let all = [after.acquire(), after.acquire(), after.acquire()];
        assert_eq!(all.map(|slot| slot.is_some()), [true, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_taken_for_the_configured_delay() {
        let tarpit = tarpit(1, &Registry::default());
        let waiting = tokio::spawn(tarpit.acquire().expect("a place").wait());
        tokio::time::sleep(Duration::from_millis(9_999)).await;
        assert!(!waiting.is_finished());
        assert!(tarpit.acquire().is_none());
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(waiting.is_finished());
        assert!(tarpit.acquire().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_frees_its_place() {
        let tarpit = tarpit(1, &Registry::default());
        let waiting = tokio::spawn(tarpit.acquire().expect("a place").wait());
        tokio::time::sleep(Duration::from_secs(1)).await;
        waiting.abort();
        assert!(waiting.await.is_err());
        assert!(tarpit.acquire().is_some());
    }
}
