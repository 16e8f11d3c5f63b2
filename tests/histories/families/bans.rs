//! Bans by the refusals of any machine, and units that an operator grants at one of them.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::{TIMEOUT, store};
use crate::check::{Bound, Liveness, admitted_in_bans, bans};
use crate::clients::{Demand, Spread};
use crate::exam::{examine, fail_if};
use crate::history::{History, Outcome, Span, micros};
use crate::nodes::{Proxy, Redis};
use crate::policies::{Policy, config, promises};
use crate::stage::{Stage, deadline};
use crate::support::admin::{AdminClient, WRITER};
use crate::table::{BANS, GRANTS};
use crate::world::World;

/// Without a ban, units come back within a second.
static BANNING: [Policy; 1] = [Policy {
    yaml: "quota: 4/1s, penalty: { strikes: 3, within: 10s, for: [5s] }",
    units: 1,
    bound: Bound::Rate {
        burst: 4,
        limit: 4,
        window: 1_000_000,
    },
}];
/// The units that a key gets in all, and those of them that are granted.
const ALL: u64 = 60;
const GRANTED: u64 = 20;
static GRANTING: [Policy; 2] = [
    Policy {
        yaml: "algorithm: sliding_log, quota: 40/300d",
        units: 1,
        bound: Bound::Rolling {
            most: ALL,
            window: 300 * 86_400_000_000,
        },
    },
    Policy {
        yaml: "algorithm: fixed_window, quota: 40/300d",
        units: 1,
        bound: Bound::Rolling {
            most: ALL,
            window: 300 * 86_400_000_000,
        },
    },
];
/// The shortest announced wait that only a ban causes, in seconds.
const ONLY_BANS: u64 = 3;
/// All machines apply a ban within half a second, and a round trip.
const KNOWN: Duration = Duration::from_millis(500);
const ROUND_TRIP: Duration = Duration::from_millis(50);
const KEYS: usize = 3;

family!(a_ban_holds_on_all_machines, banned);
family!(granted_units_are_admitted_once_on_all_machines, granted);

fn open(world: &World, redis: &Redis, demand: Demand, seed: u64) -> Stage {
    let text = config(
        &store(redis.address(), ", refusal_cache: 100ms"),
        demand.policies,
        "store: redis, on_store_error: refuse",
    );
    let proxies = (0..3).map(|_| Proxy::start(world.host(), &text)).collect();
    Stage::open(proxies, demand, seed)
}

