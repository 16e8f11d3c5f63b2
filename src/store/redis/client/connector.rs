//! A worker's connection to one server: made, checked, watched, and made again. Calls only ever find it there or not.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::Value;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::connection::{CONNECT_DEADLINE, Connection};
use super::fault::{Fault, FaultKind};
use super::node::Node;
use super::script::Script;
use crate::clock::Timestamp;

/// Writes, as the store does: a replica and a server without memory refuse that. What somebody else has there stays.
pub(super) static PROBE: LazyLock<Script> =
    LazyLock::new(|| Script::new("return redis.call('SET', KEYS[1], '1', 'PX', 1000, 'NX')"));

/// A connection that ends sooner than this is not the first to do so by chance.
const YOUNG: Duration = Duration::from_secs(1);

/// Between the loss of a connection and the first try: a process that ends closes its connections before it stops to
/// listen.
const BREATH: Duration = Duration::from_millis(10);

/// The first and the longest pause between two attempts to give a server its scripts.
const LOADING_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

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
                let lost = watch(&shared, &node, worker, live).await == Ending::Lost;
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

async fn connect(shared: &Shared, node: &Node) -> Result<Connection, Fault> {
    let connected = probe(shared, node).await;
    shared.meter.probed(connected.as_ref().err());
    connected
}

/// Connects, gives the server the scripts that it lacks, and tries whether it is of use.
async fn probe(shared: &Shared, node: &Node) -> Result<Connection, Fault> {
    let live = Connection::open(&node.address, &shared.dialect).await?;
    load_scripts(shared, node, &live).await;
    let key = node.probe();
    let check = PROBE.by_sha(&[key.as_bytes()], &[""; 0]);
    let mut answer = in_time(shared, live.send(&check)).await;
    if answer.as_ref().is_err_and(Fault::is_unknown_script) {
        // It has begun anew since it was given the scripts.
        node.set_scripts(0);
        load_scripts(shared, node, &live).await;
        answer = in_time(shared, live.run(&PROBE, &[key.as_bytes()], &[""; 0])).await;
    }
    answer.map(|_| live)
}

async fn in_time(
    shared: &Shared,
    answer: impl Future<Output = Result<Value, Fault>>,
) -> Result<Value, Fault> {
    let answer = timeout(shared.spec.timeout, answer).await;
    answer.unwrap_or(Err(FaultKind::Timeout.bare()))
}

/// Gives the server the scripts that it does not have yet, without which each is sent when it is called. A failure is shown by
/// what is sent next.
async fn load_scripts(shared: &Shared, node: &Node, live: &Connection) {
    let loading = async {
        let _turn = node.loading.acquire().await;
        let scripts = Arc::clone(&shared.scripts.borrow());
        let missing = scripts.get(node.scripts()..).unwrap_or_default();
        if missing.is_empty() {
            return;
        }
        let mut pipeline = redis::pipe();
        for script in missing {
            pipeline.add_command(script.load());
        }
        // Whoever may not load scripts, or knows no SCRIPT, may still run them by their text.
        let is_done = |answer: &Result<Value, Fault>| match answer {
            Ok(_) => true,
            Err(fault) => !matches!(fault.kind, FaultKind::Loading | FaultKind::Busy),
        };
        let answers = live.send_all(&pipeline).await;
        if answers.is_ok_and(|answers| answers.iter().all(is_done)) {
            node.set_scripts(scripts.len());
            shared.changes.send_replace(());
        }
    };
    let _ = timeout(CONNECT_DEADLINE, loading).await;
}

/// Gives the server each script that calls will need from now on, again after a pause where it did not answer.
async fn keep_scripts_loaded(shared: &Shared, node: &Node, live: &Connection) -> Infallible {
    let mut scripts = shared.scripts.subscribe();
    let [mut pause, longest] = LOADING_PAUSES;
    loop {
        let wanted = scripts.borrow_and_update().len();
        load_scripts(shared, node, live).await;
        // The sender lives as long as the client.
        if node.scripts() < wanted {
            let _ = timeout(pause, scripts.changed()).await;
            pause = longest.min(pause * 2);
        } else {
            let _ = scripts.changed().await;
            [pause, _] = LOADING_PAUSES;
        }
    }
}

#[derive(PartialEq, Eq)]
enum Ending {
    Lost,
    Abandoned,
}

/// Lends the connection to calls until it is lost, or the server is given up.
async fn watch(shared: &Shared, node: &Node, worker: usize, live: Connection) -> Ending {
    let live = Arc::new(live);
    node.set_live(worker, Some(Arc::clone(&live)));
    shared.changes.send_replace(());
    let ended = tokio::select! {
        () = live.ended() => Ending::Lost,
        () = node.opened() => Ending::Abandoned,
        never = keep_scripts_loaded(shared, node, &live) => match never {},
    };
    node.set_live(worker, None);
    // Whoever still waits for an answer is told at once that there will be none.
    live.close();
    ended
}
