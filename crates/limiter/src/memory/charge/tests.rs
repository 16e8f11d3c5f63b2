//! All or nothing, one after another and from many threads at once.

mod pairs;
mod stated_limits;
mod zones;

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::algorithms::{
    Concurrency, FixedWindow, Gcra, IntervalRefill, LeakyBucket, OldestPart, SlidingCounters,
    SlidingLog, SlidingWindow, Start,
};
use crate::{Algorithm, OnFull, Outcome, Quota, Refusals};

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

fn hourly(limit: u32) -> Quota {
    Quota::new(limit, Duration::from_secs(3600)).unwrap()
}

fn algorithms(limit: u32) -> [Algorithm; 9] {
    let quota = hourly(limit);
    [
        Algorithm::Gcra(Gcra::new(quota, limit).unwrap()),
        Algorithm::TokenBucket(Gcra::new(quota, limit).unwrap()),
        Algorithm::IntervalRefill(IntervalRefill::new(limit, 10, quota.window()).unwrap()),
        Algorithm::LeakyBucket(LeakyBucket::new(quota, limit - 1, Duration::MAX, 0).unwrap()),
        Algorithm::FixedWindow(FixedWindow::new(quota, Start::FirstRequest)),
        Algorithm::FixedWindow(FixedWindow::new(quota, Start::Staggered)),
        Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Weighted)),
        Algorithm::SlidingCounters(SlidingCounters::new(quota, 60, OldestPart::Weighted).unwrap()),
        Algorithm::SlidingLog(SlidingLog::new(quota).unwrap()),
    ]
}

/// A line of so many places, with one more at its head, that moves each minute.
fn line(queue: u32) -> Table {
    let leaky = LeakyBucket::new(hourly(60), queue, Duration::MAX, 0).unwrap();
    Table::new("test", Algorithm::LeakyBucket(leaky), 16, OnFull::Forget)
}

fn window(limit: u32, keys: usize) -> Table {
    let algorithm = Algorithm::FixedWindow(FixedWindow::new(hourly(limit), Start::EPOCH));
    Table::new("test", algorithm, keys, OnFull::Forget)
}