fn banned(world: &World, seed: u64) {
    let mut redis = Redis::start(world.host(), "");
    // Each machine bans by itself, so a key must reach another one after its ban.
    let demand = Demand {
        spread: Spread::Moving,
        ..Demand::of(&BANNING, KEYS)
    };
    let mut stage = open(world, &redis, demand, seed);
    let (mut unknown, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let proxy = stage.any_proxy();
        let time = stage.dice.millis(300, 1_500);
        unknown.push(match stage.dice.below(4) {
            0 => stage.cut_off(proxy, &[&redis.host], time).whole,
            1 => stage.pause_redis(&redis, time).whole,
            2 => {
                let whole = stage.restart_proxy(proxy, Signal::KILL, time / 4).whole;
                killed.push((proxy, whole));
                whole
            }
            _ => stage.restart_redis(&mut redis, time).whole,
        });
        stage.rest();
        stage.rest();
    }
    let (history, calm) = stage.close(Duration::from_secs(7));
    let within = micros(KNOWN + ROUND_TRIP) + 2 * history.stall;
    let mut bans = bans(&history, 0, ONLY_BANS);
    println!("{} responses of bans", bans.len());
    // A machine that is killed forgets the end of its own ban, and learns that of others.
    bans.retain(|ban| {
        let mut own = killed.iter().filter(|(proxy, _)| *proxy == ban.proxy);
        !own.any(|(_, time)| ban.span.touches(*time))
    });
    for ban in &mut bans {
        // While a machine is without Redis, others don't hear of its bans, nor it of theirs.
        let from = ban.span.from;
        let late = Span {
            from,
            until: from + within,
        };
        let late = unknown.iter().filter(|span| span.touches(late));
        ban.span.from = late.map(|span| span.until).fold(from, u64::max);
        // A machine that has read it from a late answer ends it as much later than others.
        ban.span.until = ban.span.until.saturating_sub(micros(TIMEOUT));
    }
    let liveness = Liveness {
        deadline: deadline(TIMEOUT),
        calm,
        may_fail: true,
        longest_wait: None,
    };
    let mut wrong = liveness.check(&history, &[]);
    let admitted = admitted_in_bans(&history, 0, &bans);
    let late = admitted.iter().filter(|(since, _)| *since > within);
    wrong.extend(late.map(|(since, event)| {
        format!("admitted {} ms after a ban began: {event:?}", since / 1_000)
    }));
    // A ban takes five seconds.
    let again = |key: &usize| {
        history.events.iter().any(|event| {
            let is_again = event.received > calm.from && event.outcome == Outcome::Admitted;
            event.key == *key && is_again
        })
    };
    let is_judged = history.stall < 200_000;
    let banned = (0..KEYS).filter(|key| is_judged && !again(key));
    wrong.extend(banned.map(|key| format!("key {key} is banned for ever")));
    if bans.is_empty() {
        wrong.push("no key was banned".to_owned());
    }
    fail_if(&wrong, &history);
    let latest = admitted.iter().map(|(since, _)| since / 1_000).max();
    let latest = latest.unwrap_or(0);
    BANS.note(latest, &format!("{latest} ms after it"));
}

fn granted(world: &World, seed: u64) {
    let redis = Redis::start(world.host(), "");
    let mut stage = open(world, &redis, Demand::of(&GRANTING, KEYS), seed);
    for key in 0..KEYS {
        for policy in 0..GRANTING.len() {
            let proxy = stage.any_proxy();
            let body = json!({
                "policy": format!("p{policy}"), "key": format!("k{key}"),
                "units": GRANTED, "for": "1h",
            });
            let api = AdminClient::new(&stage.proxies[proxy].gateway, WRITER);
            let answer = api.post("/v1/keys/grant", &body);
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let proxy = stage.any_proxy();
        let time = stage.dice.millis(300, 1_500);
        match stage.dice.below(4) {
            0 => drop(stage.cut_off(proxy, &[&redis.host], time)),
            1 => drop(stage.pause_redis(&redis, time)),
            2 => {
                stage.restart_proxy(proxy, Signal::KILL, time / 4);
            }
            _ => {
                stage.pause_proxy(proxy, time);
            }
        }
    }
    let (history, calm) = stage.close(Duration::from_secs(4));
    let liveness = Liveness {
        deadline: deadline(TIMEOUT),
        calm,
        may_fail: true,
        longest_wait: None,
    };
    let wrong = (0..KEYS).flat_map(|key| (0..GRANTING.len()).map(move |policy| (policy, key)));
    let wrong = wrong
        .filter_map(|(policy, key)| too_few(&history, policy, key))
        .collect();
    examine(&GRANTS, &history, &promises(&GRANTING), &liveness, wrong);
}

/// Says if a key got fewer units than it has, of which unanswered requests may have taken some.
fn too_few(history: &History, policy: usize, key: usize) -> Option<String> {
    let of = |outcomes: &[Outcome]| {
        let all = history
            .events
            .iter()
            .filter(|event| (event.policy, event.key) == (policy, key));
        all.filter(|event| outcomes.contains(&event.outcome))
            .count() as u64
    };
    let admitted = of(&[Outcome::Admitted]);
    let unanswered = of(&[Outcome::Lost, Outcome::StoreError]);
    (admitted + unanswered < ALL)
        .then(|| format!("policy {policy} admitted {admitted} of {ALL} units of key {key}"))
}
