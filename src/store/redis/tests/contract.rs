//! The promises of every store, over histories from proptest. Each decision is compared with a
//! plain model: the limiter's pure functions over a map of cells. A further store joins by one
//! implementation of [`Store`] and a module of tests like [`in_redis`].

mod definitions;
mod ladders;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::limiter::algorithms::{
    FixedWindow, Gcra, IntervalRefill, LeakyBucket, OldestPart, SlidingCounters, SlidingLog,
    SlidingWindow, Start,
};
use crate::limiter::calendar::{Calendar, Period};
use crate::limiter::ring::{BucketState, RingMemory};
use crate::limiter::{Algorithm, Cell, Decision, Demand, Fingerprint, Outcome, Quota, Verdict};
use crate::store::redis::script_call::{ChargeRequest, ChargedRefusals, Tier};
use crate::store::{self, OnFull, Refusals, Table};
use jiff::tz::TimeZone;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};

use super::scripted::{Scripts, SharedRedis};

/// Keys of a history: few, so that each is charged often.
const KEYS: u64 = 4;

/// A store of buckets.
trait Store {
    /// Decides these charges together at `now`, each of another policy, and makes all of them or
    /// none.
    fn charge(&mut self, charges: &[Charge], now: Timestamp) -> Verdict;
}

/// A charge to a bucket.
#[derive(Clone, Copy, Debug)]
struct Charge {
    /// The policy's place in the list that the store was made for.
    policy: usize,
    /// Below [`KEYS`].
    key: u64,
    cost: u32,
    /// Units to leave.
    kept: u64,
}

/// A request.
#[derive(Clone, Debug)]
struct Step {
    now: u64,
    charges: Vec<Charge>,
}

/// Makes an empty store for these policies.
type Maker<'a> = &'a dyn Fn(&[Algorithm]) -> Box<dyn Store>;

fn memory(policies: &[Algorithm]) -> Box<dyn Store> {
    Box::new(Memory::new(policies))
}

/// The memory store.
struct Memory(Vec<Table>);

impl Memory {
    fn new(policies: &[Algorithm]) -> Self {
        let table = |policy: &Algorithm| Table::new("test", policy.clone(), 1_024, OnFull::Forget);
        Memory(policies.iter().map(table).collect())
    }
}

impl Store for Memory {
    fn charge(&mut self, charges: &[Charge], now: Timestamp) -> Verdict {
        let charges: Vec<_> = charges
            .iter()
            .map(|charge| store::Charge {
                table: &self.0[charge.policy],
                key: fingerprint(charge.key),
                demand: Demand {
                    cost: charge.cost,
                    required: 0,
                    kept: charge.kept,
                },
                window_end: None,
            })
            .collect();
        crate::limiter::charge_all(&charges, now)
    }
}

/// The Redis store, under names of its own.
struct Redis {
    policies: Vec<Algorithm>,
    prefix: String,
    scripts: Scripts,
}

impl Redis {
    fn new(server: &SharedRedis, policies: &[Algorithm]) -> Self {
        Self {
            policies: policies.to_vec(),
            prefix: server.prefix(),
            scripts: Scripts::new(server),
        }
    }
}

impl Store for Redis {
    fn charge(&mut self, charges: &[Charge], now: Timestamp) -> Verdict {
        let policies = self.policies.clone();
        let name = |charge: &Charge| format!("{}{}:{}", self.prefix, charge.policy, charge.key);
        let names: Vec<_> = charges.iter().map(name).collect();
        let asked = charges
            .iter()
            .zip(&names)
            .map(|(charge, name)| store::redis::BucketCharge {
                algorithm: &policies[charge.policy],
                name: name.as_bytes(),
                key: fingerprint(charge.key),
                demand: Demand {
                    cost: charge.cost,
                    required: 0,
                    kept: charge.kept,
                },
                charged_refusals: ChargedRefusals::None,
                settles: false,
                period: None,
                tier: Tier::First,
            });
        let asked: Vec<_> = asked.collect();
        let request = ChargeRequest {
            charges: &asked,
            enforced: asked.len(),
            ask: store::Ask::Charge,
            // As if the server's clock differed from the estimate.
            estimated_now: now.saturating_sub_micros(86_400_000_000),
            lease: "none",
            undecided: "",
            undecided_for: None,
        };
        self.scripts.now = Some(now);
        self.scripts.decide(&request, now).verdict(asked.len())
    }
}

