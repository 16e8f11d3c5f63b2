//! Policies in one Redis server, which refuse requests while it doesn't answer.

use std::time::Duration;

use rustix::process::Signal;

use super::{TIMEOUT, store};
use crate::check::{Excess, Liveness, decided_otherwise};
use crate::clients::Demand;
use crate::dice::Dice;
use crate::exam::examine;
use crate::history::{Outcome, Span};
use crate::nodes::{Proxy, Redis};
use crate::policies::{GCRA, LOG, PARTS, Policy, TOKENS, WINDOW, config, promises};
use crate::stage::{Silence, Stage, deadline};
use crate::table::{EXACT, RESTARTED};
use crate::world::World;

static POLICIES: [Policy; 5] = [GCRA, TOKENS, LOG, PARTS, WINDOW];

family!(limits_hold_whatever_is_cut_off_stopped_or_killed, network);
family!(
    a_redis_that_restarts_empty_gives_each_bucket_back_once,
    restart
);

fn open(world: &World, redis: &Redis, seed: u64) -> Stage {
    let cache = Dice::new(seed, 100)
        .one_of(&["0s", "200ms", "1s"])
        .to_string();
    let store = store(redis.address(), &format!(", refusal_cache: {cache}"));
    let text = config(&store, &POLICIES, "store: redis, on_store_error: refuse");
    let proxies = (0..4).map(|_| Proxy::start(world.host(), &text)).collect();
    Stage::open(proxies, Demand::of(&POLICIES, 2), seed)
}

fn liveness(calm: Span) -> Liveness {
    Liveness {
        deadline: deadline(TIMEOUT),
        calm,
        may_fail: true,
        longest_wait: Some(3),
    }
}

fn network(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let mut stage = open(world, &redis, seed);
    let mut silences = Vec::new();
    for _ in 0..4 {
        silences.extend(fault(&mut stage, &redis));
        stage.rest();
    }
    let (history, calm) = stage.close(Duration::from_secs(4));
    // Refusals may be remembered.
    let may = |outcome| outcome != Outcome::Admitted;
    let wrong = silences.iter().flat_map(
        |Silence {
             proxies, silent, ..
         }| { decided_otherwise(&history, proxies, *silent, may) },
    );
    let wrong = wrong.collect();
    examine(
        &EXACT,
        &history,
        &promises(&POLICIES),
        &liveness(calm),
        wrong,
    );
}

fn fault(stage: &mut Stage, redis: &Redis) -> Option<Silence> {
    let proxy = stage.any_proxy();
    let time = stage.dice.millis(300, 2_500);
    match stage.dice.below(4) {
        0 => return Some(stage.cut_off(proxy, &[&redis.host], time)),
        1 => return Some(stage.pause_redis(redis, time)),
        2 => {
            stage.pause_proxy(proxy, time);
        }
        _ => {
            stage.restart_proxy(proxy, Signal::KILL, time / 4);
        }
    }
    None
}

fn restart(world: &World, seed: u64) {
    let mut redis = Redis::start(world.host(), "");
    let mut stage = open(world, &redis, seed);
    let mut promises = promises(&POLICIES);
    for _ in 0..2 {
        let pause = stage.dice.millis(0, 1_500);
        let gone = stage.restart_redis(&mut redis, pause);
        // What was charged before the end is forgotten, and nothing that was charged after it.
        let before = Span {
            from: 0,
            until: gone.ended,
        };
        for promise in &mut promises {
            promise.excess.push(Excess::Forgotten(before));
        }
        stage.rest();
    }
    let (history, calm) = stage.close(Duration::from_secs(4));
    examine(&RESTARTED, &history, &promises, &liveness(calm), Vec::new());
}
