//! Promises of the Redis scripts beyond `contract.rs`: lifetimes of keys, leases,
//! overflow buckets, clocks, and keys of other programs. `extremes.rs`
//! compares the arithmetic.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::limiter::algorithms::{
    Concurrency, FixedWindow, IntervalRefill, LeakyBucket, OldestPart, SlidingCounters, SlidingLog,
    SlidingWindow, Start,
};
use crate::limiter::bucket::ReservedCharge;
use crate::limiter::calendar::{Calendar, Period};
use crate::limiter::{Algorithm, Decision, Outcome};
use crate::store::redis::follow_up::{HeldLease, Settlement, SettlementReply};
use crate::store::redis::reply::{ProtocolError, ScriptReply};
use crate::store::redis::script::Procedure;
use crate::store::redis::script_call::{
    BucketCharge, ChargeRequest, ChargedRefusals, ScriptCall, Tier,
};
use jiff::tz::TimeZone;
use redis::Value;

use super::scripted::{Redis, SECOND, START, SharedRedis, YEAR, at, charge, gcra, quota};

#[test]
fn a_call_is_one_script_whatever_the_number_of_limits() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let policies: Vec<_> = (1..=9).map(|limit| gcra(limit, SECOND)).collect();
    let names: Vec<_> = (1..=9)
        .map(|limit| redis.name(&limit.to_string()))
        .collect();
    let charges: Vec<_> = policies
        .iter()
        .zip(&names)
        .map(|(one, name)| charge(one, name, 1))
        .collect();
    assert!(redis.decide(&charges).is_admitted);
    // The bucket with a single unit refuses, and no other is charged.
    let refused = redis.decide(&charges).verdict(charges.len());
    assert_eq!((refused.is_admitted(), refused.deciding), (false, 0));
    let remaining: Vec<_> = refused.decisions.iter().map(|one| one.remaining).collect();
    assert_eq!(remaining, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(redis.scripts.calls, 2);
}

#[test]
fn a_reply_that_contradicts_its_own_state_is_no_decision() {
    let server = SharedRedis::new();
    let redis = Redis::new(&server);
    let policy = gcra(1, SECOND);
    let name = redis.name("a");
    let charges = [charge(&policy, &name, 1)];
    let read = |outcome| {
        // A whole bucket.
        let words = [format!("told {START} {outcome}"), "0 0 0".to_owned()];
        let words = words.map(|words| Value::BulkString(words.into_bytes()));
        let reply = Value::Array(words.to_vec());
        redis.request(&charges).read(&reply, at(START))
    };
    assert!(matches!(read("charged"), Ok(ScriptReply::Decided(_))));
    assert_eq!(read("refused").err(), Some(ProtocolError::Contradiction));
}

#[test]
fn unsettled_units_are_counted_until_the_bucket_is_full() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let policy = gcra(100, 100 * SECOND);
    let name = redis.name("a");
    let take = |redis: &mut Redis, units| {
        let asked = [BucketCharge {
            settles: true,
            ..charge(&policy, &name, units)
        }];
        let told = redis.decide(&asked);
        let reserved = ReservedCharge {
            cell: told.replies[0].decision.cell,
            at: told.at,
            units,
            unsettled: told.replies[0].unsettled.0,
        };
        (reserved, told.replies[0].unsettled.1)
    };
    let settle = |redis: &mut Redis, (reserved, since): (ReservedCharge, _), units| {
        let settlement = Settlement {
            charge: charge(&policy, &name, reserved.units),
            reserved,
            units,
            since: Some(since),
        };
        redis.scripts.settle(&settlement, reserved.at)
    };
    let left = |redis: &mut Redis| redis.charge(&policy, "a", 0).remaining;
    let [first, second] = [10, 5].map(|units| take(&mut redis, units));
    assert_eq!((first.0.unsettled, second.0.unsettled), (0, 10));
    assert_eq!(settle(&mut redis, first, 3), Some(SettlementReply::Settled));
    assert_eq!(left(&mut redis), 92);
    let third = take(&mut redis, 1);
    assert_eq!(third.0.unsettled, 5, "the first is settled");
    assert_eq!(
        settle(&mut redis, second, 5),
        Some(SettlementReply::Settled),
        "it is kept"
    );
    // In debt or not, each settlement is replied.
    let fourth = take(&mut redis, 2);
    assert_eq!(fourth.0.unsettled, 1);
    assert_eq!(settle(&mut redis, third, 9), Some(SettlementReply::Settled));
    assert_eq!(left(&mut redis), 100 - 3 - 5 - 9 - 2);
    assert_eq!(take(&mut redis, 1).0.unsettled, 2);
    // All units are refilled, and a new count begins, with nothing to give back.
    redis.scripts.now = Some(at(START + 200 * SECOND));
    let new = take(&mut redis, 50);
    assert_eq!(new.0.unsettled, 0);
    assert_eq!(
        settle(&mut redis, fourth, 0),
        Some(SettlementReply::Settled)
    );
    assert_eq!(left(&mut redis), 50);
    assert_eq!(take(&mut redis, 1).0.unsettled, 50);
}