/// Spread, so that no two keys share a scarce place.
fn fingerprint(key: u64) -> Fingerprint {
    Fingerprint::from_bits(key * (u64::MAX / KEYS) + 1)
}

/// The model: the limiter's pure functions, one request after the other.
struct Model {
    policies: Vec<Algorithm>,
    buckets: BTreeMap<(usize, u64), Bucket>,
}

/// A cell, and memory for its ring alone if it has one.
struct Bucket {
    key: Fingerprint,
    cell: Cell,
    words: Option<RingMemory>,
    /// The number of chunks of the ring, numbered from 1.
    chunks: u32,
}

impl Bucket {
    fn new(algorithm: &Algorithm, key: u64) -> Self {
        let shape = algorithm.shape();
        Bucket {
            key: fingerprint(key),
            cell: Cell::EMPTY,
            words: shape.map(|shape| RingMemory::new(shape, shape.max_chunks())),
            chunks: 0,
        }
    }

    fn state(&self, algorithm: &Algorithm, now: Timestamp) -> BucketState<'_> {
        BucketState {
            cell: algorithm.open(self.cell, self.key, None, now),
            words: self.words.as_ref(),
        }
    }

    fn decide(&self, algorithm: &Algorithm, now: Timestamp, (cost, kept): (u32, u64)) -> Decision {
        let demand = Demand {
            cost,
            required: 0,
            kept,
        };
        algorithm.decide_keeping(self.state(algorithm, now), now, demand)
    }

    /// Makes the decided charge.
    fn charge(&mut self, algorithm: &Algorithm, now: Timestamp, cost: u32, decided: &Decision) {
        let before = self.state(algorithm, now);
        let Some(words) = &self.words else {
            self.cell = decided.cell;
            return;
        };
        let had = if before.cell.a == 0 { 0 } else { self.chunks };
        let has = had + algorithm.missing_chunks(before, decided.cell);
        let mut chunks = (had + 1..=has).inspect(|chunk| words.clear(*chunk));
        let cell = algorithm.record(before, decided.cell, cost, words, &mut chunks);
        assert_eq!(chunks.next(), None, "what it lacks is what it takes");
        (self.cell, self.chunks) = (cell, has);
    }
}

impl Model {
    fn new(policies: &[Algorithm]) -> Self {
        Model {
            policies: policies.to_vec(),
            buckets: BTreeMap::new(),
        }
    }

    fn bucket(&mut self, charge: &Charge) -> (&Algorithm, &mut Bucket) {
        let algorithm = &self.policies[charge.policy];
        let bucket = self.buckets.entry((charge.policy, charge.key));
        (
            algorithm,
            bucket.or_insert_with(|| Bucket::new(algorithm, charge.key)),
        )
    }

    fn decide(&mut self, charge: &Charge, now: Timestamp, cost: u32) -> Decision {
        let (algorithm, bucket) = self.bucket(charge);
        // The first request gives up an expired ring, also if it is refused.
        if bucket.words.is_some() && !bucket.cell.is_live(now) {
            *bucket = Bucket::new(algorithm, charge.key);
        }
        bucket.decide(algorithm, now, (cost, charge.kept))
    }
}

