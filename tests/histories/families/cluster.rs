//! Policies in a cluster of three masters with a replica each.

use std::time::Duration;

use super::TIMEOUT;
use crate::check::{Excess, Liveness};
use crate::clients::Demand;
use crate::exam::examine;
use crate::history::{Span, micros, now};
use crate::nodes::{Proxy, Redis};
use crate::policies::{GCRA, LOG, Policy, WINDOW, config, promises};
use crate::stage::{Stage, deadline};
use crate::support::redis_servers::redis_cli;
use crate::support::wait_for;
use crate::table::CLUSTER;
use crate::world::World;

static POLICIES: [Policy; 3] = [GCRA, LOG, WINDOW];
/// The time that a charge takes to a replica, at most, on a machine that isn't busy.
const LAG: Duration = Duration::from_millis(20);
const NODES: usize = 6;

family!(a_master_that_dies_forgets_what_was_not_replicated, run);

fn start(world: &World) -> Vec<Redis> {
    let options = "cluster-enabled yes\ncluster-node-timeout 1000\n\
                   cluster-require-full-coverage no";
    let nodes: Vec<_> = (0..NODES)
        .map(|_| Redis::start(world.host(), options))
        .collect();
    let addresses: Vec<_> = nodes
        .iter()
        .map(|node| node.address().to_string())
        .collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let create = ["--cluster", "create"];
    let options = ["--cluster-replicas", "1", "--cluster-yes"];
    redis_cli(&[&create, &addresses[..], &options].concat());
    wait_for("the cluster", || {
        let is_ok = |node: &Redis| {
            let info = node.text(&["CLUSTER", "INFO"]);
            let replication = node.info("replication");
            let is_linked = replication.contains("master_link_status:up")
                || replication.contains("connected_slaves:1");
            is_linked && info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:6")
        };
        nodes.iter().all(is_ok).then_some(())
    });
    nodes
}

fn run(world: &World, seed: u64) {
    let mut nodes = start(world);
    let addresses: Vec<_> = nodes
        .iter()
        .map(|node| node.address().to_string())
        .collect();
    let store = format!(
        "store: {{ redis: {{ cluster: {addresses:?}, timeout: 500ms, secret: sixteen-characters }} }}"
    );
    let text = config(&store, &POLICIES, "store: redis, on_store_error: refuse");
    let proxies = (0..3).map(|_| Proxy::start(world.host(), &text)).collect();
    let mut stage = Stage::open(proxies, Demand::of(&POLICIES, 5), seed);
    let masters: Vec<_> = (0..NODES)
        .filter(|node| nodes[*node].info("replication").contains("role:master"))
        .collect();
    let dies = *stage.dice.one_of(&masters);
    let mut end = 0;
    stage.during("a master dies".to_owned(), |stage| {
        nodes[dies].kill();
        end = now();
        wait_for("its replica to take over", || {
            let masters = nodes.iter().enumerate().filter(|(node, _)| *node != dies);
            let masters =
                masters.filter(|(_, node)| node.info("replication").contains("role:master"));
            (masters.count() == 3).then_some(())
        });
        stage.proxies.iter().for_each(Proxy::wait_up);
        std::thread::sleep(Duration::from_secs(1));
    });
    let forgotten = Excess::Forgotten(Span {
        from: end - micros(LAG + 2 * stage.stall()),
        until: end,
    });
    let (history, calm) = stage.close(Duration::from_secs(4));
    let mut promises = promises(&POLICIES);
    promises
        .iter_mut()
        .for_each(|promise| promise.excess.push(forgotten));
    let liveness = Liveness {
        deadline: deadline(TIMEOUT),
        calm,
        may_fail: true,
        longest_wait: Some(2),
    };
    examine(&CLUSTER, &history, &promises, &liveness, Vec::new());
}
