//! Every pair of algorithms on one request at any instants, compared with two buckets that decide
//! alone.

use std::time::Duration;

use crate::algorithms::{
    Concurrency, FixedWindow, Gcra, IntervalRefill, LeakyBucket, OldestPart, SlidingCounters,
    SlidingLog, SlidingWindow, Start,
};
use crate::calendar::{Calendar, Period};
use crate::memory::charge::tests::charge_with_shadow;
use crate::{
    Algorithm, Charge, Decision, Fingerprint, OnFull, Outcome, Permit, Quota, Table, Timestamp,
    charge_all,
};
use jiff::tz::TimeZone;
use proptest::prelude::*;

const KEY: u64 = 7;

/// Each algorithm in each of its forms.
fn algorithms((limit, part): (u32, u64)) -> Vec<Algorithm> {
    let window = Duration::from_micros(part * 7);
    let quota = Quota::new(limit, window).expect("a quota");
    let gcra = |burst| Gcra::new(quota, burst).expect("a short burst");
    let fixed = |start| Algorithm::FixedWindow(FixedWindow::new(quota, start));
    let days = |zone| {
        let zone = TimeZone::get(zone).expect("there is such a zone");
        std::sync::Arc::new(Calendar::new(Period::Day, zone))
    };
    let two = |oldest| Algorithm::SlidingWindow(SlidingWindow::new(quota, oldest));
    let many = |oldest| {
        let counters = SlidingCounters::new(quota, 7, oldest);
        Algorithm::SlidingCounters(counters.expect("equal parts"))
    };
    let refill = IntervalRefill::new(limit + 2, limit, window).expect("a refill");
    let queue = |free| LeakyBucket::new(quota, limit, window, free).expect("a queue");
    vec![
        Algorithm::Gcra(gcra(limit)),
        Algorithm::TokenBucket(gcra(limit + 3)),
        Algorithm::IntervalRefill(refill),
        Algorithm::LeakyBucket(queue(0)),
        Algorithm::LeakyBucket(queue(2)),
        fixed(Start::EPOCH),
        fixed(Start::FirstRequest),
        fixed(Start::Staggered),
        Algorithm::FixedWindow(FixedWindow::periods(
            limit.into(),
            days("Europe/Berlin"),
            Start::Calendar,
        )),
        Algorithm::FixedWindow(FixedWindow::periods(
            limit.into(),
            days("Asia/Tokyo"),
            Start::Local,
        )),
        two(OldestPart::Weighted),
        two(OldestPart::Whole),
        two(OldestPart::Ignored),
        many(OldestPart::Weighted),
        many(OldestPart::Whole),
        many(OldestPart::Ignored),
        Algorithm::SlidingLog(SlidingLog::new(quota).expect("a short log")),
        Algorithm::Concurrency(Concurrency::new(limit, Duration::from_millis(1))),
    ]
}

/// A bucket, and its units in use, which time does not return.
struct Bucket {
    table: Table,
    held: Vec<Permit>,
}

impl Bucket {
    fn new(algorithm: &Algorithm) -> Self {
        Self {
            table: Table::new("test", algorithm.clone(), 16, OnFull::Forget),
            held: Vec::new(),
        }
    }

    fn charge(&self, cost: u32) -> Charge<'_> {
        Charge::new(&self.table, Fingerprint::from_bits(KEY), cost)
    }

    /// The decision on `cost` units, without the parts that depend on the bucket's own history.
    fn peek(&self, cost: u32, now: Timestamp) -> Told {
        told(&self.charge(cost).peek(now))
    }

    fn hold(&mut self, cost: u32) {
        let permit = self.charge(cost).permit().filter(|_| cost > 0);
        self.held.extend(permit);
    }

    fn is_permits(&self) -> bool {
        self.table.algorithm().is_concurrency()
    }
}

type Told = (Outcome, u32, u32, Timestamp);

fn told(decision: &Decision) -> Told {
    let Decision {
        outcome,
        remaining,
        capacity,
        reset,
        ..
    } = *decision;
    (
        outcome,
        remaining.try_into().unwrap(),
        capacity.try_into().unwrap(),
        reset,
    )
}

/// The end of a refusal, the latest instant if it has none; `None` for an admission.
fn refusal(told: &Told) -> Option<(bool, Option<Timestamp>)> {
    match told.0 {
        Outcome::Refuse { retry_at } => Some((retry_at.is_none(), retry_at)),
        Outcome::Admit | Outcome::Delay { .. } => None,
    }
}

/// A request: the time since the last one, its cost for each policy, and whether the oldest one in
/// flight ends before it.
#[derive(Clone, Debug)]
struct Step {
    gap: u64,
    costs: [u32; 2],
    ends: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap =
        prop_oneof![3 => Just(0), 3 => 1..60_u64, 3 => 60..3_000_u64, 1 => Just(43_200_000_000)];
    let cost = || prop_oneof![6 => Just(1_u32), 2 => 0..4_u32, 1 => 4..12_u32];
    let step = (gap, [cost(), cost()], any::<bool>());
    let step = step.prop_map(|(gap, costs, ends)| Step { gap, costs, ends });
    prop::collection::vec(step, 1..30)
}

