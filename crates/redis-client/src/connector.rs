//! The task behind a worker's connection to one server: it connects, checks, watches and
//! reconnects.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep, timeout};

use super::connection::{CONNECT_DEADLINE, Connection};
use super::fault::{Fault, FaultKind};
use super::node::Node;
use super::observer::Operation;
use super::script::{Script, ScriptWords};
use super::{Shared, in_time};

/// Writes as the store does: a replica, or a server without memory, refuses it. A key of another
/// program stays.
pub(super) static PROBE: LazyLock<Script> =
    LazyLock::new(|| Script::new("return redis.call('SET', KEYS[1], '1', 'PX', 1000, 'NX')"));

/// The age below which a lost connection is suspect.
const SUSPECT_AGE: Duration = Duration::from_secs(1);

/// The pause between a lost connection and the first retry: an ending process closes its
/// connections before its listener.
const RECONNECT_PAUSE: Duration = Duration::from_millis(10);

/// The first and the longest pause between attempts to load scripts.
const LOADING_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

/// Keeps this worker's connection until the task is dropped.
pub(super) async fn maintain(shared: Arc<Shared>, node: Arc<Node>, worker: usize) {
    let mut ended_young = false;
    loop {
        let probe_permit = node.wait_to_connect().await;
        match connect(&shared, &node).await {
            Err(fault) => {
                node.record_probe_failure(Instant::now(), fault);
                shared.publish_state();
            }
            Ok(connection) => {
                let since = Instant::now();
                node.record_probe_success(since);
                shared.publish_state();
                drop(probe_permit);
                let lost = serve(&shared, &node, worker, connection).await;
                let young = since.elapsed() < SUSPECT_AGE;
                // One lost connection is no dead server: reconnecting shows what is wrong. Two in a
                // row count as a failure, or the task would reconnect for ever.
                if lost && young && ended_young {
                    shared.record_failure(&node, Instant::now(), FaultKind::Lost.fault());
                }
                ended_young = lost && young;
                if lost {
                    sleep(RECONNECT_PAUSE).await;
                }
            }
        }
    }
}

async fn connect(shared: &Shared, node: &Node) -> Result<Connection, Fault> {
    let connected = probe(shared, node).await;
    let fault = connected.as_ref().err().map(|fault| fault.kind);
    shared
        .observer
        .sent(Operation::Probe, fault, Duration::ZERO);
    connected
}

/// Connects, loads missing scripts, and tests a write.
async fn probe(shared: &Shared, node: &Node) -> Result<Connection, Fault> {
    let connection = Connection::open(&node.address, &shared.options).await?;
    load_scripts(shared, node, &connection).await;
    let mut words = ScriptWords::default();
    words.key(node.probe.lock().as_bytes());
    let check = PROBE.by_sha(&words);
    let deadline = || Instant::now() + shared.spec.timeout;
    let mut answer = in_time(deadline(), connection.send(&check)).await;
    if answer.as_ref().is_err_and(Fault::is_unknown_script) {
        // The server has restarted since its scripts were loaded.
        node.set_scripts(0);
        load_scripts(shared, node, &connection).await;
        answer = in_time(deadline(), connection.run(&PROBE, &words)).await;
    }
    answer.map(|_| connection)
}

/// Loads the scripts that the server lacks; without them, calls send their text. The next call
/// shows a failure.
async fn load_scripts(shared: &Shared, node: &Node, connection: &Connection) {
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
        // A user without SCRIPT may still run scripts by their text.
        let is_done = |answer: &Result<Value, Fault>| match answer {
            Ok(_) => true,
            Err(fault) => !matches!(fault.kind, FaultKind::Loading | FaultKind::Busy),
        };
        let answers = connection.send_all(&pipeline).await;
        if answers.is_ok_and(|answers| answers.iter().all(is_done)) {
            node.set_scripts(scripts.len());
            shared.changes.send_replace(());
        }
    };
    let _ = timeout(CONNECT_DEADLINE, loading).await;
}

/// Loads each script that is added later, with retries after a pause.
async fn keep_scripts_loaded(shared: &Shared, node: &Node, connection: &Connection) -> Infallible {
    let mut scripts = shared.scripts.subscribe();
    let [mut pause, longest] = LOADING_PAUSES;
    loop {
        let wanted = scripts.borrow_and_update().len();
        load_scripts(shared, node, connection).await;
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

/// Offers the connection to calls until it is lost, which returns true, or the breaker opens.
async fn serve(shared: &Shared, node: &Node, worker: usize, connection: Connection) -> bool {
    let connection = Arc::new(connection);
    node.set_connection(worker, Some(Arc::clone(&connection)));
    shared.changes.send_replace(());
    let is_lost = tokio::select! {
        () = connection.ended() => true,
        () = node.wait_until_open() => false,
        never = keep_scripts_loaded(shared, node, &connection) => match never {},
    };
    node.set_connection(worker, None);
    // Waiting calls fail at once.
    connection.close();
    is_lost
}
