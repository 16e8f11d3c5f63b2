//! Policies in one Redis server that continue without it: by buckets of each machine, or by admitting
//! everything.

use std::time::Duration;

use super::{TIMEOUT, store};
use crate::check::{Excess, Liveness, decided_otherwise};
use crate::clients::Demand;
use crate::exam::examine;
use crate::history::{History, Outcome};
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

fn faults(stage: &mut Stage, redis: &Redis) -> Vec<Silence> {
    let fault = |_| {
        let time = stage.dice.millis(1_500, 3_000);
        let proxy = stage.any_proxy();
        let silence = match stage.dice.below(3) {
            0 => stage.pause_redis(redis, time),
            _ => stage.cut_off(proxy, &[&redis.host], time),
        };
        stage.rest();
        silence
    };
    (0..3).map(fault).collect()
}

fn examine_all(
    row: &Row,
    stage: Stage,
    excess: Vec<Excess>,
    wrong: impl Fn(&History) -> Vec<String>,
) {
    let (history, calm) = stage.close(Duration::from_secs(4));
    let liveness = Liveness {
        deadline: deadline(TIMEOUT),
        calm,
        may_fail: false,
    };
    let mut promises = promises(&POLICIES);
    promises
        .iter_mut()
        .for_each(|promise| promise.excess.clone_from(&excess));
    let wrong = wrong(&history);
    examine(row, &history, &promises, &liveness, wrong);
}

fn local(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let mut stage = open(world, &redis, "local", seed);
    let faults = faults(&mut stage, &redis);
    // Each machine alone has a bucket.
    let alone = faults
        .iter()
        .flat_map(|silence| vec![silence.whole; silence.proxies.len()]);
    examine_all(&LOCAL, stage, alone.map(Excess::Bucket).collect(), |_| {
        Vec::new()
    });
}

fn admit(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let mut stage = open(world, &redis, "admit", seed);
    let faults = faults(&mut stage, &redis);
    let alone = faults.iter().flat_map(|silence| {
        let unlimited = |proxy: &usize| Excess::Unlimited(*proxy, silence.whole);
        silence.proxies.iter().map(unlimited)
    });
    let is_admitted = |outcome| outcome == Outcome::Admitted;
    examine_all(&ADMIT, stage, alone.collect(), |history| {
        let wrong = faults.iter().flat_map(|silence| {
            decided_otherwise(history, &silence.proxies, silence.silent, is_admitted)
        });
        wrong.collect()
    });
}
