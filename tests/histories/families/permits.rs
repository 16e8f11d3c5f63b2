//! Permits of `concurrency` in Redis, which an origin sees in use.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Value;
use rustix::process::Signal;

use super::{TIMEOUT, store};
use crate::check::{Bound, Lapse, Liveness, Use, most_in_use, share_in_use};
use crate::clients::Demand;
use crate::exam::fail_if;
use crate::history::{Span, micros, now};
use crate::nodes::{Proxy, Redis};
use crate::policies::{Policy, config};
use crate::stage::{Stage, deadline};
use crate::support::origin::{Origin, Received, Step, ok};
use crate::support::wait_for;
use crate::table::PERMITS;
use crate::world::{HERE, World};

const MAX: usize = 5;
const KEYS: usize = 2;
static POLICIES: [Policy; 1] = [Policy {
    yaml: "algorithm: concurrency, max: 5",
    units: 1,
    bound: Bound::Rolling {
        most: MAX as u64,
        window: 1_000_000,
    },
}];
/// Leases expire after this time.
const LEASE: Duration = Duration::from_secs(10);
/// The longest time that a request is in flight.
const HOLD: u64 = 5_000;
/// Redis knows all requests in flight again this long after its return.
const KNOWN_AGAIN: Duration = Duration::from_millis(2_500);

family!(no_more_than_max_are_in_flight_and_no_permit_is_lost, run);

/// An origin that holds each request for as long as it says, and notes when.
fn origin(uses: &Arc<Mutex<Vec<Use>>>) -> Origin {
    let uses = Arc::clone(uses);
    Origin::start_at(SocketAddr::from((HERE, 7_000)), move |request| {
        let hold = Duration::from_millis(number(request, "x-hold"));
        let from = now();
        uses.lock().expect("no holder panics").push(Use {
            span: Span {
                from,
                until: from + micros(hold),
            },
            proxy: number(request, "x-proxy") as usize,
            key: usize::from(request.header("x-key") != Some("k0")),
        });
        [vec![Step::Pause(hold)], ok("ok")].concat()
    })
}

fn number(request: &Received, name: &str) -> u64 {
    let value = request.header(name).unwrap_or_default();
    value.parse().expect("clients send numbers")
}

fn run(world: &World, seed: u64) {
    let mut redis = Redis::start(world.host(), "");
    let uses = Arc::default();
    let origin = origin(&uses);
    let text = config(
        &store(redis.address(), ""),
        &POLICIES,
        "retry_after: 1s, store: redis, on_store_error: refuse",
    );
    let text = text.replace("echo", &format!("'{}'", origin.url()));
    let proxies = (0..3).map(|_| Proxy::start(world.host(), &text)).collect();
    let demand = Demand {
        clients: 8,
        pause: 150,
        hold: HOLD,
        ..Demand::of(&POLICIES, KEYS)
    };
    let mut stage = Stage::open(proxies, demand, seed);
    let (mut lapses, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        fault(&mut stage, &mut redis, &mut lapses, &mut ends);
        stage.rest();
    }
    // Permits of dead proxies expire, and those whose return got lost.
    let (history, calm) = stage.close(LEASE + Duration::from_secs(4));
    wait_for("the end of all leases", || {
        (lent(&redis) == 0).then_some(())
    });
    let mut uses = uses.lock().expect("no holder panics").clone();
    for (proxy, end) in ends {
        // What a proxy had in flight when it was killed is over.
        let of = uses
            .iter_mut()
            .filter(|one| one.proxy == proxy && one.span.from < end);
        of.for_each(|one| one.span.until = one.span.until.min(end));
    }
    let whole = Span {
        from: 0,
        until: calm.until,
    };
    let most = most_in_use(&uses, &lapses, whole);
    let again = Span {
        from: calm.from + micros(LEASE),
        until: calm.until,
    };
    let liveness = Liveness {
        deadline: deadline(TIMEOUT) + HOLD * 1_000,
        calm,
        may_fail: true,
        longest_wait: Some(1),
    };
    let mut wrong = liveness.check(&history, &[]);
    if most > MAX {
        wrong.push(format!("{most} of {MAX} permits were in use"));
    }
    // More clients wait for a permit than there are.
    for key in 0..KEYS {
        let share = share_in_use(&uses, key, MAX, again);
        if share < 70 && history.stall < 200_000 {
            wrong.push(format!(
                "{share} % of the permits of key {key} were in use in the end"
            ));
        }
    }
    fail_if(&wrong, &history);
    PERMITS.note(most as u64, &format!("{most} of {MAX}"));
}

fn fault(
    stage: &mut Stage,
    redis: &mut Redis,
    lapses: &mut Vec<Lapse>,
    ends: &mut Vec<(usize, u64)>,
) {
    let proxy = stage.any_proxy();
    let time = stage.dice.millis(300, 2_000);
    match stage.dice.below(5) {
        0 => {
            stage.cut_off(proxy, &[&redis.host], time);
        }
        1 => {
            stage.pause_redis(redis, time);
        }
        2 => {
            stage.pause_proxy(proxy, time);
        }
        3 => {
            let killed = stage.restart_proxy(proxy, Signal::KILL, time / 4);
            ends.push((proxy, killed.whole.from));
        }
        _ => {
            let span = stage.restart_redis(redis, time).whole;
            lapses.push(Lapse {
                span,
                known_again: span.until + micros(KNOWN_AGAIN + 2 * stage.stall()),
                proxy: None,
            });
        }
    }
}

/// The units under leases.
fn lent(redis: &Redis) -> usize {
    match redis.command(&["KEYS", "*:leases"]) {
        Ok(Value::Array(keys)) => keys.len(),
        _ => usize::MAX,
    }
}