#[test]
fn undecided_requests_are_known_until_the_last_of_them_is_decided() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    redis.scripts.now = None;
    let policy = gcra(100, 3_600 * SECOND);
    let name = redis.name("a");
    let charges = [charge(&policy, &name, 1)];
    for (id, seconds) in [("one", 600), ("other", 5)] {
        let request = ChargeRequest {
            undecided: id,
            undecided_for: Some(Duration::from_secs(seconds)),
            ..redis.request(&charges)
        };
        assert!(redis.scripts.decide(&request, at(START)).is_admitted);
    }
    let left = redis.ttl(&format!("{name}:undecided"));
    assert!(left > 300_000, "{left} ms");
}

#[test]
fn parallel_requests_get_exactly_the_units_available() {
    let server = SharedRedis::new();
    let prefix = server.prefix();
    let policy = gcra(100, 3_600 * SECOND);
    let admitted: usize = thread::scope(|scope| {
        let one = || {
            let mut redis = Redis::new(&server);
            (redis.scripts.now, redis.prefix) = (None, prefix.clone());
            let charges = (0..40).map(|_| redis.charge(&policy, "a", 1));
            charges.filter(Decision::is_admitted).count()
        };
        let all: Vec<_> = (0..6).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100);
}

/// One algorithm of each kind, with a window of about ten seconds.
fn one_of_each() -> [Algorithm; 9] {
    let ten = quota(10, 10 * SECOND);
    let calendar = Arc::new(Calendar::new(Period::Year, TimeZone::UTC));
    [
        gcra(10, 10 * SECOND),
        Algorithm::IntervalRefill(IntervalRefill::new(10, 1, Duration::from_secs(1)).unwrap()),
        Algorithm::LeakyBucket(LeakyBucket::new(ten, 9, Duration::MAX, 0).unwrap()),
        Algorithm::FixedWindow(FixedWindow::new(ten, Start::FirstRequest)),
        Algorithm::FixedWindow(FixedWindow::new(ten, Start::Staggered)),
        Algorithm::FixedWindow(FixedWindow::periods(10, calendar, Start::Calendar)),
        Algorithm::SlidingWindow(SlidingWindow::new(ten, OldestPart::Weighted)),
        Algorithm::SlidingCounters(SlidingCounters::new(ten, 10, OldestPart::Whole).unwrap()),
        Algorithm::SlidingLog(SlidingLog::new(ten).unwrap()),
    ]
}

#[test]
fn every_set_of_algorithms_has_a_script_that_decides_each_as_alone() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let [gcra, refill, line, window, .., sliding, counters, log] = one_of_each();
    let permits = Algorithm::Concurrency(Concurrency::new(10, Duration::from_secs(1)));
    let kinds = [gcra, refill, line, window, sliding, counters, log, permits];
    let alone: Vec<_> = (0..)
        .zip(&kinds)
        .map(|(place, one)| redis.charge(one, &format!("alone:{place}"), 2).remaining)
        .collect();
    for set in 1_usize..1 << kinds.len() {
        let is_in = |place: &usize| set >> place & 1 == 1;
        let places: Vec<_> = (0..kinds.len()).filter(is_in).collect();
        let names: Vec<_> = places
            .iter()
            .map(|place| redis.name(&format!("{set}:{place}")))
            .collect();
        let charges: Vec<_> = places
            .iter()
            .zip(&names)
            .map(|(&place, name)| charge(&kinds[place], name, 2))
            .collect();
        let told = redis.decide(&charges).verdict(charges.len());
        let together = told.decisions.iter().map(|one| one.remaining);
        let apart = places.iter().map(|&place| alone[place]);
        assert!(together.eq(apart), "{places:?}: {told:?}");
    }
    let given = redis.scripts.given();
    assert_eq!(given, (1 << kinds.len()) - 1);
    assert!(given < Procedure::COUNT);
}

