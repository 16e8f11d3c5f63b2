//! Proxies whose clocks differ, and are set while they run: libfaketime answers their questions for
//! the time. Redis has the clock of the machine.

use std::fs;
use std::time::Duration;

use super::synchronised::{self, CALM};
use super::{TIMEOUT, store};
use crate::check::{Bound, Excess, Liveness, most_of_one};
use crate::clients::{Demand, Spread};
use crate::dice::Dice;
use crate::exam::examine;
use crate::history::micros;
use crate::nodes::{Proxy, Redis};
use crate::policies::{GCRA, LOG, PARTS, Policy, TOKENS, WINDOW, config, promises};
use crate::stage::{Stage, deadline};
use crate::table::{SKEW, SKEW_SYNC, SKEW_WINDOWS};
use crate::world::World;

static POLICIES: [Policy; 5] = [GCRA, TOKENS, LOG, PARTS, WINDOW];
/// Fixed windows follow each machine's clock.
static SYNCHRONISED: [Policy; 3] = [GCRA, TOKENS, PARTS];
/// So much that a machine doesn't admit all of it within an interval.
static WINDOWS: [Policy; 1] = [Policy {
    yaml: "algorithm: fixed_window, quota: 60/2s",
    units: 1,
    bound: Bound::Aligned {
        most: 60,
        window: 2_000_000,
    },
}];
/// Where a proxy finds what to add to its clock.
const CLOCK: &str = "clock";
const OFFSETS: [&str; 6] = ["+0", "+0.7", "-2s", "+20s", "-40s", "+2h"];

family!(clocks_of_proxies_do_not_matter_to_exact_limits, exact);
family!(
    clocks_of_proxies_do_not_matter_to_synchronised_rates,
    synchronised
);
family!(synchronised_windows_follow_the_clocks_of_proxies, windows);

fn start(world: &World, text: &str, dice: &mut Dice) -> Proxy {
    let offset = dice.one_of(&OFFSETS);
    start_at(world, text, offset)
}

fn start_at(world: &World, text: &str, offset: &str) -> Proxy {
    let commands = format!(
        "echo {offset} > {CLOCK}
for library in /usr/lib/*/faketime/libfaketimeMT.so.1; do export LD_PRELOAD=$library; done
export FAKETIME_TIMESTAMP_FILE=$PWD/{CLOCK} FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1"
    );
    println!("a clock with {offset}");
    Proxy::start_after(world.host(), &commands, text)
}

fn set_clocks(stage: &mut Stage) {
    for _ in 0..3 {
        let proxy = stage.any_proxy();
        let offset = stage.dice.one_of(&OFFSETS);
        println!("the clock of proxy {proxy} is set to {offset}");
        fs::write(stage.proxies[proxy].gateway.dir().join(CLOCK), offset).expect("it is ours");
        stage.rest();
        stage.rest();
    }
}

fn exact(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let text = config(
        &store(redis.address(), ""),
        &POLICIES,
        "store: redis, on_store_error: refuse",
    );
    let mut dice = Dice::new(seed, 100);
    let proxies = (0..3).map(|_| start(world, &text, &mut dice)).collect();
    let mut stage = Stage::open(proxies, Demand::of(&POLICIES, 2), seed);
    set_clocks(&mut stage);
    let (history, calm) = stage.close(Duration::from_secs(4));
    let liveness = Liveness {
        deadline: deadline(TIMEOUT),
        calm,
        may_fail: true,
        longest_wait: Some(3),
    };
    examine(&SKEW, &history, &promises(&POLICIES), &liveness, Vec::new());
}

fn synchronised(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let text = synchronised::config_of(&redis, &SYNCHRONISED);
    let mut dice = Dice::new(seed, 100);
    let proxies = (0..3).map(|_| start(world, &text, &mut dice)).collect();
    let mut stage = Stage::open(proxies, Demand::of(&SYNCHRONISED, 2), seed).synchronised();
    set_clocks(&mut stage);
    stage.calm(CALM);
    let unheard = synchronised::unheard(&stage);
    synchronised::close(&SKEW_SYNC, stage, &SYNCHRONISED, unheard, |_| Vec::new());
}

/// The windows of a proxy whose clock is ahead are earlier. So its requests are looked at by its own
/// clock.
fn windows(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let text = synchronised::config_of(&redis, &WINDOWS);
    let mut dice = Dice::new(seed, 100);
    let ahead: Vec<_> = (0..3).map(|_| dice.below(1_400) as i64 - 700).collect();
    println!("clocks are ahead by {ahead:?} ms");
    let start = |ahead: &i64| start_at(world, &text, &format!("{:+.3}", *ahead as f64 / 1_000.0));
    let proxies = ahead.iter().map(start).collect();
    let demand = Demand {
        spread: Spread::Even,
        ..Demand::of(&WINDOWS, 2)
    };
    let stage = Stage::open(proxies, demand, seed).synchronised();
    stage.calm(CALM * 2);
    let unheard = synchronised::unheard(&stage);
    let mut history = stage.end();
    let unheard = 2 * most_of_one(&history, 0, micros(unheard));
    let liveness = synchronised::liveness(&history);
    for event in &mut history.events {
        let by = ahead[event.proxy] * 1_000;
        event.sent = event.sent.saturating_add_signed(by);
        event.received = event.received.saturating_add_signed(by);
    }
    let mut promises = promises(&WINDOWS);
    promises[0].excess.push(Excess::Unheard(unheard));
    examine(&SKEW_WINDOWS, &history, &promises, &liveness, Vec::new());
}
