//! Policies in a master that sentinels watch, with a replica that takes over.

use std::thread;
use std::time::Duration;

use super::TIMEOUT;
use crate::check::{Excess, Liveness};
use crate::clients::Demand;
use crate::exam::examine;
use crate::history::{Span, micros, now};
use crate::nodes::{Proxy, Redis};
use crate::policies::{GCRA, LOG, Policy, WINDOW, config, promises};
use crate::stage::{Stage, deadline};
use crate::support::wait_for;
use crate::table::{FAILOVER, Row, SPLIT};
use crate::world::World;

static POLICIES: [Policy; 3] = [GCRA, LOG, WINDOW];
/// The time that a charge takes to the replica, at most, on a machine that isn't busy.
const LAG: Duration = Duration::from_millis(20);

family!(a_failover_forgets_what_was_not_replicated, failover);
family!(two_masters_admit_two_quotas, split);

/// A master, its replica, three sentinels, and three proxies.
struct Servers {
    master: Redis,
    replica: Redis,
    sentinels: Vec<Redis>,
}

impl Servers {
    fn start(world: &World) -> Self {
        let master = Redis::start(world.host(), "");
        let follow = format!(
            "replicaof {} {}",
            master.host.address,
            master.address().port()
        );
        let replica = Redis::start(world.host(), &follow);
        let sentinels: Vec<_> = (0..3)
            .map(|_| Redis::sentinel(world.host(), &master, 2))
            .collect();
        wait_for("the sentinels to know all", || {
            let knows = |sentinel: &Redis| {
                sentinel.info("sentinel").contains("status=ok")
                    && sentinel.info("sentinel").contains("slaves=1,sentinels=3")
            };
            let is_linked = replica
                .info("replication")
                .contains("master_link_status:up");
            (is_linked && sentinels.iter().all(knows)).then_some(())
        });
        Self {
            master,
            replica,
            sentinels,
        }
    }

    fn open(&self, world: &World, seed: u64) -> Stage {
        let addresses: Vec<_> = self
            .sentinels
            .iter()
            .map(|one| one.address().to_string())
            .collect();
        let store = format!(
            "store: {{ redis: {{ sentinel: {{ addresses: {addresses:?}, master: main }}, \
             timeout: 500ms, secret: sixteen-characters }} }}"
        );
        let text = config(&store, &POLICIES, "store: redis, on_store_error: refuse");
        let proxies = (0..3).map(|_| Proxy::start(world.host(), &text)).collect();
        Stage::open(proxies, Demand::of(&POLICIES, 2), seed)
    }

    fn wait_for_new_master(&self) {
        wait_for("the replica to take over", || {
            self.replica
                .info("replication")
                .contains("role:master")
                .then_some(())
        });
    }
}

fn close(row: &Row, stage: Stage, excess: &[Excess]) {
    let (history, calm) = stage.close(Duration::from_secs(4));
    let mut promises = promises(&POLICIES);
    promises
        .iter_mut()
        .for_each(|promise| promise.excess = excess.to_vec());
    let liveness = Liveness {
        deadline: deadline(TIMEOUT),
        calm,
        may_fail: true,
        longest_wait: Some(2),
    };
    examine(row, &history, &promises, &liveness, Vec::new());
}

fn failover(world: &World, seed: u64) {
    let mut servers = Servers::start(world);
    let mut stage = servers.open(world, seed);
    // The replica may have lost its master some time before.
    let apart = stage.dice.millis(0, 1_500);
    let is_apart = stage.dice.below(2) == 0;
    let mut forgotten = Span { from: 0, until: 0 };
    stage.during(format!("the master ends, apart: {is_apart}"), |stage| {
        forgotten.from = now();
        if is_apart {
            servers.master.host.part_from(&servers.replica.host);
            thread::sleep(apart);
        }
        servers.master.kill();
        forgotten.until = now();
        servers.wait_for_new_master();
        stage.wait_until_back(&stage.everyone());
    });
    forgotten.from -= micros(LAG + 2 * stage.stall());
    close(&FAILOVER, stage, &[Excess::Forgotten(forgotten)]);
}

fn split(world: &World, seed: u64) {
    let servers = Servers::start(world);
    let mut stage = servers.open(world, seed);
    let apart = stage.dice.millis(500, 3_000);
    let both = stage.during("there are two masters".to_owned(), |stage| {
        let others = servers.sentinels.iter().chain([&servers.replica]);
        others.for_each(|other| servers.master.host.part_from(&other.host));
        servers.wait_for_new_master();
        thread::sleep(apart);
        let others = servers.sentinels.iter().chain([&servers.replica]);
        others.for_each(|other| servers.master.host.join(&other.host));
        wait_for("the old master to follow", || {
            servers
                .master
                .info("replication")
                .contains("role:slave")
                .then_some(())
        });
        stage.wait_until_back(&stage.everyone());
    });
    close(&SPLIT, stage, &[Excess::Bucket(both)]);
}