#[test]
fn a_key_expires_within_a_millisecond_of_its_bucket_being_full() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    redis.scripts.now = None;
    for (place, algorithm) in one_of_each().iter().enumerate() {
        let name = redis.name(&place.to_string());
        for cost in [3, 1, 4] {
            let asked = [charge(algorithm, &name, cost)];
            let told = redis.decide(&asked);
            let whole = told.replies[0].decision.cell.expires;
            let ends: u64 = redis.run(&["PEXPIRETIME", &name]);
            assert_eq!(ends, whole.div_ceil(1_000), "{algorithm:?}");
        }
        // A cost of 0, or a refusal, leaves no key and no other instant.
        let ends: u64 = redis.run(&["PEXPIRETIME", &name]);
        redis.charge(algorithm, &place.to_string(), 0);
        redis.charge(algorithm, &place.to_string(), 10);
        assert_eq!(redis.run::<u64>(&["PEXPIRETIME", &name]), ends);
        let idle = redis.name("idle");
        redis.charge(algorithm, "idle", 0);
        redis.charge(algorithm, "idle", 11);
        assert!(!redis.run::<bool>(&["EXISTS", &idle]), "{algorithm:?}");
    }
}

#[test]
fn a_bucket_in_debt_lasts_as_long_as_the_debt() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    redis.scripts.now = None;
    for (place, algorithm) in one_of_each().iter().enumerate() {
        let name = redis.name(&place.to_string());
        for cost in [10, 10, 7] {
            let asked = [BucketCharge {
                charged_refusals: ChargedRefusals::All,
                ..charge(algorithm, &name, cost)
            }];
            redis.decide(&asked);
            let asked = [charge(algorithm, &name, 0)];
            let whole = redis.decide(&asked).replies[0].decision.cell.expires;
            assert_eq!(
                redis.run::<u64>(&["PEXPIRETIME", &name]),
                whole.div_ceil(1_000)
            );
        }
    }
}

#[test]
fn keys_of_other_programs_are_named_and_nothing_is_charged() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let free = gcra(10, SECOND);
    let permits = Algorithm::Concurrency(Concurrency::new(3, Duration::from_secs(1)));
    let good = redis.name("good");
    for (place, algorithm) in one_of_each().iter().chain([&permits]).enumerate() {
        let name = redis.name(&place.to_string());
        let key = if algorithm.is_concurrency() {
            format!("{name}:leases")
        } else {
            name.clone()
        };
        let rate = algorithm.cell_rate().map(|rate| format!("{rate}|"));
        let ours = rate.unwrap_or_default();
        let mut strange: Vec<Vec<&str>> =
            vec![vec!["HSET", &key, "a", "b"], vec!["RPUSH", &key, "7"]];
        if !algorithm.is_concurrency() {
            let broken = format!("{ours}1 2");
            let words = format!("{ours}some words and some more of them, as long as a head is");
            for value in ["", "7", "1.2.3|4", "a.b.c.d.e|", &ours, &broken, &words] {
                if !value.is_empty() {
                    redis.run::<()>(&["SET", &key, value]);
                    let charges = [charge(&free, &good, 1), charge(algorithm, &name, 1)];
                    let error = redis.scripts.ask(&redis.request(&charges)).unwrap_err();
                    assert_eq!(
                        error.code(),
                        Some("SLUICEGATE"),
                        "{algorithm:?}: {value}: {error}"
                    );
                    assert!(error.to_string().contains(&key), "{error}");
                    assert_eq!(
                        redis.run::<String>(&["GET", &key]),
                        value,
                        "it is left alone"
                    );
                }
            }
            redis.run::<()>(&["DEL", &key]);
        }
        // Read as leases it has no units.
        strange.push(vec!["ZADD", &key, "1", "a"]);
        for command in strange {
            redis.run::<()>(&command);
            let charges = [charge(&free, &good, 1), charge(algorithm, &name, 1)];
            let error = redis.scripts.ask(&redis.request(&charges)).unwrap_err();
            assert_eq!(
                error.code(),
                Some("SLUICEGATE"),
                "{algorithm:?}: {command:?}: {error}"
            );
            assert!(error.to_string().contains(&key), "{error}");
            assert_eq!(redis.ttl(&key), -1, "it is left alone");
            redis.run::<()>(&["DEL", &key]);
        }
        assert!(!redis.run::<bool>(&["EXISTS", &good]), "nothing is charged");
    }
}