impl Store for Model {
    fn charge(&mut self, charges: &[Charge], now: Timestamp) -> Verdict {
        let asked = charges.iter();
        let asked: Vec<_> = asked
            .map(|charge| self.decide(charge, now, charge.cost))
            .collect();
        let is_admitted = asked.iter().all(Decision::is_admitted);
        let mut verdict = Verdict::default();
        for (charge, decision) in charges.iter().zip(&asked) {
            verdict.push(*decision);
            // A cost of 0 only asks, and changes nothing.
            if is_admitted && charge.cost > 0 {
                let (algorithm, bucket) = self.bucket(charge);
                bucket.charge(algorithm, now, charge.cost, decision);
            }
        }
        for (charge, decision) in charges.iter().zip(&mut verdict.decisions) {
            if !is_admitted && decision.is_admitted() {
                // It keeps its earlier state.
                *decision = self.decide(charge, now, 0);
            }
        }
        verdict
    }
}

/// The part of a decision that clients see. A store may keep a bucket in any form.
#[derive(Debug, PartialEq)]
struct Told {
    outcome: Outcome,
    remaining: u64,
    capacity: u64,
    reset: Timestamp,
    more_at: Option<Timestamp>,
}

/// The visible part of a verdict on `step`, for each charge.
fn told(policies: &[Algorithm], step: &Step, verdict: &Verdict) -> Vec<Told> {
    let decided = step.charges.iter().zip(&verdict.decisions);
    let tell = |(charge, decision): (&Charge, &Decision)| Told {
        outcome: decision.outcome,
        remaining: decision.remaining,
        capacity: decision.capacity,
        reset: decision.reset,
        more_at: policies[charge.policy].more_at(decision, at(step.now)),
    };
    decided.map(tell).collect()
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// Limits of 0 and 1 among them, and windows from a microsecond to hours.
fn quotas() -> impl Strategy<Value = Quota> {
    let limits = prop_oneof![1 => Just(0_u32), 1 => Just(1), 6 => 2..=12_u32, 1 => Just(u32::MAX)];
    let windows = prop_oneof![
        1..=3_u64,
        1..=2_000_u64,
        Just(1_000_000),
        Just(3_600_000_000)
    ];
    (limits, windows)
        .prop_map(|(limit, window)| Quota::new(limit, Duration::from_micros(window)).unwrap())
}

fn starts() -> impl Strategy<Value = Start> {
    let offsets = (0..=4_000_u64).prop_map(|offset| Start::Clock {
        offset: Duration::from_micros(offset),
    });
    prop_oneof![
        Just(Start::EPOCH),
        Just(Start::FirstRequest),
        Just(Start::Staggered),
        offsets
    ]
}

/// Calendar periods, some of which end during a history.
fn calendars() -> impl Strategy<Value = Arc<Calendar>> {
    let periods = prop_oneof![
        Just(Period::Day),
        Just(Period::Week),
        (1..=31_i8).prop_map(|anchor| Period::Month { anchor }),
        Just(Period::Year)
    ];
    let zones = prop::sample::select(vec!["UTC", "Europe/Berlin", "Pacific/Apia"]);
    (periods, zones).prop_map(|(period, name)| {
        let zone = TimeZone::get(name).expect("a zone");
        Arc::new(Calendar::new(period, zone))
    })
}

fn oldest() -> impl Strategy<Value = OldestPart> {
    prop_oneof![
        Just(OldestPart::Weighted),
        Just(OldestPart::Whole),
        Just(OldestPart::Ignored)
    ]
}

/// Windows of several parts, with rings of one chunk and of several.
fn counters() -> impl Strategy<Value = Algorithm> {
    let parts = prop_oneof![Just(1_u32), 2..=9_u32, Just(60), Just(3_600)];
    (quotas(), parts, oldest()).prop_map(|(quota, parts, oldest)| {
        let window = quota.window() * parts;
        let window = window.min(Duration::from_secs(86_400)) / parts * parts;
        let quota = Quota::new(quota.limit(), window).unwrap();
        Algorithm::SlidingCounters(SlidingCounters::new(quota, parts, oldest).unwrap())
    })
}

/// Logs of ticks of a microsecond and of several, of one chunk and of several.
fn logs() -> impl Strategy<Value = Algorithm> {
    let limits = prop_oneof![0..=1_u32, 2..=12_u32, 13..=90_u32];
    let windows = prop_oneof![
        1..=3_u64,
        1..=2_000_u64,
        Just(1_000_000),
        Just(86_400_000_007)
    ];
    (limits, windows).prop_map(|(limit, window)| {
        let quota = Quota::new(limit, Duration::from_micros(window)).unwrap();
        Algorithm::SlidingLog(SlidingLog::new(quota).unwrap())
    })
}

/// Few units of a window, or about as many as two or three of the largest costs.
fn many() -> impl Strategy<Value = u64> {
    let largest = u64::from(u32::MAX);
    prop_oneof![3 => 0..=12_u64, 1 => largest - 2..=largest + 2, 1 => 2 * largest..=3 * largest]
}

/// Every algorithm, in each of its forms.
fn algorithms() -> impl Strategy<Value = Algorithm> {
    let bursts =
        || (quotas(), 1..=12_u32).prop_map(|(quota, burst)| Gcra::new(quota, burst).unwrap());
    let refills =
        (0..=12_u32, 1..=15_u32, 1..=2_000_u64).prop_map(|(capacity, amount, interval)| {
            IntervalRefill::new(capacity, amount, Duration::from_micros(interval)).unwrap()
        });
    let waits = prop_oneof![Just(0), 1..=3_000_u64, Just(3_600_000_000)];
    let queues = (quotas(), 0..=12_u32, waits, 0..=4_u32).prop_map(|(quota, queue, wait, free)| {
        LeakyBucket::new(quota, queue, Duration::from_micros(wait), free).unwrap()
    });
    prop_oneof![
        queues.prop_map(Algorithm::LeakyBucket),
        bursts().prop_map(Algorithm::Gcra),
        bursts().prop_map(Algorithm::TokenBucket),
        refills.prop_map(Algorithm::IntervalRefill),
        (quotas(), starts())
            .prop_map(|(quota, start)| Algorithm::FixedWindow(FixedWindow::new(quota, start))),
        (many(), quotas(), starts()).prop_map(|(limit, quota, start)| {
            Algorithm::FixedWindow(FixedWindow::new(quota, start).with_limit(limit))
        }),
        (many(), calendars()).prop_map(|(limit, calendar)| {
            Algorithm::FixedWindow(FixedWindow::periods(limit, calendar, Start::Calendar))
        }),
        (many(), calendars()).prop_map(|(limit, calendar)| {
            Algorithm::FixedWindow(FixedWindow::periods(limit, calendar, Start::Local))
        }),
        (quotas(), oldest()).prop_map(|(quota, oldest)| {
            Algorithm::SlidingWindow(SlidingWindow::new(quota, oldest))
        }),
        counters(),
        logs(),
    ]
}

/// The gap between requests in microseconds: often none, sometimes negative.
fn gaps() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => Just(0_i64),
        4 => 1..=20_i64,
        3 => 1..=2_500_i64,
        2 => (0..=3_i64).prop_map(|seconds| seconds * 1_000_000),
        1 => Just(3_600_000_000),
        1 => (1..=40_i64).prop_map(|days| days * 86_400_000_000),
        2 => -2_500..=-1_i64,
        1 => Just(-3_600_000_000),
    ]
}