fn quotas() -> impl Strategy<Value = (u32, u64)> {
    (1..6_u32, 1..300_u64)
}

/// Runs `check` over every pair: two buckets that are charged together, and two that are charged
/// alone by the pair's outcome.
fn for_every_pair(
    quotas: [(u32, u64); 2],
    steps: &[Step],
    check: impl Fn(&mut [Bucket; 2], &mut [Bucket; 2], &Step, Timestamp) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let [left, right] = quotas.map(algorithms);
    for one in &left {
        for other in &right {
            let pair = || [Bucket::new(one), Bucket::new(other)];
            let (mut together, mut alone) = (pair(), pair());
            let mut now = Timestamp::from_micros(1_795_236_060_000_000);
            for (number, step) in steps.iter().enumerate() {
                now = now.saturating_add_micros(step.gap);
                for bucket in together.iter_mut().chain(&mut alone) {
                    if step.ends && !bucket.held.is_empty() {
                        drop(bucket.held.remove(0));
                    }
                }
                check(&mut together, &mut alone, step, now).map_err(|error| {
                    TestCaseError::fail(format!("{one:?} and {other:?}, step {number}: {error}"))
                })?;
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A request is charged to both or to none; the verdict is that of the deciding bucket, and its
    /// instant is exact.
    #[test]
    fn each_pair_charges_all_or_nothing_and_its_retry_after_is_exact(
        quotas in [quotas(), quotas()], steps in steps(),
    ) {
        for_every_pair(quotas, &steps, |together, alone, step, now| {
            let [a, b] = step.costs;
            let says = [alone[0].peek(a, now), alone[1].peek(b, now)];
            let refusals = says.each_ref().map(refusal);
            let verdict = charge_all(&[together[0].charge(a), together[1].charge(b)], now);
            prop_assert_eq!(verdict.is_admitted(), refusals == [None, None]);
            let deciding = verdict.decision().map(told).expect("there are two");
            if verdict.is_admitted() {
                for (place, cost) in step.costs.into_iter().enumerate() {
                    let made = charge_all(&[alone[place].charge(cost)], now);
                    prop_assert_eq!(told(&verdict.decisions[place]), told(&made.decisions[0]));
                    together[place].hold(cost);
                    alone[place].hold(cost);
                }
                let share = |told: &Told, of: u32| u64::from(told.1) * u64::from(of);
                for decision in verdict.decisions.iter().map(told) {
                    prop_assert!(share(&deciding, decision.2) <= share(&decision, deciding.2));
                }
            } else {
                prop_assert_eq!(refusal(&deciding), refusals.into_iter().flatten().max());
                for place in 0..2 {
                    let (after, before) = (&together[place], &alone[place]);
                    for cost in 0..3 {
                        prop_assert_eq!(after.peek(cost, now), before.peek(cost, now));
                    }
                }
                let guessed = (0..2).any(|place| refusals[place].is_some() && together[place].is_permits());
                if let (Outcome::Refuse { retry_at: Some(at) }, false) = (deciding.0, guessed) {
                    let is_admitted = |now| {
                        let says = [together[0].peek(a, now), together[1].peek(b, now)];
                        says.iter().all(|told| refusal(told).is_none())
                    };
                    prop_assert!(at > now && !is_admitted(at.saturating_sub_micros(1)));
                    prop_assert!(is_admitted(at));
                }
            }
            Ok(())
        })?;
    }

    /// A shadowed bucket changes nothing for the other, and is charged alone for requests that the
    /// other admits.
    #[test]
    fn a_shadowed_policy_changes_nothing_for_an_enforced_one(
        quotas in [quotas(), quotas()], steps in steps(),
    ) {
        for_every_pair(quotas, &steps, |together, alone, step, now| {
            let [a, b] = step.costs;
            let watched = charge_with_shadow(&[together[0].charge(a), together[1].charge(b)], 1, now);
            let enforced = charge_all(&[alone[0].charge(a)], now);
            prop_assert_eq!(watched.is_admitted(), enforced.is_admitted());
            prop_assert_eq!(watched.deciding, 0);
            prop_assert_eq!(told(&watched.decisions[0]), told(&enforced.decisions[0]));
            if enforced.is_admitted() {
                let made = charge_all(&[alone[1].charge(b)], now);
                prop_assert_eq!(told(&watched.decisions[1]), told(&made.decisions[0]));
                for (place, cost) in step.costs.into_iter().enumerate() {
                    if watched.decisions[place].is_admitted() {
                        together[place].hold(cost);
                        alone[place].hold(cost);
                    }
                }
            }
            for place in 0..2 {
                prop_assert_eq!(together[place].peek(1, now), alone[place].peek(1, now));
            }
            Ok(())
        })?;
    }
}
