//! Synchronised policies, which exchange charges through one Redis server.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::store;
use crate::check::{Excess, Liveness, most_of_one};
use crate::clients::Demand;
use crate::exam::examine;
use crate::history::{Span, micros};
use crate::nodes::{Proxy, Redis};
use crate::policies::{GCRA, PARTS, Policy, TOKENS, WINDOW, config, promises};
use crate::stage::Stage;
use crate::stall::Stalls;
use crate::support::synchronised::longest_round;
use crate::table::{Row, SYNC, SYNC_ALONE};
use crate::world::World;

static POLICIES: [Policy; 4] = [GCRA, TOKENS, PARTS, WINDOW];
const INTERVAL: Duration = Duration::from_millis(50);
const MACHINES: usize = 4;

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
    Stage::open(proxies, Demand::of(&POLICIES, 2), seed).synchronised()
}

/// Ends the run, and checks that it kept the bound of docs/redis.md besides the faults. Charges are
/// unheard for an interval and a round, which takes this long at most.
pub fn close(
    row: &Row,
    stage: Stage,
    policies: &[Policy],
    unheard_for: Duration,
    excess: &[Excess],
) {
    let others = stage.proxies.len() as u64 - 1;
    let (history, calm) = stage.close(Duration::from_secs(4));
    println!("charges were unheard for at most {unheard_for:?}");
    let mut promises = promises(policies);
    for promise in &mut promises {
        let unheard = most_of_one(&history, promise.policy, micros(unheard_for));
        promise.excess = excess.to_vec();
        promise.excess.push(Excess::Unheard(others * unheard));
    }
    // What was admitted beyond the rate is owed, so all that matters is what was admitted in all.
    let began = history.events.first().map_or(calm.from, |event| event.sent);
    let liveness = Liveness {
        deadline: 0,
        calm: Span {
            from: began,
            ..calm
        },
        may_fail: false,
    };
    examine(row, &history, &promises, &liveness, Vec::new());
}

/// An interval and the longest round, and what a busy machine adds to both.
pub fn unheard(stage: &Stage, stalls: &Stalls) -> Duration {
    let rounds = stage
        .proxies
        .iter()
        .map(|proxy| longest_round(&proxy.gateway));
    let round = rounds.max().expect("there are some");
    INTERVAL + round.max(INTERVAL) + 2 * stalls.longest()
}

fn calm(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let stalls = Stalls::watch();
    let stage = open(world, &redis, seed);
    thread::sleep(Duration::from_secs(6));
    let unheard = unheard(&stage, &stalls);
    close(&SYNC, stage, &POLICIES, unheard, &[]);
}

fn alone(world: &World, seed: u64) {
    let mut redis = Redis::start(world.host(), "");
    let stalls = Stalls::watch();
    let mut stage = open(world, &redis, seed);
    let (mut excess, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let proxy = stage.any_proxy();
        let time = stage.dice.millis(500, 2_000);
        let (machines, span) = match stage.dice.below(4) {
            3 => {
                killed.push(stage.restart_proxy(proxy, Signal::KILL, time / 4).from);
                stage.rest();
                continue;
            }
            0 => (1, stage.cut_off(proxy, &[&redis.host], time).whole),
            1 => (1, stage.pause_proxy(proxy, time)),
            _ => (
                MACHINES - 1,
                stage.during("Redis restarts empty".to_owned(), |stage| {
                    redis.kill();
                    thread::sleep(time);
                    redis.start_again();
                    stage.wait_until_back(&stage.everyone());
                }),
            ),
        };
        let heard = Span {
            until: span.until + micros(INTERVAL * 2),
            ..span
        };
        excess.extend(vec![Excess::Bucket(heard); machines]);
        stage.rest();
    }
    // Rounds that fail are in times of their own.
    let unheard = 2 * INTERVAL + 2 * stalls.longest();
    excess.extend(killed.into_iter().map(|at| {
        Excess::Forgotten(Span {
            from: at - micros(unheard),
            until: at,
        })
    }));
    close(&SYNC_ALONE, stage, &POLICIES, unheard, &excess);
}
