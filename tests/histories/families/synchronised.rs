//! Synchronised policies, which exchange charges through one Redis server.

use std::time::Duration;

use rustix::process::Signal;

use super::store;
use crate::check::{Excess, Liveness, most_of_one};
use crate::clients::{Demand, Spread};
use crate::dice::Dice;
use crate::exam::examine;
use crate::history::{History, Span, micros};
use crate::nodes::{Proxy, Redis};
use crate::policies::{GCRA, PARTS, Policy, TOKENS, WINDOW, config, promises};
use crate::stage::Stage;
use crate::support::synchronised::longest_round;
use crate::table::{Row, SYNC, SYNC_ALONE};
use crate::world::World;

static POLICIES: [Policy; 4] = [GCRA, TOKENS, PARTS, WINDOW];
const INTERVAL: Duration = Duration::from_millis(50);
const MACHINES: usize = 4;
/// A time without faults.
pub const CALM: Duration = Duration::from_secs(4);

family!(machines_exceed_the_quota_by_what_they_have_not_heard, calm);
family!(machines_without_redis_count_alone_and_catch_up, alone);

/// Synchronised policies.
pub fn config_of(redis: &Redis, policies: &[Policy]) -> String {
    config(
        &store(redis.address(), ""),
        policies,
        "store: redis, sync: 50ms",
    )
}

fn open(world: &World, redis: &Redis, seed: u64) -> Stage {
    let text = config_of(redis, &POLICIES);
    let proxies = (0..MACHINES)
        .map(|_| Proxy::start(world.host(), &text))
        .collect();
    let demand = Demand {
        spread: *Dice::new(seed, 100).one_of(&[Spread::Even, Spread::Crowded]),
        ..Demand::of(&POLICIES, 2)
    };
    Stage::open(proxies, demand, seed).synchronised()
}

/// Ends the run, and checks that it kept the bound of docs/redis.md, besides what the faults of each
/// policy allow. Charges are unheard for this long at most.
pub fn close(
    row: &Row,
    stage: Stage,
    policies: &[Policy],
    unheard_for: Duration,
    excess: impl Fn(usize) -> Vec<Excess>,
) {
    let others = stage.proxies.len() as u64 - 1;
    let history = stage.end();
    println!("charges were unheard for at most {unheard_for:?}");
    let mut promises = promises(policies);
    for promise in &mut promises {
        let unheard = most_of_one(&history, promise.policy, micros(unheard_for));
        promise.excess = excess(promise.policy);
        promise.excess.push(Excess::Unheard(others * unheard));
    }
    examine(row, &history, &promises, &liveness(&history), Vec::new());
}

/// What was admitted beyond the rate is owed, so all that matters is what was admitted in the end.
pub fn liveness(history: &History) -> Liveness {
    let sent = || history.events.iter().map(|event| event.sent);
    Liveness {
        deadline: 0,
        calm: Span {
            from: sent().min().unwrap_or(0),
            until: sent().max().unwrap_or(0),
        },
        may_fail: false,
        longest_wait: None,
    }
}

/// An interval and the longest round, one more interval if that takes longer, and what a busy machine
/// adds.
pub fn unheard(stage: &Stage) -> Duration {
    let rounds = stage
        .proxies
        .iter()
        .map(|proxy| longest_round(&proxy.gateway));
    let round = rounds.max().expect("there are some");
    let further = if round > INTERVAL {
        INTERVAL
    } else {
        Duration::ZERO
    };
    INTERVAL + round + further + 2 * stage.stall()
}

fn calm(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let stage = open(world, &redis, seed);
    stage.calm(CALM * 2);
    let unheard = unheard(&stage);
    close(&SYNC, stage, &POLICIES, unheard, |_| Vec::new());
}

fn alone(world: &World, seed: u64) {
    let mut redis = Redis::start(world.host(), "");
    let mut stage = open(world, &redis, seed);
    let (mut excess, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let proxy = stage.any_proxy();
        let time = stage.dice.millis(500, 2_000);
        let (machines, span) = match stage.dice.below(4) {
            3 => {
                killed.push(stage.restart_proxy(proxy, Signal::KILL, time / 4));
                stage.rest();
                continue;
            }
            0 => (1, stage.cut_off(proxy, &[&redis.host], time).whole),
            1 => (1, stage.pause_proxy(proxy, time)),
            _ => (MACHINES - 1, stage.restart_redis(&mut redis, time).whole),
        };
        let heard = Span {
            until: span.until + micros(INTERVAL * 2),
            ..span
        };
        excess.extend(vec![Excess::Bucket(heard); machines]);
        stage.rest();
    }
    stage.calm(CALM);
    // Rounds that fail are in times of their own.
    let unheard = 2 * INTERVAL + 2 * stage.stall();
    excess.extend(killed.into_iter().map(|killed| {
        Excess::Forgotten(Span {
            from: killed.whole.from - micros(unheard),
            until: killed.ended,
        })
    }));
    close(&SYNC_ALONE, stage, &POLICIES, unheard, |_| excess.clone());
}
