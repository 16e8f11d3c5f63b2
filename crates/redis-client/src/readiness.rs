//! Waiting for connections: a call waits for one, a start or a reload for all.

use std::ops::Range;
use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::fault::{Fault, FaultKind};
use super::node::Node;
use super::script::Script;
use super::{Client, Shared, State};

impl Client {
    /// Loads these scripts into every server, now and whenever it has lost them, so that no call
    /// sends their text.
    pub fn load_scripts(&self, scripts: &[Script]) {
        self.0.scripts.send_if_modified(|known| {
            let is_new = |script: &&Script| !known.contains(script);
            let new: Vec<_> = scripts.iter().filter(is_new).cloned().collect();
            let has_new = !new.is_empty();
            if has_new {
                *known = known.iter().cloned().chain(new).collect();
            }
            has_new
        });
    }

    /// Waits until each of these workers is connected to every server, and every server has the
    /// scripts. Servers out of use are skipped if another is in use. The workers have to be
    /// [started](Client::start).
    ///
    /// Without a server that answers this never returns: callers set a deadline.
    pub async fn connected(&self, workers: Range<usize>) {
        let mut changes = self.0.changes.subscribe();
        loop {
            let mut all = workers.clone();
            if all.all(|worker| self.0.is_connected(worker)) {
                return;
            }
            // The sender lives as long as the client.
            let _ = changes.changed().await;
        }
    }
}

impl Shared {
    fn is_connected(&self, worker: usize) -> bool {
        let map = self.map.load();
        let scripts = self.scripts.borrow().len();
        let is_faulty = |node: &&Arc<Node>| matches!(node.state(), State::Down { .. });
        let is_ready =
            |node: &Arc<Node>| node.connection(worker).is_ok() && node.scripts() >= scripts;
        let mut nodes = map.nodes.iter().filter(|node| !is_faulty(node)).peekable();
        nodes.peek().is_some() && nodes.all(is_ready)
    }

    /// Waits until the deadline for discovery, if no server is known and no error explains it.
    pub(super) async fn found_servers(&self, deadline: Instant) {
        let mut changes = self.changes.subscribe();
        while matches!(self.route([&b""[..]]), Err(fault) if fault.kind == FaultKind::Connecting) {
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return;
            }
        }
    }

    /// The server that `find` returns, with the worker's connection. Waits until the deadline for a
    /// connection that is being made.
    pub(super) async fn connection(
        &self,
        worker: usize,
        deadline: Instant,
        find: impl Fn() -> Result<Arc<Node>, Fault>,
    ) -> Result<(Arc<Node>, Arc<Connection>), Fault> {
        let look = || {
            let node = find()?;
            let connection = node.connection(worker)?;
            Ok((node, connection))
        };
        let is_made = |found: &Result<_, Fault>| !matches!(found, Err(fault) if fault.kind == FaultKind::Connecting);
        let found = look();
        if is_made(&found) {
            return found;
        }
        let mut changes = self.changes.subscribe();
        loop {
            let found = look();
            let is_late = || Instant::now() >= deadline;
            if is_made(&found) || is_late() {
                return found;
            }
            let _ = timeout_at(deadline, changes.changed()).await;
        }
    }
}
