//! Policies in one Redis server that continue without it: by buckets of each machine, or by admitting
//! everything.

use std::time::Duration;

use super::{TIMEOUT, store};
use crate::check::{Excess, Liveness, decided_otherwise};
use crate::clients::Demand;
use crate::exam::examine;
use crate::history::{History, Outcome, Span, now};
use crate::nodes::{Proxy, Redis};
use crate::policies::{GCRA, LOG, Policy, WINDOW, config, promises};
use crate::stage::{Silence, Stage, deadline};
use crate::table::{ADMIT, LOCAL, Row};
use crate::world::World;

static POLICIES: [Policy; 3] = [GCRA, LOG, WINDOW];

family!(machines_alone_admit_a_quota_each, local);
family!(machines_that_admit_without_redis_do_so_only_then, admit);

fn open(world: &World, redis: &Redis, on_store_error: &str, seed: u64) -> Stage {
    let store = store(redis.address(), ", refusal_cache: 0s");
    let options = format!("store: redis, on_store_error: {on_store_error}");
    let text = config(&store, &POLICIES, &options);
    let proxies = (0..4).map(|_| Proxy::start(world.host(), &text)).collect();
    Stage::open(proxies, Demand::of(&POLICIES, 2), seed)
}

/// The times in which each of these proxies may have decided without Redis.
struct Alone {
    silences: Vec<Silence>,
    times: Vec<(usize, Span)>,
}

/// Makes faults, and lets some time pass without.
fn faults(stage: &mut Stage, redis: &Redis) -> (Alone, Span) {
    let from = now();
    let (mut silences, mut missed) = (Vec::new(), vec![0; stage.proxies.len()]);
    let mut before = unanswered(stage);
    let mut count = |stage: &Stage, before: &[u64]| {
        let calls = unanswered(stage).into_iter().zip(before);
        missed
            .iter_mut()
            .zip(calls)
            .for_each(|(all, (now, before))| *all += now - before);
    };
    for _ in 0..3 {
        let time = stage.dice.millis(1_500, 3_000);
        let proxy = stage.any_proxy();
        count(stage, &before);
        silences.push(match stage.dice.below(3) {
            0 => stage.pause_redis(redis, time),
            _ => stage.cut_off(proxy, &[&redis.host], time),
        });
        before = unanswered(stage);
        stage.rest();
    }
    let calm = stage.calm(Duration::from_secs(4));
    count(stage, &before);
    let of = |silence: &Silence| {
        silence
            .proxies
            .iter()
            .map(|one| (*one, silence.whole))
            .collect()
    };
    let mut times: Vec<_> = silences.iter().flat_map(of as fn(&_) -> Vec<_>).collect();
    // On a busy machine a call may miss its deadline at any time.
    let whole = Span { from, until: now() };
    let missed = missed.iter().enumerate().filter(|(_, missed)| **missed > 0);
    times.extend(missed.map(|(proxy, _)| (proxy, whole)));
    (Alone { silences, times }, calm)
}

/// The calls of each proxy that Redis didn't answer so far.
fn unanswered(stage: &Stage) -> Vec<u64> {
    stage.proxies.iter().map(Proxy::unanswered_calls).collect()
}

fn examine_all(
    row: &Row,
    (stage, calm): (Stage, Span),
    excess: &[Excess],
    wrong: impl FnOnce(&History) -> Vec<String>,
) {
    let history = stage.end();
    let liveness = Liveness {
        deadline: deadline(TIMEOUT),
        calm,
        may_fail: false,
        longest_wait: Some(2),
    };
    let mut promises = promises(&POLICIES);
    promises
        .iter_mut()
        .for_each(|promise| promise.excess = excess.to_vec());
    let wrong = wrong(&history);
    examine(row, &history, &promises, &liveness, wrong);
}

fn local(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let mut stage = open(world, &redis, "local", seed);
    let (alone, calm) = faults(&mut stage, &redis);
    // Each machine alone has a bucket.
    let excess = alone.times.iter().map(|(_, time)| Excess::Bucket(*time));
    examine_all(&LOCAL, (stage, calm), &excess.collect::<Vec<_>>(), |_| {
        Vec::new()
    });
}

fn admit(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let mut stage = open(world, &redis, "admit", seed);
    let (alone, calm) = faults(&mut stage, &redis);
    let excess = alone
        .times
        .iter()
        .map(|(proxy, time)| Excess::Unlimited(*proxy, *time));
    let is_admitted = |outcome| outcome == Outcome::Admitted;
    examine_all(
        &ADMIT,
        (stage, calm),
        &excess.collect::<Vec<_>>(),
        |history| {
            let wrong = alone.silences.iter().flat_map(|silence| {
                decided_otherwise(history, &silence.proxies, silence.silent, is_admitted)
            });
            wrong.collect()
        },
    );
}