#[test]
fn stored_and_replied_numbers_are_integers() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let odd = gcra(7, 31_535_999_999_999);
    redis.scripts.now = Some(at((1 << 52) - 1));
    redis.charge(&odd, "odd", 5);
    let name = redis.name("odd");
    let value: String = redis.run(&["GET", &name]);
    // 22525714285713.57 microseconds after now, rounded up.
    let expires = (1_u64 << 52) - 1 + (31_535_999_999_999 * 5_u64).div_ceil(7);
    let added = (31_535_999_999_999 * 5_u64).div_ceil(7) * 7 - 31_535_999_999_999 * 5;
    assert_eq!(value, format!("7|{expires} {added} 0"));
}

#[test]
fn the_servers_time_decides_and_replies_use_the_callers_clock() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    redis.scripts.now = None;
    let policy = gcra(2, 3_600 * SECOND);
    redis.charge(&policy, "a", 2);
    let name = redis.name("a");
    let asked = [charge(&policy, &name, 2)];
    // A clock that stands a year after the epoch.
    let local = at(YEAR);
    let request = redis.request(&asked);
    let time = |redis: &mut Redis| {
        let (seconds, micros): (u64, u64) = redis.run(&["TIME"]);
        seconds * SECOND + micros
    };
    let before = time(&mut redis);
    let told = redis.scripts.decide(&request, local);
    assert!((before..=time(&mut redis)).contains(&told.at.as_micros()));
    let decision = told.replies[0].decision;
    let Outcome::Refuse {
        retry_at: Some(retry_at),
    } = decision.outcome
    else {
        panic!("{decision:?}");
    };
    let wait = retry_at.since(local);
    assert!(
        wait > Duration::from_secs(3_500) && wait <= Duration::from_secs(3_600),
        "{wait:?}"
    );
    assert_eq!(decision.reset, retry_at);
    assert!(
        decision.cell.expires > YEAR + 3_600 * SECOND,
        "cells are in the server's time"
    );
    assert_eq!(
        policy.more_at(&decision, local).unwrap().since(local),
        wait - Duration::from_secs(1_800)
    );
}

#[test]
fn an_overflow_bucket_pays_when_those_before_it_cannot() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let (first, second, other) = (gcra(1, SECOND), gcra(2, 60 * SECOND), gcra(4, SECOND));
    let names = ["first", "second", "other"].map(|of| redis.name(of));
    let charges = [
        charge(&first, &names[0], 1),
        BucketCharge {
            tier: Tier::Overflow,
            ..charge(&second, &names[1], 1)
        },
        charge(&other, &names[2], 1),
    ];
    let paid: Vec<_> = (0..3).map(|_| redis.decide(&charges).buckets()).collect();
    assert_eq!(paid, [[0, 2], [1, 2], [1, 2]]);
    // None can pay: the reply has the refusal that ends first, and nothing is charged, not even the
    // other limit.
    let refused = redis.decide(&charges);
    assert_eq!(
        (refused.is_admitted, refused.buckets()),
        (false, vec![0, 2])
    );
    let retry_at = Some(at(START + SECOND));
    assert_eq!(
        refused.replies[0].decision.outcome,
        Outcome::Refuse { retry_at }
    );
    assert_eq!(refused.replies[1].decision.remaining, 1);
    // Only the paying bucket is charged.
    redis.scripts.now = Some(at(START + SECOND));
    assert_eq!(redis.decide(&charges).buckets(), [0, 2]);
    assert_eq!(redis.charge(&second, "second", 0).remaining, 0);
    assert_eq!(redis.scripts.calls, 6);
}

