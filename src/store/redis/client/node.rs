//! One server: whether it is of use, and the connections to it, one a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::breaker::Breaker;
use super::connection::Connection;
use super::fault::{Fault, FaultKind};
use super::random;
use super::spec::Address;
use crate::clock::Timestamp;

/// A server with its breaker, which all workers share.
#[derive(Debug)]
pub(super) struct Node {
    pub address: Address,
    /// The key that a probe writes.
    probe: Mutex<Arc<str>>,
    condition: Mutex<Condition>,
    /// The condition's breaker in a glance, for calls: [`WELL`], [`SUSPECT`] or [`OPEN`] and more.
    glance: AtomicU8,
    open: watch::Sender<bool>,
    /// Whoever has it probes.
    turn: Semaphore,
    connections: Box<[ArcSwapOption<Connection>]>,
    /// How many of the client's scripts it has, the first ones of the list.
    scripts: AtomicUsize,
    /// Whoever has it loads scripts.
    pub loading: Semaphore,
}

#[derive(Debug, Default)]
struct Condition {
    breaker: Breaker,
    /// Why the breaker is open, from the first probe that failed.
    fault: Option<Fault>,
}

const WELL: u8 = 0;
const SUSPECT: u8 = 1;
/// And the number of the fault's kind.
const OPEN: u8 = 2;

/// What a server is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Starting,
    Well,
    Faulty(Fault),
}

impl Node {
    pub(super) fn new(address: Address, probe: Arc<str>, workers: usize) -> Self {
        Self {
            address,
            probe: Mutex::new(probe),
            condition: Mutex::default(),
            glance: AtomicU8::new(OPEN + FaultKind::Connecting as u8),
            open: watch::Sender::new(true),
            turn: Semaphore::new(1),
            connections: (0..workers).map(|_| ArcSwapOption::empty()).collect(),
            scripts: AtomicUsize::new(0),
            loading: Semaphore::new(1),
        }
    }

    pub(super) fn probe(&self) -> Arc<str> {
        Arc::clone(&self.probe.lock())
    }

    pub(super) fn set_probe(&self, key: Arc<str>) {
        *self.probe.lock() = key;
    }

    /// The connection of this worker; why there is none.
    pub(super) fn live(&self, worker: usize) -> Result<Arc<Connection>, Fault> {
        let kind = self.glance.load(Relaxed).checked_sub(OPEN);
        if let Some(kind) = kind {
            return Err(FaultKind::ALL[usize::from(kind)].bare());
        }
        let connection = self.connections[worker].load_full();
        connection.ok_or(FaultKind::Connecting.bare())
    }

    /// How many of the client's scripts the server has.
    pub(super) fn scripts(&self) -> usize {
        self.scripts.load(Relaxed)
    }

    pub(super) fn set_scripts(&self, count: usize) {
        self.scripts.store(count, Relaxed);
    }

    pub(super) fn set_live(&self, worker: usize, connection: Option<Arc<Connection>>) {
        self.connections[worker].store(connection);
    }

    pub(super) fn outlook(&self) -> Health {
        let condition = self.condition.lock();
        match (&condition.fault, condition.breaker.is_open()) {
            (_, false) => Health::Well,
            (None, true) => Health::Starting,
            (Some(fault), true) => Health::Faulty(fault.clone()),
        }
    }

    /// Waits until a worker may connect: with the right to probe while the breaker is open, and without when it has
    /// closed.
    pub(super) async fn admission(&self) -> Option<SemaphorePermit<'_>> {
        let mut open = self.open.subscribe();
        if !*open.borrow_and_update() {
            return None;
        }
        let turn = tokio::select! {
            turn = self.turn.acquire() => turn.ok()?,
            _ = open.wait_for(|open| !open) => return None,
        };
        let pause = self.condition.lock().breaker.pause(random());
        tokio::time::sleep(pause).await;
        Some(turn)
    }

    /// Returns when the breaker is open.
    pub(super) async fn opened(&self) {
        let mut open = self.open.subscribe();
        let _ = open.wait_for(|open| *open).await;
    }

    /// A call was answered.
    pub(super) fn answered(&self) {
        if self.glance.load(Relaxed) == SUSPECT {
            self.change(|condition| {
                condition.breaker.answered();
            });
        }
    }

    /// A call begun at `started` was not answered in time.
    pub(super) fn timed_out(&self, started: Timestamp, now: Timestamp) {
        self.change(|condition| {
            if condition.breaker.timed_out(started, now) {
                condition.fault = Some(FaultKind::Timeout.bare());
            }
        });
    }

    /// A call begun at `started` showed that the server is of no use.
    pub(super) fn failed(&self, started: Timestamp, now: Timestamp, fault: Fault) {
        self.change(|condition| {
            if condition.breaker.failed(started, now) {
                condition.fault = Some(fault);
            }
        });
    }

    /// A connection could not be made, or its check failed.
    pub(super) fn probe_failed(&self, now: Timestamp, fault: Fault) {
        self.change(|condition| {
            condition.breaker.probe_failed(now);
            condition.fault = Some(fault);
        });
    }

    /// A connection was made and checked.
    pub(super) fn proved(&self, now: Timestamp) {
        self.change(|condition| {
            if condition.breaker.is_open() {
                condition.breaker.close(now);
                condition.fault = None;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Condition)) {
        let mut condition = self.condition.lock();
        change(&mut condition);
        let breaker = &condition.breaker;
        let glance = match &condition.fault {
            _ if !breaker.is_open() && breaker.is_suspect() => SUSPECT,
            _ if !breaker.is_open() => WELL,
            None => OPEN + FaultKind::Connecting as u8,
            Some(fault) => OPEN + fault.kind as u8,
        };
        self.glance.store(glance, Relaxed);
        let is_open = breaker.is_open();
        // Under the lock, so that the last change is also the last that is told.
        self.open
            .send_if_modified(|open| std::mem::replace(open, is_open) != is_open);
    }
}