/// Like [`charge_all`], with all but the first `enforced` charges in shadow.
pub(in crate::memory) fn charge_with_shadow(
    charges: &[Charge<'_>],
    enforced: usize,
    now: Timestamp,
) -> Verdict {
    let (mut claims, mut verdict) = (Claims::default(), Verdict::default());
    for (place, charge) in charges.iter().enumerate() {
        let role = if place < enforced {
            Role::Refuses
        } else {
            Role::Shadows
        };
        claims.push(role, [*charge]);
    }
    claims.decide(Ask::Charge, now, &mut verdict);
    verdict
}

fn key(bits: u64) -> Fingerprint {
    Fingerprint::from_bits(bits)
}

fn used(table: &Table, key: Fingerprint) -> u32 {
    let peek = table.peek(key, 0, NOW);
    (peek.capacity - peek.remaining).try_into().unwrap()
}

#[test]
fn a_request_without_limits_is_admitted() {
    assert!(charge_all(&[], NOW).is_admitted());
}

#[test]
fn a_refusal_by_one_policy_charges_none() {
    let (wide, narrow) = (window(10, 16), window(1, 16));
    let charges = [&wide, &narrow].map(|table| Charge::new(table, key(7), 1));
    assert!(charge_all(&charges, NOW).is_admitted());

    let refused = charge_all(&charges, NOW);
    assert!(!refused.is_admitted());
    assert_eq!(refused.deciding, 1);
    let [spared, spent] = [refused.decisions[0], refused.decisions[1]];
    assert_eq!((spared.outcome, spared.remaining), (Outcome::Admit, 9));
    assert_eq!((spent.is_admitted(), spent.remaining), (false, 0));
    assert_eq!(wide.peek(key(7), 0, NOW).remaining, 9);
}

#[test]
fn each_pair_of_algorithms_is_charged_all_or_nothing() {
    for wide in algorithms(50) {
        for narrow in algorithms(20) {
            for flip in [false, true] {
                let tables = [&wide, &narrow]
                    .map(|algorithm| Table::new("test", algorithm.clone(), 16, OnFull::Forget));
                let mut charges = tables.each_ref().map(|table| Charge::new(table, key(7), 7));
                if flip {
                    charges.reverse();
                }
                let kinds = format!("{} and {}", wide.kind(), narrow.kind());
                let admitted: Vec<_> = (0..5)
                    .map(|_| charge_all(&charges, NOW).is_admitted())
                    .collect();
                assert_eq!(admitted, [true, true, false, false, false], "{kinds}");
                assert_eq!(
                    tables.each_ref().map(|table| used(table, key(7))),
                    [14, 14],
                    "{kinds}"
                );
                let smaller = charges.map(|charge| Charge {
                    demand: Demand::of(6),
                    ..charge
                });
                assert!(charge_all(&smaller, NOW).is_admitted(), "{kinds}");
                assert_eq!(
                    tables.each_ref().map(|table| used(table, key(7))),
                    [20, 20],
                    "{kinds}"
                );
            }
        }
    }
}

#[test]
fn a_cost_of_zero_takes_no_entry() {
    let table = window(10, 3);
    for bits in 0..20 {
        assert!(charge_all(&[Charge::new(&table, key(bits), 0)], NOW).is_admitted());
    }
    assert_eq!((table.live(NOW), table.evictions()), (0, 0));
}

#[test]
fn more_charges_than_fit_inline_are_decided_alike() {
    let tables: Vec<_> = (1..=9).map(|limit| window(limit, 16)).collect();
    let charges: Vec<_> = tables
        .iter()
        .map(|table| Charge::new(table, key(1), 1))
        .collect();
    let verdict = charge_all(&charges, NOW);
    let remaining: Vec<_> = verdict
        .decisions
        .iter()
        .map(|decision| decision.remaining)
        .collect();
    assert_eq!(remaining, (0..9).collect::<Vec<_>>());
    assert_eq!(verdict.deciding, 0);
    assert!(!charge_all(&charges, NOW).is_admitted());
}

#[test]
fn threads_on_k_remaining_admit_exactly_k() {
    for algorithm in algorithms(1_007) {
        let table = Table::new("test", algorithm.clone(), 16, OnFull::Forget);
        let charges = [Charge::new(&table, key(3), 1)];
        let spent = charge_all(
            &[Charge {
                demand: Demand::of(7),
                ..charges[0]
            }],
            NOW,
        );
        assert!(spent.is_admitted());
        let count = || {
            (0..400)
                .filter(|_| charge_all(&charges, NOW).is_admitted())
                .count()
        };
        let admitted: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(admitted, 1_000, "{}", algorithm.kind());
    }
}

/// Numbers that differ from thread to thread and from run to run of a loop (xorshift64).
fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1), |last| {
        let mut next = last ^ (last << 13);
        next ^= next >> 7;
        Some(next ^ (next << 17))
    })
}