#[test]
fn a_wrong_calendar_period_of_the_caller_causes_a_retry() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let day = Arc::new(Calendar::new(Period::Day, TimeZone::UTC));
    let zone = TimeZone::get("Asia/Tokyo").unwrap();
    let tokyo = Calendar::new(Period::Day, zone);
    let (utc, local) = (
        FixedWindow::periods(5, day.clone(), Start::Calendar),
        FixedWindow::periods(5, day.clone(), Start::Local),
    );
    let (utc, local) = (Algorithm::FixedWindow(utc), Algorithm::FixedWindow(local));
    let names = ["utc", "local"].map(|of| redis.name(of));
    let charges = [
        charge(&utc, &names[0], 1),
        BucketCharge {
            period: Some(tokyo.period_at(at(START))),
            ..charge(&local, &names[1], 1)
        },
    ];
    for (days, calls) in [(0, 1), (40, 2)] {
        let estimated_now = at(START - days * 86_400 * SECOND);
        let before = redis.scripts.calls;
        let request = ChargeRequest {
            estimated_now,
            ..redis.request(&charges)
        };
        let told = redis.scripts.decide(&request, at(START));
        assert_eq!(told.replies[0].decision.reset, day.period_at(at(START)).1);
        assert_eq!(told.replies[1].decision.reset, tokyo.period_at(at(START)).1);
        assert_eq!(
            redis.scripts.calls - before,
            if days == 0 { calls } else { 1 },
            "a running window needs no end"
        );
    }
    redis.scripts.now = Some(at(START + 40 * 86_400 * SECOND));
    let charges = [charge(&utc, &names[0], 1)];
    let before = redis.scripts.calls;
    let request = ChargeRequest {
        estimated_now: at(START),
        ..redis.request(&charges)
    };
    let told = redis.scripts.decide(&request, redis.scripts.now.unwrap());
    assert_eq!(
        (
            redis.scripts.calls - before,
            told.replies[0].decision.remaining
        ),
        (2, 4)
    );
}

fn lease(name: &str, id: &str, units: u32) -> HeldLease {
    HeldLease {
        name: name.as_bytes().into(),
        id: id.into(),
        units,
        is_in_doubt: false,
    }
}

#[test]
fn permits_are_leases_that_end_with_their_holder() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let three = Algorithm::Concurrency(Concurrency::new(3, Duration::from_secs(1)));
    let name = redis.name("a");
    let lent = |id, units| lease(&name, id, units);
    let ten = Duration::from_secs(10);
    let take = |redis: &mut Redis, id, cost| {
        let asked = [charge(&three, &name, cost)];
        let request = ChargeRequest {
            lease: id,
            ..redis.request(&asked)
        };
        let told = redis.scripts.decide(&request, redis.scripts.now.unwrap());
        (told.is_admitted, told.replies[0].decision.remaining)
    };
    assert_eq!(take(&mut redis, "1", 2), (true, 1));
    assert_eq!(take(&mut redis, "2", 2), (false, 1));
    assert_eq!(take(&mut redis, "3", 1), (true, 0));
    assert_eq!(take(&mut redis, "4", 1), (false, 0));
    // No unit is in use twice, and none is returned twice.
    assert_eq!(
        redis
            .scripts
            .leases(ScriptCall::leases(&[lent("3", 1), lent("3", 1)], None)),
        [true, false]
    );
    assert_eq!(take(&mut redis, "5", 1), (true, 0));
    // One lease is renewed, the other expires.
    redis.scripts.now = Some(at(START + 6 * SECOND));
    assert_eq!(
        redis
            .scripts
            .leases(ScriptCall::leases(&[lent("1", 2)], Some(ten))),
        [true]
    );
    redis.scripts.now = Some(at(START + 10 * SECOND - 1));
    assert_eq!(take(&mut redis, "6", 1), (false, 0));
    redis.scripts.now = Some(at(START + 10 * SECOND));
    assert_eq!(take(&mut redis, "7", 1), (true, 0));
    // A lease whose holder still lives counts again, beyond the bound.
    assert_eq!(
        redis
            .scripts
            .leases(ScriptCall::leases(&[lent("5", 1)], Some(ten))),
        [false]
    );
    let all = [lent("1", 2), lent("5", 1)];
    assert_eq!(
        redis.scripts.leases(ScriptCall::leases(&all, None)),
        [true, true]
    );
    assert_eq!(take(&mut redis, "8", 3), (false, 2));
    let all = [lent("7", 1)];
    assert_eq!(redis.scripts.leases(ScriptCall::leases(&all, None)), [true]);
    assert!(
        !redis.run::<bool>(&["EXISTS", &format!("{name}:leases")]),
        "nothing is left"
    );
}