fn costs() -> impl Strategy<Value = u32> {
    prop_oneof![8 => Just(1_u32), 3 => 0..=5_u32, 2 => 10..=15_u32, 1 => Just(u32::MAX)]
}

/// A list of policies, and requests that are charged to some of them.
fn histories() -> impl Strategy<Value = (Vec<Algorithm>, Vec<Step>)> {
    let policies = prop::collection::vec(algorithms(), 1..=6);
    policies.prop_flat_map(|policies| {
        let charge = (any::<bool>(), 0..KEYS, costs(), kept());
        let charges = prop::collection::vec(charge, policies.len());
        let steps = prop::collection::vec((gaps(), charges), 1..80).prop_map(history);
        (Just(policies), steps).prop_map(|(policies, mut steps)| {
            for charge in steps.iter_mut().flat_map(|step| &mut step.charges) {
                charge.kept = charge.kept.min(most_kept(&policies[charge.policy]));
            }
            (policies, steps)
        })
    })
}

/// The most units that requests may have to leave.
fn most_kept(algorithm: &Algorithm) -> u64 {
    match algorithm {
        // A burst leaves one unit.
        Algorithm::Gcra(_) | Algorithm::TokenBucket(_) => algorithm.capacity().saturating_sub(1),
        Algorithm::FixedWindow(_)
        | Algorithm::SlidingWindow(_)
        | Algorithm::SlidingCounters(_)
        | Algorithm::SlidingLog(_) => algorithm.capacity(),
        _ => 0,
    }
}

