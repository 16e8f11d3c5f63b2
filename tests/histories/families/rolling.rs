//! A deploy that changes the quota of each policy, or its algorithm, at one proxy after the other.

use std::time::Duration;

use super::synchronised::{self, CALM};
use super::{TIMEOUT, store};
use crate::check::{Bound, Excess, Liveness};
use crate::clients::Demand;
use crate::exam::examine;
use crate::history::Span;
use crate::nodes::{Proxy, Redis};
use crate::policies::{GCRA, LOG, Policy, TOKENS, WINDOW, config, promises};
use crate::stage::{Stage, deadline};
use crate::table::{ALGORITHM, QUOTA, QUOTA_SYNC, Row};
use crate::world::World;

static POLICIES: [Policy; 3] = [GCRA, LOG, WINDOW];
/// The same algorithms with larger quotas.
const LARGER: [Policy; 3] = [
    Policy {
        yaml: "quota: 40/2s, burst: 24",
        units: 1,
        bound: Bound::Rate {
            burst: 24,
            limit: 40,
            window: 2_000_000,
        },
    },
    Policy {
        yaml: "algorithm: sliding_log, quota: 30/2s",
        units: 1,
        bound: Bound::Rolling {
            most: 30,
            window: 2_000_000,
        },
    },
    Policy {
        yaml: "algorithm: fixed_window, quota: 30/2s",
        units: 1,
        bound: Bound::Aligned {
            most: 30,
            window: 2_000_000,
        },
    },
];
/// Other algorithms.
static OTHER: [Policy; 3] = [LOG, WINDOW, TOKENS];

/// Policies that can be synchronised, and larger ones.
static SYNCHRONISED: [Policy; 2] = [GCRA, WINDOW];
static LARGER_SYNCHRONISED: [Policy; 2] = [LARGER[0], LARGER[2]];

family!(during_a_deploy_the_largest_quota_holds, quotas);
family!(
    during_a_change_of_the_algorithm_both_quotas_hold,
    algorithms
);
family!(
    during_a_deploy_the_largest_synchronised_quota_holds,
    synchronised_quotas
);

fn quotas(world: &World, seed: u64) {
    run(world, seed, &QUOTA, &LARGER, Excess::Larger);
}

fn algorithms(world: &World, seed: u64) {
    run(world, seed, &ALGORITHM, &OTHER, Excess::Also);
}

/// Deploys the configuration `there`, and then `back`, at one proxy after the other.
fn deploy(stage: &mut Stage, there: &str, back: &str) -> Span {
    stage.during("a deploy, there and back".to_owned(), |stage| {
        for config in [there, back] {
            for proxy in stage.everyone() {
                stage.deploy(proxy, config);
                stage.rest();
            }
        }
    })
}

fn run(world: &World, seed: u64, row: &Row, others: &[Policy], excess: fn(Bound, Span) -> Excess) {
    let redis = Redis::start(world.host(), "");
    let store = store(redis.address(), ", refusal_cache: 100ms");
    let [before, after] = [&POLICIES[..], others]
        .map(|policies| config(&store, policies, "store: redis, on_store_error: refuse"));
    let proxies = (0..3)
        .map(|_| Proxy::start(world.host(), &before))
        .collect();
    let mut stage = Stage::open(proxies, Demand::of(&POLICIES, 2), seed);
    let time = deploy(&mut stage, &after, &before);
    let (history, calm) = stage.close(Duration::from_secs(4));
    let mut promises = promises(&POLICIES);
    for (promise, other) in promises.iter_mut().zip(others) {
        promise.excess.push(excess(other.bound, time));
    }
    let liveness = Liveness {
        deadline: deadline(TIMEOUT),
        calm,
        may_fail: true,
        longest_wait: Some(2),
    };
    examine(row, &history, &promises, &liveness, Vec::new());
}

fn synchronised_quotas(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let [before, after] = [&SYNCHRONISED, &LARGER_SYNCHRONISED]
        .map(|policies| synchronised::config_of(&redis, policies));
    let proxies = (0..3)
        .map(|_| Proxy::start(world.host(), &before))
        .collect();
    let stage = Stage::open(proxies, Demand::of(&SYNCHRONISED, 3), seed);
    let mut stage = stage.synchronised();
    let time = deploy(&mut stage, &after, &before);
    stage.calm(CALM);
    let unheard = synchronised::unheard(&stage);
    synchronised::close(&QUOTA_SYNC, stage, &SYNCHRONISED, unheard, |policy| {
        vec![Excess::Larger(LARGER_SYNCHRONISED[policy].bound, time)]
    });
}