#[test]
fn the_key_of_leases_lives_as_long_as_the_last_lease() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    redis.scripts.now = None;
    let three = Algorithm::Concurrency(Concurrency::new(3, Duration::from_secs(1)));
    redis.charge(&three, "a", 1);
    let (name, key) = (redis.name("a"), redis.name("a:leases"));
    let within =
        |ttl: i64, seconds: i64| (seconds * 1_000 - 500..=seconds * 1_000 + 1).contains(&ttl);
    assert!(within(redis.ttl(&key), 10));
    let lent = [lease(&name, "a", 1)];
    redis
        .scripts
        .leases(ScriptCall::leases(&lent, Some(Duration::from_secs(60))));
    assert!(within(redis.ttl(&key), 60));
}

#[test]
fn leases_are_renewed_beside_a_key_of_another_program() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    redis.scripts.now = None;
    let three = Algorithm::Concurrency(Concurrency::new(3, Duration::from_secs(1)));
    redis.charge(&three, "a", 1);
    redis.charge(&three, "b", 1);
    let names = ["b", "a", "b"].map(|of| redis.name(of));
    let lent = names.each_ref().map(|name| lease(name, "a", 1));
    let others = redis.name("b:leases");
    redis.run::<()>(&["SET", &others, "mine"]);
    let minute = Duration::from_secs(60);
    let renewed = redis
        .scripts
        .leases(ScriptCall::leases(&lent, Some(minute)));
    assert_eq!(renewed, [false, true, false]);
    let key = redis.name("a:leases");
    assert!(redis.ttl(&key) > 50_000, "it lasts");
    let back = redis.scripts.leases(ScriptCall::leases(&lent, None));
    assert_eq!(back, [false, true, false]);
    assert_eq!(redis.run::<String>(&["GET", &others]), "mine");
}

#[test]
fn a_request_that_leaves_a_queue_gives_back_its_place_if_it_is_the_last() {
    let server = SharedRedis::new();
    let mut redis = Redis::new(&server);
    let line = LeakyBucket::new(quota(3, SECOND), 9, Duration::MAX, 0).unwrap();
    let line = Algorithm::LeakyBucket(line);
    let first = redis.charge(&line, "a", 2);
    let second = redis.charge(&line, "a", 3);
    let name = redis.name("a");
    let ask = |cost, decision: Decision| {
        ScriptCall::leave_queue(&charge(&line, &name, cost), decision.cell).unwrap()
    };
    assert!(
        !redis.scripts.leave(ask(2, first)),
        "somebody came after him"
    );
    redis.scripts.now = Some(at(START + 5));
    assert!(redis.scripts.leave(ask(3, second)));
    assert_eq!(redis.charge(&line, "a", 0).cell, first.cell);
    assert!(redis.scripts.leave(ask(2, first)));
    assert!(
        !redis.run::<bool>(&["EXISTS", &name]),
        "nobody is in the line"
    );
    assert!(!redis.scripts.leave(ask(2, first)), "he has left");
}