fn kept() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(0_u64), 4 => 0..=14_u64, 1 => Just(u64::from(u32::MAX)), 1 => Just(u64::MAX)]
}

/// The gap before a request; for each policy, if it is charged, for which key, how much, and how
/// much has to stay.
type Drawn = (i64, Vec<(bool, u64, u32, u64)>);

fn history(steps: Vec<Drawn>) -> Vec<Step> {
    let mut now = 1_795_236_060_000_000_u64;
    let steps = steps.into_iter().map(|(gap, charges)| {
        now = now.saturating_add_signed(gap);
        let charges = charges.into_iter().enumerate();
        let charges = charges.filter(|(_, (is_asked, ..))| *is_asked);
        let charge = |(policy, (_, key, cost, kept))| Charge {
            policy,
            key,
            cost,
            kept,
        };
        Step {
            now,
            charges: charges.map(charge).collect(),
        }
    });
    steps.collect()
}

/// The instant at which a refused request is admitted, if ever.
fn retry_at(verdict: &Verdict) -> Option<Timestamp> {
    match verdict.decision()?.outcome {
        Outcome::Refuse { retry_at } => retry_at,
        Outcome::Admit | Outcome::Delay { .. } => None,
    }
}

fn over_histories(cases: u32, check: impl Fn(&[Algorithm], &[Step]) -> TestCaseResult) {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases));
    let checked = runner.run(&histories(), |(policies, steps)| check(&policies, &steps));
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}

fn every_decision_is_that_of_the_pure_functions(
    make: Maker<'_>,
    policies: &[Algorithm],
    steps: &[Step],
) -> TestCaseResult {
    let (mut store, mut model) = (make(policies), Model::new(policies));
    for (number, step) in steps.iter().enumerate() {
        let now = at(step.now);
        let verdict = store.charge(&step.charges, now);
        let expected = model.charge(&step.charges, now);
        let tell = |verdict: &Verdict| told(policies, step, verdict);
        prop_assert_eq!(
            tell(&verdict),
            tell(&expected),
            "step {}: {:?}",
            number,
            step
        );
        prop_assert_eq!(
            verdict.deciding,
            expected.deciding,
            "step {}: {:?}",
            number,
            step
        );
    }
    Ok(())
}

fn a_refused_request_is_admitted_at_the_announced_instant_and_not_before(
    make: Maker<'_>,
    policies: &[Algorithm],
    steps: &[Step],
) -> TestCaseResult {
    // Each probe asks a store that has seen the same history.
    let probe = |seen: usize, now: Timestamp| {
        let mut store = make(policies);
        for step in &steps[..seen] {
            store.charge(&step.charges, at(step.now));
        }
        store.charge(&steps[seen].charges, now).is_admitted()
    };
    let (mut store, mut latest) = (make(policies), 0);
    for (number, step) in steps.iter().enumerate() {
        latest = latest.max(step.now);
        let verdict = store.charge(&step.charges, at(step.now));
        // A wait that began in the past may be over at once.
        let retry_at = retry_at(&verdict).filter(|_| step.now == latest);
        if let Some(retry_at) = retry_at {
            prop_assert!(retry_at > at(step.now));
            prop_assert!(
                !probe(number, retry_at.saturating_sub_micros(1)),
                "step {}",
                number
            );
            prop_assert!(probe(number, retry_at), "step {}", number);
        }
    }
    Ok(())
}