#[test]
fn threads_with_overlapping_policies_charge_all_or_nothing() {
    const TABLES: usize = 6;
    let tables: Vec<_> = (0..TABLES as u32)
        .map(|i| window(2_000 + 500 * i, 16))
        .collect();
    let expected: Vec<_> = tables.iter().map(|_| AtomicU32::new(0)).collect();
    let refusals = AtomicU32::new(0);
    let run = |seed: u64| {
        for number in numbers(seed).skip(1).take(5_000) {
            // Some of the tables, starting anywhere, so that no thread has its own order.
            let chosen: Vec<_> = (0..TABLES)
                .map(|i| (i + number as usize) % TABLES)
                .filter(|i| number >> (8 + i) & 1 == 1)
                .collect();
            let cost = (number >> 20) as u32 % 3 + 1;
            let charge = |i: &usize| Charge::new(&tables[*i], key(9), cost);
            let charges: Vec<_> = chosen.iter().map(charge).collect();
            if charge_all(&charges, NOW).is_admitted() {
                for i in chosen {
                    expected[i].fetch_add(cost, Ordering::Relaxed);
                }
            } else {
                refusals.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for seed in 1..=8 {
            scope.spawn(move || run(seed));
        }
    });
    for (table, expected) in tables.iter().zip(&expected) {
        assert_eq!(used(table, key(9)), expected.load(Ordering::Relaxed));
    }
    assert!(
        refusals.load(Ordering::Relaxed) > 0,
        "the quotas were spent"
    );
}

proptest! {
    #[test]
    fn charged_units_are_admitted_units(
        limits in prop::collection::vec(0..20_u32, 1..6),
        requests in prop::collection::vec((any::<u8>(), 0..8_u32), 1..60),
    ) {
        let tables: Vec<_> = limits.iter().map(|limit| window(*limit, 16)).collect();
        let mut model = vec![0; limits.len()];
        for (subset, cost) in requests {
            let chosen: Vec<_> = (0..limits.len()).filter(|i| subset >> i & 1 == 1).collect();
            let charge = |i: &usize| Charge::new(&tables[*i], key(1), cost);
            let charges: Vec<_> = chosen.iter().map(charge).collect();
            let fits = chosen.iter().all(|i| limits[*i] > 0 && model[*i] + cost <= limits[*i]);
            prop_assert_eq!(charge_all(&charges, NOW).is_admitted(), fits);
            for i in chosen {
                model[i] += if fits { cost } else { 0 };
                prop_assert_eq!(used(&tables[i], key(1)), model[i]);
            }
        }
    }

    /// Enforced charges decide as without shadowed ones. A shadowed one is charged by itself for the
    /// requests that it and the enforced ones admit.
    #[test]
    fn a_shadowed_policy_is_charged_by_itself_and_refuses_nothing(
        kinds in prop::collection::vec((0..8_usize, 1..20_u32), 1..6),
        binding in 0..6_usize,
        requests in prop::collection::vec(0..8_u32, 1..60),
    ) {
        let tables = || {
            let table = |(kind, limit): &(usize, u32)| {
                Table::new("test", algorithms(*limit)[*kind].clone(), 16, OnFull::Forget)
            };
            kinds.iter().map(table).collect::<Vec<_>>()
        };
        let (together, apart) = (tables(), tables());
        let binding = binding.min(kinds.len());
        for cost in requests {
            let charge = |table| Charge::new(table, key(1), cost);
            let charges: Vec<_> = together.iter().map(charge).collect();
            let verdict = charge_with_shadow(&charges, binding, NOW);

            let charges: Vec<_> = apart.iter().map(charge).collect();
            let (enforced, watching) = charges.split_at(binding);
            let expected = charge_all(enforced, NOW);
            prop_assert_eq!(verdict.enforced(), binding);
            prop_assert_eq!(verdict.is_admitted(), expected.is_admitted());
            prop_assert_eq!(verdict.decision().is_some(), binding > 0);
            for (charge, decision) in watching.iter().zip(&verdict.decisions[binding..]) {
                let admits = if expected.is_admitted() {
                    charge_all(std::slice::from_ref(charge), NOW).is_admitted()
                } else {
                    charge.table.peek(charge.key, cost, NOW).is_admitted()
                };
                prop_assert_eq!(decision.is_admitted(), admits);
            }
            for (together, apart) in together.iter().zip(&apart) {
                prop_assert_eq!(used(together, key(1)), used(apart, key(1)));
            }
        }
    }
}

#[test]
fn the_last_request_in_a_queue_frees_its_place() {
    let table = line(2);
    let charge = Charge::new(&table, key(7), 1);
    let ask = || charge_all(&[charge], NOW).decisions[0];
    let [_, first, last] = [ask(), ask(), ask()];
    assert!(!ask().is_admitted());
    assert!(
        !leave_queue(&charge, first.cell, NOW),
        "others come after him"
    );
    assert!(!ask().is_admitted());
    assert!(leave_queue(&charge, last.cell, NOW));
    assert!(!leave_queue(&charge, last.cell, NOW), "once");
    assert_eq!(ask(), last, "the same place");
    let other = Charge {
        key: key(8),
        ..charge
    };
    assert!(!leave_queue(&other, last.cell, NOW));
    assert_eq!(table.live(NOW), 1, "asking makes no bucket");
}

#[test]
fn a_place_is_given_back_where_its_line_has_moved_to() {
    let old = line(2);
    let charge = Charge::new(&old, key(7), 1);
    let [_, last] = [(); 2].map(|()| charge_all(&[charge], NOW).decisions[0]);
    old.migrate_to(std::sync::Arc::new(line(5)), NOW);
    let used = || used(&old, key(7));
    assert_eq!(used(), 2);
    assert!(leave_queue(&charge, last.cell, NOW));
    assert_eq!(used(), 1);
}

#[test]
fn concurrent_requests_never_share_a_place_in_the_queue() {
    let table = line(200);
    let charge = Charge::new(&table, key(7), 1);
    let turns = || {
        let mut kept = Vec::new();
        for round in 0..400 {
            let decision = charge_all(&[charge], NOW).decisions[0];
            let Some(turn) = decision.delayed_until() else {
                continue;
            };
            if round % 3 == 0 || !leave_queue(&charge, decision.cell, NOW) {
                kept.push(turn);
            }
        }
        kept
    };
    let mut all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(turns)).collect();
        let each = threads.into_iter();
        each.flat_map(|thread| thread.join().unwrap()).collect()
    });
    let kept = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!((all.len(), used(&table, key(7)) as usize), (kept, kept + 1));
}

