//! Proxies whose clocks differ, and are set while they run: libfaketime answers their questions for
//! the time. Redis has the clock of the machine.

use std::fs;
use std::time::Duration;

use super::synchronised;
use super::{TIMEOUT, store};
use crate::check::Liveness;
use crate::clients::Demand;
use crate::dice::Dice;
use crate::exam::examine;
use crate::nodes::{Proxy, Redis};
use crate::policies::{GCRA, LOG, PARTS, Policy, TOKENS, WINDOW, config, promises};
use crate::stage::{Stage, deadline};
use crate::stall::Stalls;
use crate::table::{SKEW, SKEW_SYNC};
use crate::world::World;

static POLICIES: [Policy; 5] = [GCRA, TOKENS, LOG, PARTS, WINDOW];
/// Fixed windows follow each machine's clock.
static SYNCHRONISED: [Policy; 3] = [GCRA, TOKENS, PARTS];
/// Where a proxy finds what to add to its clock.
const CLOCK: &str = "clock";
const OFFSETS: [&str; 6] = ["+0", "+0.7", "-2s", "+20s", "-40s", "+2h"];

family!(clocks_of_proxies_do_not_matter_to_exact_limits, exact);
family!(
    clocks_of_proxies_do_not_matter_to_synchronised_rates,
    synchronised
);

fn start(world: &World, text: &str, dice: &mut Dice) -> Proxy {
    let offset = dice.one_of(&OFFSETS);
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
        may_fail: false,
    };
    examine(&SKEW, &history, &promises(&POLICIES), &liveness, Vec::new());
}

fn synchronised(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let stalls = Stalls::watch();
    let text = synchronised::config_of(&redis, &SYNCHRONISED);
    let mut dice = Dice::new(seed, 100);
    let proxies = (0..3).map(|_| start(world, &text, &mut dice)).collect();
    let mut stage = Stage::open(proxies, Demand::of(&SYNCHRONISED, 2), seed).synchronised();
    set_clocks(&mut stage);
    let unheard = synchronised::unheard(&stage, &stalls);
    synchronised::close(&SKEW_SYNC, stage, &SYNCHRONISED, unheard, &[]);
}
