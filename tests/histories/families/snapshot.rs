//! A proxy with its buckets in memory, and in a snapshot, that is restarted.

use std::time::Duration;

use rustix::process::Signal;

use crate::check::{Excess, Liveness};
use crate::clients::Demand;
use crate::exam::examine;
use crate::history::{Span, micros};
use crate::nodes::Proxy;
use crate::policies::{GCRA, LOG, PARTS, Policy, TOKENS, WINDOW, config, promises};
use crate::stage::Stage;
use crate::table::{CRASH, RESTART, Row};
use crate::world::World;

static POLICIES: [Policy; 5] = [GCRA, TOKENS, LOG, PARTS, WINDOW];
const EVERY: Duration = Duration::from_secs(1);
/// The time that it takes to save some buckets, on a machine that isn't busy.
const SAVING: Duration = Duration::from_millis(100);

family!(a_restart_keeps_all_that_was_used, restart);
family!(a_crash_forgets_what_came_after_the_last_snapshot, crash);

fn open(world: &World, seed: u64) -> Stage {
    let store = "shutdown: { delay: 0s, deadline: 5s }\n\
                 store: { memory: { snapshot: { path: buckets, every: 1s } } }";
    let text = config(store, &POLICIES, "on_full: forget");
    let proxies = vec![Proxy::start(world.host(), &text)];
    let demand = Demand {
        clients: 6,
        ..Demand::of(&POLICIES, 2)
    };
    Stage::open(proxies, demand, seed).in_memory()
}

fn close(row: &Row, stage: Stage, excess: &[Excess]) {
    let (history, calm) = stage.close(Duration::from_secs(4));
    let mut promises = promises(&POLICIES);
    promises
        .iter_mut()
        .for_each(|promise| promise.excess = excess.to_vec());
    let liveness = Liveness {
        deadline: 0,
        calm,
        may_fail: false,
        longest_wait: Some(3),
    };
    examine(row, &history, &promises, &liveness, Vec::new());
}

fn restart(world: &World, seed: u64) {
    let mut stage = open(world, seed);
    for _ in 0..3 {
        let time = stage.dice.millis(0, 500);
        stage.restart_proxy(0, Signal::TERM, time);
        stage.rest();
    }
    close(&RESTART, stage, &[]);
}

fn crash(world: &World, seed: u64) {
    let mut stage = open(world, seed);
    let mut crashes = Vec::new();
    for _ in 0..2 {
        let time = stage.dice.millis(0, 500);
        crashes.push(stage.restart_proxy(0, Signal::KILL, time));
        stage.rest();
        stage.rest();
    }
    let unsaved = micros(EVERY + SAVING + 2 * stage.stall());
    let excess = crashes.into_iter().map(|crash| {
        Excess::Forgotten(Span {
            from: crash.whole.from - unsaved,
            until: crash.ended,
        })
    });
    close(&CRASH, stage, &excess.collect::<Vec<_>>());
}
