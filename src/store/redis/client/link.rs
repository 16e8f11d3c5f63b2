//! A worker's connection to one server: made, checked, watched, and made again. Calls only ever find it there or not.

use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Shared;
use super::connect::Live;
use super::fault::{Fault, FaultKind};
use super::node::Node;
use super::script::Script;
use crate::clock::Timestamp;

/// Writes, as the store does: a replica and a server without memory refuse that. What somebody else has there stays.
static PROBE: LazyLock<Script> =
    LazyLock::new(|| Script::new("return redis.call('SET', KEYS[1], '1', 'PX', 1000, 'NX')"));

/// A connection that ends sooner than this is not the first to do so by chance.
const YOUNG: Duration = Duration::from_secs(1);

/// Between the loss of a connection and the first try: a process that ends closes its connections before it stops to
/// listen.
const BREATH: Duration = Duration::from_millis(10);

/// Keeps a connection for this worker until it is dropped.
pub(super) async fn keep(shared: Arc<Shared>, node: Arc<Node>, worker: usize) {
    let mut ended_young = false;
    loop {
        let turn = node.admission().await;
        match connect(&shared, &node).await {
            Err(fault) => {
                node.probe_failed(shared.clock.now(), fault);
                shared.changed();
            }
            Ok(live) => {
                let since = shared.clock.now();
                node.proved(since);
                shared.changed();
                drop(turn);
                let lost = watch(&node, worker, live).await == Ended::Lost;
                let young = shared.clock.now().since(since) < YOUNG;
                // One lost connection is no dead server: whether it can be made again will say what is wrong. Two are, or
                // it would be made again for ever.
                if lost && young && ended_young {
                    shared.failed(&node, Timestamp::MAX, FaultKind::Lost.bare());
                }
                ended_young = lost && young;
                if lost {
                    sleep(BREATH).await;
                }
            }
        }
    }
}

async fn connect(shared: &Shared, node: &Node) -> Result<Live, Fault> {
    let connected = probe(shared, node).await;
    shared.meter.probed(connected.as_ref().err());
    connected
}

/// Connects, and tries whether the server is of use.
async fn probe(shared: &Shared, node: &Node) -> Result<Live, Fault> {
    let live = Live::open(&node.address, &shared.dialect).await?;
    let key = node.probe();
    let keys = [key.as_bytes()];
    let check = live.run(&PROBE, &keys, &[""; 0]);
    let answer = timeout(shared.spec.timeout, check)
        .await
        .unwrap_or(Err(FaultKind::Timeout.bare()));
    answer.map(|_| live)
}

#[derive(PartialEq, Eq)]
enum Ended {
    Lost,
    Given,
}

/// Lends the connection to calls until it is lost, or the server is given up.
async fn watch(node: &Node, worker: usize, live: Live) -> Ended {
    let live = Arc::new(live);
    node.set_live(worker, Some(Arc::clone(&live)));
    let ended = tokio::select! {
        () = live.ended() => Ended::Lost,
        () = node.opened() => Ended::Given,
    };
    node.set_live(worker, None);
    // Whoever still waits for an answer is told at once that there will be none.
    live.close();
    ended
}
