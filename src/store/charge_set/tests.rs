//! The announced instant of refusals, on virtual time: where bans, grants and charged refusals meet.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::limiter::algorithms::{FixedWindow, Gcra, SlidingLog, SlidingWindow, Start};
use crate::limiter::penalty::Penalty;
use crate::limiter::{Algorithm, Fingerprint, KeyParts, Quota};
use crate::store::steering::Steering;
use crate::store::{Attribution, KeyChange};
use crate::store::{Buckets, BucketsSpec, ChargedLimits, Home, OnFull, Penalties, Refusals, Table};
use crate::telemetry::registry::Registry;

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);
fn key() -> Fingerprint {
    Fingerprint::from_bits(1)
}

/// A request to these policies.
struct Policies<'a>(&'a [&'a Policy]);

impl ChargedLimits for Policies<'_> {
    fn buckets(&self, id: ChargeId) -> &Arc<Buckets> {
        &self.0[usize::from(id.limit)].buckets
    }

    fn granted(&self, limit: u16) -> Option<&Arc<Buckets>> {
        self.0[usize::from(limit)].steering.known_grants()
    }

    fn penalties(&self, limit: u16) -> Option<&Penalties> {
        self.0[usize::from(limit)].penalties.as_deref()
    }
}

impl ChargeSource for Policies<'_> {
    fn limits(&self) -> &dyn ChargedLimits {
        self
    }

    fn write_key(&self, _limit: u16, _parts: &mut dyn KeyParts) -> bool {
        false
    }

    fn period(&self, _id: ChargeId, _now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        None
    }
}

/// A policy's rules.
#[derive(Clone, Debug)]
struct Rules {
    algorithm: Algorithm,
    refusals: Refusals,
    penalty: Option<Penalty>,
}

struct Policy {
    buckets: Arc<Buckets>,
    steering: Steering,
    penalties: Option<Arc<Penalties>>,
}

/// An event some microseconds after the one before.
#[derive(Clone, Copy, Debug)]
enum Event {
    Ask { cost: u32 },
    Grant { units: u32, micros: u64 },
    Ban { micros: u64 },
}

type Step = (u64, Event);

impl Policy {
    fn new(rules: &Rules) -> Self {
        let registry = Registry::default();
        let spec = BucketsSpec {
            home: Home::Memory,
            label: "p",
            before: None,
            overflow: None,
            refusal_cache: Duration::ZERO,
            refusal_bytes: 0,
        };
        let table = Table::new("p", rules.algorithm.clone(), 64, OnFull::Forget);
        let table = Arc::new(table.with_refusals(rules.refusals));
        let penalties = rules.penalty.clone().map(|rule| {
            let penalties = Penalties::new(rule, "p", None, &Store::Memory, &registry);
            Arc::new(penalties)
        });
        Self {
            buckets: Arc::new(Buckets::new(&Store::Memory, table, spec, &registry)),
            steering: Steering::new("p", Home::Memory, &Store::Memory, None, &registry),
            penalties,
        }
    }

    fn apply(&self, event: Event, now: Timestamp) {
        let change = match event {
            Event::Ask { cost } => {
                ask(&[self], cost, now);
                return;
            }
            Event::Grant { units, micros } => KeyChange::Grant {
                units,
                until: now.saturating_add_micros(micros),
            },
            Event::Ban { micros } => KeyChange::Ban {
                until: now.saturating_add_micros(micros),
            },
        };
        let keys = self.steering.keys();
        keys.change(key(), change, &Attribution::default(), now)
            .expect("there is room");
    }
}

fn ask(policies: &[&Policy], cost: u32, now: Timestamp) -> Verdict {
    let source = Policies(policies);
    let mut set = ChargeSet::new(&Store::Memory, &source, now);
    for (limit, policy) in (0..).zip(policies) {
        let charge = PolicyCharge::new(ChargeId::new(limit, None), key(), cost);
        let steered = policy.steering.find(key(), &policy.buckets, now, |_| true);
        let penalties = policy.penalties.as_ref();
        let banned_until = penalties
            .and_then(|penalties| penalties.banned_until(key(), now))
            .max(steered.and_then(|steered| steered.banned_until));
        set.push(charge.steered(banned_until, steered));
    }
    let mut result = ChargeResult::default();
    assert!(set.charge(&mut result).is_none(), "memory decides at once");
    result.verdict
}

/// The policy after these steps, and the instant of the last one.
fn after(rules: &Rules, steps: &[Step]) -> (Policy, Timestamp) {
    let policy = Policy::new(rules);
    let now = steps.iter().fold(NOW, |now, (gap, event)| {
        let now = now.saturating_add_micros(*gap);
        policy.apply(*event, now);
        now
    });
    (policy, now)
}