fn an_earlier_instant_gains_nothing_over_the_latest_seen(
    make: Maker<'_>,
    policies: &[Algorithm],
    steps: &[Step],
) -> TestCaseResult {
    for policy in 0..policies.len() {
        let ask = |back: u64| {
            let (mut store, mut latest) = (make(policies), 0);
            for step in steps {
                latest = latest.max(step.now);
                store.charge(&step.charges, at(latest));
            }
            // Seen by the bucket, not by the store alone.
            let seen = Charge {
                policy,
                key: 0,
                cost: 1,
                kept: 0,
            };
            store.charge(&[seen], at(latest));
            let asked = Charge { cost: 0, ..seen };
            store
                .charge(&[asked], at(latest.saturating_sub(back)))
                .decisions[0]
                .remaining
        };
        for back in [1, 1_000, 4_000_000] {
            prop_assert!(ask(back) <= ask(0), "policy {}, {} back", policy, back);
        }
    }
    Ok(())
}

mod in_memory {
    use super::*;

    #[test]
    fn every_decision_is_that_of_the_pure_functions() {
        over_histories(512, |policies, steps| {
            super::every_decision_is_that_of_the_pure_functions(&memory, policies, steps)
        });
    }

    #[test]
    fn a_refused_request_is_admitted_at_the_announced_instant_and_not_before() {
        over_histories(512, |policies, steps| {
            super::a_refused_request_is_admitted_at_the_announced_instant_and_not_before(
                &memory, policies, steps,
            )
        });
    }

    #[test]
    fn an_earlier_instant_gains_nothing_over_the_latest_seen() {
        over_histories(512, |policies, steps| {
            super::an_earlier_instant_gains_nothing_over_the_latest_seen(&memory, policies, steps)
        });
    }

    #[test]
    fn a_cost_above_the_quota_and_a_quota_of_nothing_are_refused_for_ever() {
        super::a_cost_above_the_quota_and_a_quota_of_nothing_are_refused_for_ever(&memory);
    }
}

/// Both overflowed once.
#[test]
fn extreme_numbers_are_decided() {
    let table = |algorithm| {
        Table::new("test", algorithm, 1_024, OnFull::Forget).with_refusals(Refusals::Charged)
    };
    let charge = |table: &Table, cost, now| {
        let key = fingerprint(1);
        let charge = store::Charge::new(table, key, cost);
        crate::limiter::charge_all(&[charge], at(now)).decisions[0]
    };
    // Debts in every part, that come to more than 2^32 units.
    let quota = Quota::new(u32::MAX, Duration::from_secs(7)).unwrap();
    let counters = SlidingCounters::new(quota, 7, OldestPart::Whole).unwrap();
    let counters = table(Algorithm::SlidingCounters(counters));
    let told: Vec<_> = (1..20)
        .map(|second| charge(&counters, u32::MAX, second * 1_000_000).is_admitted())
        .collect();
    assert_eq!(told.iter().filter(|is_admitted| **is_admitted).count(), 1);
    // A clock that steps back by years beside a refill of 2^32 tokens a microsecond.
    let refill = IntervalRefill::new(9, u32::MAX, Duration::from_micros(1)).unwrap();
    let refill = table(Algorithm::IntervalRefill(refill));
    let year = 31_536_000_000_000;
    assert!(charge(&refill, 9, 50 * year).is_admitted());
    assert_eq!(charge(&refill, 1, year).remaining, 0);
    assert!(!charge(&refill, 1, year).is_admitted());
    assert!(charge(&refill, 9, 50 * year + 1).is_admitted());
}

