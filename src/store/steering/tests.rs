//! Bans and grants in memory, charged as requests are.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use super::*;
use crate::limiter::algorithms::{FixedWindow, Gcra, SlidingLog, Start};
use crate::limiter::{Algorithm, Decision, Demand, KeyParts, Outcome, Quota};
use crate::store::OnFull;
use crate::store::operator_action::KeyEvent;
use crate::store::{
    ChargeId, ChargeResult, ChargeSet, ChargeSource, ChargedLimits, Payer, PolicyCharge, Refusals,
    Table,
};

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);
const HOUR: Duration = Duration::from_secs(3_600);

/// A request to these policies, whose keys no store in memory reads.
struct Policies<'a>(&'a [&'a Policy]);

impl ChargedLimits for Policies<'_> {
    fn buckets(&self, id: ChargeId) -> &Arc<Buckets> {
        &self.0[usize::from(id.limit)].buckets
    }

    fn granted(&self, limit: u16) -> Option<&Arc<Buckets>> {
        self.0[usize::from(limit)].steering.known_grants()
    }

    fn penalties(&self, _limit: u16) -> Option<&Penalties> {
        None
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

struct Policy {
    buckets: Arc<Buckets>,
    steering: Steering,
}

fn key(bits: u64) -> Fingerprint {
    Fingerprint::from_bits(bits)
}

fn quota(limit: u32) -> Quota {
    Quota::new(limit, HOUR).expect("a quota")
}

fn gcra(limit: u32) -> Algorithm {
    Algorithm::Gcra(Gcra::new(quota(limit), limit).expect("a burst"))
}

fn after(seconds: u64) -> Timestamp {
    NOW.saturating_add(Duration::from_secs(seconds))
}

fn change(keys: &SteeredKeys, bits: u64, change: KeyChange) -> Result<(), TooManyKeys> {
    keys.change(key(bits), change, &Attribution::default(), NOW)
}

fn grant(keys: &SteeredKeys, bits: u64, units: u32, seconds: u64) -> Result<(), TooManyKeys> {
    let until = after(seconds);
    change(keys, bits, KeyChange::Grant { units, until })
}

fn ban(keys: &SteeredKeys, bits: u64, seconds: u64) -> Result<(), TooManyKeys> {
    let until = after(seconds);
    change(keys, bits, KeyChange::Ban { until })
}

fn steering(registry: &Registry) -> Steering {
    Steering::new("p", Home::Memory, &Store::Memory, None, registry)
}

impl Policy {
    fn new(algorithm: Algorithm) -> Self {
        Self::with(algorithm, Refusals::Free, None)
    }

    fn with(algorithm: Algorithm, refusals: Refusals, overflow: Option<Arc<Buckets>>) -> Self {
        let registry = Registry::default();
        let table = Table::new("p", algorithm, 64, OnFull::Forget).with_refusals(refusals);
        let spec = BucketsSpec {
            home: Home::Memory,
            label: "p",
            before: None,
            overflow,
            refusal_cache: Duration::ZERO,
            refusal_bytes: 0,
        };
        Self {
            buckets: Arc::new(Buckets::new(
                &Store::Memory,
                Arc::new(table),
                spec,
                &registry,
            )),
            steering: steering(&registry),
        }
    }

    fn grant(&self, units: u32, seconds: u64) {
        let granted = grant(self.steering.keys(), 1, units, seconds);
        granted.expect("there is room");
    }

    fn granted(&self, now: Timestamp) -> Option<u32> {
        let granted = self.steering.keys().grant_of(key(1), key(1), now);
        granted.map(|granted| granted.left)
    }

    fn remaining(&self, now: Timestamp) -> u32 {
        self.buckets
            .charge(key(1), Demand::default(), None)
            .peek(now)
            .remaining
            .try_into()
            .unwrap()
    }

    fn charge(&self, limit: u16, cost: u32, settles: bool, now: Timestamp) -> PolicyCharge {
        let steered = self.steering.find(key(1), &self.buckets, now, |_| true);
        let charge = PolicyCharge {
            settles,
            ..PolicyCharge::new(ChargeId::new(limit, None), key(1), cost)
        };
        charge.steered(steered.and_then(|steered| steered.banned_until), steered)
    }
}

fn ask_all(policies: &[&Policy], cost: u32, now: Timestamp) -> ChargeResult {
    let source = Policies(policies);
    let mut set = ChargeSet::new(&Store::Memory, &source, now);
    for (limit, policy) in (0..).zip(policies) {
        set.push(policy.charge(limit, cost, false, now));
    }
    let mut result = ChargeResult::default();
    assert!(set.charge(&mut result).is_none(), "memory decides at once");
    result
}

fn ask(policy: &Policy, cost: u32, now: Timestamp) -> (bool, Payer, Decision) {
    let result = ask_all(&[policy], cost, now);
    let verdict = &result.verdict;
    (
        verdict.is_admitted(),
        result.buckets[0].id.payer,
        verdict.decisions[0],
    )
}

#[test]
fn the_quota_pays_first_and_then_the_grant() {
    for algorithm in [
        gcra(3),
        Algorithm::FixedWindow(FixedWindow::new(quota(3), Start::EPOCH)),
        Algorithm::SlidingLog(SlidingLog::new(quota(3)).expect("a log")),
    ] {
        let policy = Policy::new(algorithm);
        policy.grant(2, 60);
        let told: Vec<_> = (0..6)
            .map(|_| {
                let (is_admitted, payer, decision) = ask(&policy, 1, NOW);
                (is_admitted, payer, decision.remaining)
            })
            .collect();
        let (quota, grant) = (Payer::Quota, Payer::Grant);
        assert_eq!(
            told,
            [
                (true, quota, 4),
                (true, quota, 3),
                (true, quota, 2),
                (true, grant, 1),
                (true, grant, 0),
                (false, quota, 0),
            ]
        );
    }
}

#[test]
fn a_request_is_paid_whole_by_the_quota_or_by_the_grant() {
    let policy = Policy::new(gcra(3));
    policy.grant(5, 60);
    let (is_admitted, payer, decision) = ask(&policy, 4, NOW);
    assert_eq!(
        (is_admitted, payer, decision.remaining),
        (true, Payer::Grant, 4)
    );
    assert_eq!((policy.remaining(NOW), policy.granted(NOW)), (3, Some(1)));
    let (is_admitted, payer, decision) = ask(&policy, 4, NOW);
    assert_eq!(
        (is_admitted, payer, decision.remaining),
        (false, Payer::Quota, 4)
    );
    assert_eq!(
        decision.outcome,
        Outcome::Refuse { retry_at: None },
        "4 never fit"
    );
}

#[test]
fn a_refusal_announces_the_quota_and_a_paid_request_when_it_grows() {
    let policy = Policy::new(gcra(1));
    policy.grant(1, 60);
    ask(&policy, 1, NOW);
    let (_, _, paid) = ask(&policy, 1, NOW);
    assert_eq!((paid.remaining, paid.capacity), (0, 1));
    assert_eq!(
        paid.more_at.map(std::num::NonZero::get),
        Some(after(3_600).as_micros())
    );
    let (is_admitted, _, refused) = ask(&policy, 1, NOW);
    assert!(!is_admitted);
    let retry_at = Some(after(3_600));
    assert_eq!(refused.outcome, Outcome::Refuse { retry_at });
}

#[test]
fn a_grant_ends_and_another_replaces_it() {
    let policy = Policy::new(gcra(1));
    ask(&policy, 1, NOW);
    policy.grant(2, 60);
    policy.grant(3, 30);
    assert_eq!(policy.granted(NOW), Some(3));
    assert!(ask(&policy, 1, after(29)).0);
    assert!(!ask(&policy, 1, after(30)).0);
    policy.grant(1, 60);
    policy.grant(0, 60);
    assert_eq!(policy.granted(NOW), None);
    assert!(!ask(&policy, 1, NOW).0);
    assert!(!policy.steering.keys().is_any(), "requests look no further");
}

#[test]
fn another_key_has_no_part_in_a_grant() {
    let policy = Policy::new(gcra(1));
    policy.grant(9, 60);
    let found = policy.steering.find(key(2), &policy.buckets, NOW, |_| true);
    assert!(found.is_none());
}

#[test]
fn several_policies_are_paid_all_or_none() {
    let (granted, tight) = (Policy::new(gcra(1)), Policy::new(gcra(2)));
    granted.grant(5, 60);
    let both = [&granted, &tight];
    let paid = |result: &ChargeResult| {
        let charges = result.buckets.iter();
        charges.map(|charge| charge.id.payer).collect::<Vec<_>>()
    };
    let first = ask_all(&both, 1, NOW);
    assert_eq!(paid(&first), [Payer::Quota; 2]);
    let second = ask_all(&both, 1, NOW);
    assert!(second.verdict.is_admitted());
    assert_eq!(paid(&second), [Payer::Grant, Payer::Quota]);
    let third = ask_all(&both, 1, NOW);
    assert!(!third.verdict.is_admitted());
    assert_eq!(third.verdict.deciding, 1, "the other policy refuses");
    assert_eq!(third.verdict.decisions[0].remaining, 4);
    assert_eq!((granted.granted(NOW), tight.remaining(NOW)), (Some(4), 0));
}

#[test]
fn an_overflow_bucket_pays_before_the_grant() {
    let last = Policy::new(gcra(1));
    let policy = Policy::with(gcra(1), Refusals::Free, Some(Arc::clone(&last.buckets)));
    policy.grant(1, 60);
    let paid: Vec<_> = (0..4)
        .map(|_| {
            let result = ask_all(&[&policy], 1, NOW);
            (
                result.verdict.is_admitted(),
                result.buckets[0].id.tier,
                result.buckets[0].id.payer,
            )
        })
        .collect();
    assert_eq!(
        paid[..3],
        [
            (true, 0, Payer::Quota),
            (true, 1, Payer::Quota),
            (true, 0, Payer::Grant),
        ]
    );
    assert!(!paid[3].0);
}

/// The final attempt once charged the grant's table, which has no debt.
#[test]
fn a_quota_that_charges_refusals_charges_them_beside_a_spent_grant() {
    let policy = Policy::with(gcra(10), Refusals::Charged, None);
    policy.grant(1, 60);
    (0..11).for_each(|_| assert!(ask(&policy, 1, NOW).0));
    let retry = |decision: Decision| match decision.outcome {
        Outcome::Refuse { retry_at } => retry_at.expect("it recovers"),
        other => panic!("{other:?}"),
    };
    // Each refusal takes what has recovered since the one before.
    for seconds in [100, 200] {
        let retry_at = retry(ask(&policy, 1, after(seconds)).2);
        assert_eq!(retry_at, after(seconds + 360));
    }
}

#[test]
fn units_that_a_grant_paid_go_back_to_it() {
    let policy = Policy::new(gcra(1));
    policy.grant(10, 60);
    ask(&policy, 1, NOW);
    let reserve = |cost| {
        let policies = [&policy];
        let source = Policies(&policies);
        let mut set = ChargeSet::new(&Store::Memory, &source, NOW);
        set.push(policy.charge(0, cost, true, NOW));
        let mut result = ChargeResult::default();
        set.charge(&mut result);
        assert!(result.verdict.is_admitted());
        assert_eq!(result.buckets[0].id.payer, Payer::Grant);
        result
            .held_mut()
            .reservations
            .pop()
            .expect("a charge to settle")
            .1
    };
    let reserved = reserve(6);
    assert_eq!(policy.granted(NOW), Some(4));
    reserved.settle(2, NOW);
    assert_eq!((policy.granted(NOW), policy.remaining(NOW)), (Some(8), 0));
    reserve(1).settle(5, NOW);
    assert_eq!(policy.granted(NOW), Some(3), "more is taken from it, too");
    reserve(1).settle(9, NOW);
    assert_eq!(policy.granted(NOW), Some(0), "and no debt is made");
    // A later grant gets nothing back from charges to the one before.
    policy.grant(4, 60);
    let reserved = reserve(3);
    policy.grant(4, 60);
    reserved.settle(0, NOW);
    assert_eq!(policy.granted(NOW), Some(4));
}

#[test]
fn concurrent_requests_get_exactly_the_quota_and_the_grant() {
    const QUOTA: u32 = 5_000;
    const GRANTED: u32 = 3_000;
    let policy = Policy::new(Algorithm::FixedWindow(FixedWindow::new(
        quota(QUOTA),
        Start::EPOCH,
    )));
    let beside = Policy::new(Algorithm::FixedWindow(FixedWindow::new(
        quota(u32::MAX),
        Start::EPOCH,
    )));
    policy.grant(GRANTED, 60);
    let (admitted, start) = (AtomicU32::new(0), Barrier::new(4));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..QUOTA {
                    let result = ask_all(&[&policy, &beside], 1, NOW);
                    admitted.fetch_add(u32::from(result.verdict.is_admitted()), Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.load(Relaxed), QUOTA + GRANTED);
    assert_eq!(
        beside.remaining(NOW),
        u32::MAX - QUOTA - GRANTED,
        "refusals charge nothing"
    );
}

#[test]
fn a_reset_bucket_is_whole_and_gets_nothing_back() {
    for algorithm in [
        gcra(3),
        Algorithm::SlidingLog(SlidingLog::new(quota(3)).expect("a log")),
    ] {
        let policy = Policy::new(algorithm);
        let policies = [&policy];
        let source = Policies(&policies);
        let mut set = ChargeSet::new(&Store::Memory, &source, NOW);
        set.push(policy.charge(0, 2, true, NOW));
        let mut result = ChargeResult::default();
        set.charge(&mut result);
        assert_eq!(policy.buckets.units_in_flight(key(1)), 2);
        assert!(policy.buckets.reset(key(1)));
        assert_eq!(policy.remaining(NOW), 3);
        ask(&policy, 1, NOW);
        result
            .held_mut()
            .reservations
            .pop()
            .expect("a charge")
            .1
            .settle(0, NOW);
        assert_eq!(
            policy.remaining(NOW),
            2,
            "the charge from before is gone already"
        );
    }
}

#[test]
fn a_banned_key_is_refused_until_the_end_and_charged_nowhere() {
    let policy = Policy::new(gcra(3));
    policy.grant(1, 600);
    let keys = policy.steering.keys();
    ban(keys, 1, 60).expect("there is room");
    let (is_admitted, _, decision) = ask(&policy, 1, NOW);
    assert!(!is_admitted);
    let retry_at = Some(after(60));
    assert_eq!(decision.outcome, Outcome::Refuse { retry_at });
    assert_eq!((policy.remaining(NOW), policy.granted(NOW)), (3, Some(1)));
    assert!(ask(&policy, 1, after(60)).0, "it is over");
    ban(keys, 1, 120).expect("there is room");
    assert!(!ask(&policy, 1, after(60)).0);
    assert_eq!(keys.count(OperatorActionKind::Ban, NOW), 1);
    change(keys, 1, KeyChange::Unban).expect("it needs no room");
    assert!(ask(&policy, 1, NOW).0);
}

#[test]
fn what_is_over_is_dropped() {
    let policy = Policy::new(gcra(3));
    let keys = policy.steering.keys();
    for bits in 1..=1_000 {
        ban(keys, bits, bits).expect("there is room");
    }
    keys.sweep(after(0));
    assert_eq!(keys.count(OperatorActionKind::Ban, NOW), 1_000);
    keys.sweep(after(500));
    assert_eq!(keys.rules(NOW).count(), 500);
    keys.sweep(after(1_000));
    assert!(!keys.is_any());
}

#[test]
fn the_number_of_keys_is_bounded_and_no_ban_gives_way() {
    let policy = Policy::new(gcra(3));
    let keys = policy.steering.keys();
    let refused = (1..).find_map(|bits| Some((bits, ban(keys, bits, 60).err()?)));
    assert_eq!(refused, Some((65_537, TooManyKeys::Steered)));
    assert_eq!(grant(keys, 65_537, 1, 60), Err(TooManyKeys::Steered));
    assert!(ban(keys, 1, 90).is_ok(), "a known key needs no room");
    keys.sweep(after(60));
    assert!(ban(keys, 65_537, 90).is_ok());
}

#[test]
fn a_grant_never_takes_the_place_of_another() {
    let policy = Policy::new(gcra(3));
    let keys = policy.steering.keys();
    let all = (1..=20_000_u64).map(|bits| bits.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let granted: Vec<_> = all
        .filter(|bits| match grant(keys, *bits, 5, 60) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error, TooManyKeys::Granted);
                false
            }
        })
        .collect();
    assert!(
        (4_000..20_000).contains(&granted.len()),
        "{}",
        granted.len()
    );
    for bits in granted {
        assert_eq!(
            keys.grant_of(key(bits), key(bits), NOW).map(|one| one.left),
            Some(5)
        );
    }
}

/// The clock of Redis is 5 s behind this machine's, or ahead.
#[test]
fn a_shared_grant_lasts_as_long_as_it_was_granted_for() {
    for clock_offset in [-5_000_000_i64, 0, 5_000_000] {
        for home in [Home::Redis(OnStoreError::Local), Home::Synchronised(HOUR)] {
            let keys = SteeredKeys::new("p", home, &Registry::default());
            let at = NOW.saturating_add_signed(clock_offset);
            let event = KeyEvent {
                policy: "p".into(),
                key: key(1),
                change: KeyChange::Grant {
                    units: 4,
                    until: after(3),
                },
                by: Attribution::default(),
                at,
                keep: at.saturating_add(Duration::from_secs(3)),
            };
            keys.apply(&event, clock_offset, NOW);
            let is_granted = |now| {
                keys.find(key(1), now)
                    .is_some_and(|found| found.granted_until.is_some())
            };
            let end = after(3);
            assert!(is_granted(NOW) && is_granted(end.saturating_sub_micros(1)));
            assert!(!is_granted(end), "{clock_offset} {home:?}");
        }
    }
}

/// A replaced action stays replaced for a machine that starts once both have been announced.
#[test]
fn what_an_action_replaced_does_not_return_when_that_is_over() {
    let (hour, minute) = (HOUR, Duration::from_secs(60));
    let until = after(3_600);
    let (ban, grant) = (KeyChange::Ban { until }, |units| KeyChange::Grant {
        units,
        until,
    });
    for (first, second) in [
        (ban, KeyChange::Unban),
        (ban, ban),
        (grant(5), grant(0)),
        (grant(5), grant(3)),
    ] {
        for (now, is_felt) in [(after(10), true), (after(70), false)] {
            let keys =
                SteeredKeys::new("p", Home::Redis(OnStoreError::Local), &Registry::default());
            let event = |change, at: Timestamp, length| KeyEvent {
                policy: "p".into(),
                key: key(1),
                change,
                by: Attribution::default(),
                at,
                keep: at.saturating_add(length),
            };
            keys.apply(&event(first, NOW, hour), 0, now);
            keys.apply(&event(second, after(1), minute), 0, now);
            let lasts = matches!(
                second,
                KeyChange::Ban { .. } | KeyChange::Grant { units: 1.., .. }
            );
            let left = keys.rules(now).count();
            assert_eq!(left, usize::from(lasts && is_felt), "{first:?} {second:?}");
        }
    }
}