fn retry_at(verdict: &Verdict) -> Option<Timestamp> {
    verdict.decision()?.retry_at()
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    (1..5_u32, 1..40_u64, 0..4_u8).prop_map(|(limit, millis, kind)| {
        let quota = Quota::new(limit, Duration::from_millis(millis)).expect("a quota");
        match kind {
            0 => Algorithm::Gcra(Gcra::new(quota, limit).expect("a burst")),
            1 => Algorithm::FixedWindow(FixedWindow::new(quota, Start::FirstRequest)),
            2 => Algorithm::SlidingWindow(SlidingWindow::new(quota, Default::default())),
            _ => Algorithm::SlidingLog(SlidingLog::new(quota).expect("a log")),
        }
    })
}

fn rules() -> impl Strategy<Value = Rules> {
    let lengths = prop::collection::vec(1..60_u64, 1..3);
    let penalty = (1..4_u32, 1..60_u64, lengths).prop_map(|(strikes, within, lengths)| {
        let lengths = lengths.into_iter().map(Duration::from_millis).collect();
        Penalty::new(strikes, Duration::from_millis(within), lengths)
    });
    let refusals = prop::sample::select(vec![Refusals::Free, Refusals::Charged]);
    (algorithms(), refusals, prop::option::of(penalty)).prop_map(
        |(algorithm, refusals, penalty)| Rules {
            algorithm,
            refusals,
            penalty,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let event = prop_oneof![
        6 => (1..4_u32).prop_map(|cost| Event::Ask { cost }),
        1 => (1..4_u32, 1..40_000_u64).prop_map(|(units, micros)| Event::Grant { units, micros }),
        1 => (1..40_000_u64).prop_map(|micros| Event::Ban { micros }),
    ];
    prop::collection::vec((0..8_000_u64, event), 0..16)
}

proptest! {
    #[test]
    fn a_refused_request_passes_at_the_announced_instant_and_not_before(
        rules in rules(),
        steps in steps(),
        (gap, cost) in (0..8_000_u64, 1..4_u32),
        early in 1..20_000_u64,
    ) {
        let asked = || {
            let (policy, last) = after(&rules, &steps);
            let now = last.saturating_add_micros(gap);
            let verdict = ask(&[&policy], cost, now);
            (policy, now, verdict)
        };
        let (policy, now, verdict) = asked();
        if let Some(retry_at) = retry_at(&verdict) {
            prop_assert!(ask(&[&policy], cost, retry_at).is_admitted(), "{retry_at:?}");
            for early in [1, early] {
                let before = retry_at.saturating_sub_micros(early);
                if before > now {
                    let (policy, ..) = asked();
                    prop_assert!(!ask(&[&policy], cost, before).is_admitted(), "{early}");
                }
            }
        }
    }
}

fn hourly(limit: u32, refusals: Refusals) -> Rules {
    let quota = Quota::new(limit, Duration::from_secs(3_600)).expect("a quota");
    Rules {
        algorithm: Algorithm::Gcra(Gcra::new(quota, limit).expect("a burst")),
        refusals,
        penalty: None,
    }
}

/// The debt of a refusal once replaced the grant that pays as soon as the other policy does.
#[test]
fn a_quota_that_charges_refusals_does_not_hide_a_grant_that_pays() {
    let spent = Policy::new(&hourly(2, Refusals::Charged));
    (0..2).for_each(|_| assert!(ask(&[&spent], 1, NOW).is_admitted()));
    let (units, micros) = (5, 3_600_000_000);
    spent.apply(Event::Grant { units, micros }, NOW);
    let tight = Policy::new(&hourly(1_800, Refusals::Free));
    assert!(ask(&[&tight], 1_800, NOW).is_admitted());
    let verdict = ask(&[&spent, &tight], 1, NOW);
    let retry = NOW.saturating_add(Duration::from_secs(2));
    assert_eq!(retry_at(&verdict), Some(retry));
    assert!(ask(&[&spent, &tight], 1, retry).is_admitted());
}

/// Granted units that end during the ban are no reason to come back when it ends.
#[test]
fn a_ban_that_outlasts_a_grant_announces_the_quota() {
    for (granted, expected) in [(10, 1_800), (20, 10)] {
        let policy = Policy::new(&hourly(2, Refusals::Free));
        (0..2).for_each(|_| assert!(ask(&[&policy], 1, NOW).is_admitted()));
        let micros = granted * 1_000_000;
        policy.apply(Event::Grant { units: 1, micros }, NOW);
        policy.apply(Event::Ban { micros: 10_000_000 }, NOW);
        let retry = NOW.saturating_add(Duration::from_secs(expected));
        assert_eq!(retry_at(&ask(&[&policy], 1, NOW)), Some(retry));
        assert!(ask(&[&policy], 1, retry).is_admitted());
    }
}