/// Fewer histories: each decision is a round trip.
mod in_redis {
    use super::*;

    #[test]
    fn every_decision_is_that_of_the_pure_functions() {
        let server = SharedRedis::new();
        over_histories(256, |policies, steps| {
            let make: Maker<'_> = &|policies| Box::new(Redis::new(&server, policies));
            super::every_decision_is_that_of_the_pure_functions(make, policies, steps)
        });
    }

    #[test]
    fn a_refused_request_is_admitted_at_the_announced_instant_and_not_before() {
        let server = SharedRedis::new();
        over_histories(12, |policies, steps| {
            let make: Maker<'_> = &|policies| Box::new(Redis::new(&server, policies));
            super::a_refused_request_is_admitted_at_the_announced_instant_and_not_before(
                make, policies, steps,
            )
        });
    }

    #[test]
    fn an_earlier_instant_gains_nothing_over_the_latest_seen() {
        let server = SharedRedis::new();
        over_histories(12, |policies, steps| {
            let make: Maker<'_> = &|policies| Box::new(Redis::new(&server, policies));
            super::an_earlier_instant_gains_nothing_over_the_latest_seen(make, policies, steps)
        });
    }

    #[test]
    fn a_cost_above_the_quota_and_a_quota_of_nothing_are_refused_for_ever() {
        let server = SharedRedis::new();
        super::a_cost_above_the_quota_and_a_quota_of_nothing_are_refused_for_ever(&|policies| {
            Box::new(Redis::new(&server, policies))
        });
    }
}

fn a_cost_above_the_quota_and_a_quota_of_nothing_are_refused_for_ever(make: Maker<'_>) {
    let quota = |limit| Quota::new(limit, Duration::from_secs(1)).unwrap();
    let month = Period::Month { anchor: 31 };
    let month = Arc::new(Calendar::new(month, TimeZone::UTC));
    let all = |limit: u32| {
        let quota = quota(limit);
        [
            Algorithm::Gcra(Gcra::new(quota, limit.max(1)).unwrap()),
            Algorithm::TokenBucket(Gcra::new(quota, limit.max(1)).unwrap()),
            Algorithm::FixedWindow(FixedWindow::new(quota, Start::EPOCH)),
            Algorithm::FixedWindow(FixedWindow::new(quota, Start::FirstRequest)),
            Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Weighted)),
            Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Whole)),
            Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Ignored)),
            Algorithm::FixedWindow(FixedWindow::new(quota, Start::Staggered)),
            Algorithm::FixedWindow(FixedWindow::periods(
                limit.into(),
                month.clone(),
                Start::Calendar,
            )),
            Algorithm::LeakyBucket(
                LeakyBucket::new(quota, limit.saturating_sub(1), Duration::MAX, 0).unwrap(),
            ),
            Algorithm::IntervalRefill(IntervalRefill::new(limit, 1, quota.window()).unwrap()),
            Algorithm::SlidingCounters(
                SlidingCounters::new(quota, 10, OldestPart::Weighted).unwrap(),
            ),
            Algorithm::SlidingLog(SlidingLog::new(quota).unwrap()),
        ]
    };
    for (limit, cost) in [(0, 1), (1, 2), (7, 8), (7, u32::MAX)] {
        let policies = all(limit);
        let mut store = make(&policies);
        {
            for (policy, algorithm) in policies.iter().enumerate() {
                let charge = Charge {
                    policy,
                    key: 1,
                    cost,
                    kept: 0,
                };
                let verdict = store.charge(&[charge], at(1_000_000));
                let never = Outcome::Refuse { retry_at: None };
                let decision = &verdict.decisions[0];
                assert_eq!(decision.outcome, never, "{algorithm:?}");
                assert_eq!(
                    (decision.remaining, decision.reset),
                    (limit.into(), at(1_000_000))
                );
            }
        }
    }
}