#[test]
fn a_policy_that_charges_refused_requests_does_so_whichever_policy_refuses() {
    for algorithm in algorithms(10) {
        if algorithm.delays() {
            continue;
        }
        let kind = algorithm.kind();
        let charging = Table::new("test", algorithm, 16, OnFull::Forget);
        let charging = charging.with_refusals(Refusals::Charged);
        let narrow = window(3, 16);
        let ask = |cost| {
            let charges = [&charging, &narrow].map(|table| Charge::new(table, key(7), cost));
            charge_all(&charges, NOW)
        };
        assert!(ask(2).is_admitted());
        let refused = ask(4);
        assert!(!refused.is_admitted());
        assert_eq!(refused.deciding, 1, "{kind}");
        assert_eq!(used(&charging, key(7)), 6, "{kind}");
        let refused = ask(6);
        assert_eq!(used(&charging, key(7)), 10, "{kind}");
        assert!(refused.decisions.iter().all(|one| !one.is_admitted()));
        assert_eq!(used(&narrow, key(7)), 2, "{kind}");
        assert!(ask(0).is_admitted(), "asking costs nothing");
    }
}

#[test]
fn a_charged_refusal_announces_when_it_ends_and_moves_that_on_each_time() {
    let algorithm = Algorithm::SlidingLog(SlidingLog::new(hourly(2)).unwrap());
    let table = Table::new("test", algorithm, 16, OnFull::Forget);
    let table = table.with_refusals(Refusals::Charged);
    let charge = Charge::new(&table, key(7), 1);
    let minute = |minutes: u64| NOW.saturating_add_micros(60_000_000 * minutes);
    let retry_at = |now| match charge_all(&[charge], now).decisions[0].outcome {
        Outcome::Refuse { retry_at } => retry_at,
        _ => None,
    };
    assert_eq!([0, 10].map(|at| retry_at(minute(at))), [None, None]);
    // The two newest of 0, 10, 20; then of 10, 20, 30.
    assert_eq!(retry_at(minute(20)), Some(minute(70)));
    assert_eq!(retry_at(minute(30)), Some(minute(80)));
    assert_eq!(retry_at(minute(79)), Some(minute(90)));
    assert_eq!(retry_at(minute(139)), None, "admitted");
}

/// A request is answered also by a ruleset in which two policies have one table, as one had after a
/// reload.
#[test]
fn a_bucket_that_two_charges_name_is_charged_once() {
    let (shared, other) = (window(2, 16), window(5, 16));
    let concurrency = Algorithm::Concurrency(Concurrency::new(2, Duration::from_secs(1)));
    let permits = Table::new("test", concurrency, 16, OnFull::Forget);
    for table in [&shared, &permits] {
        let charge = |table| Charge::new(table, key(7), 1);
        let charges = [charge(table), charge(&other), charge(table)];
        let admitted = || charge_all(&charges, NOW).is_admitted();
        assert_eq!([admitted(), admitted(), admitted()], [true, true, false]);
    }
    assert_eq!(used(&other, key(7)), 4, "refused requests charge nothing");
}
