//! One server: its breaker, and its connections, one for each worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use super::breaker::Breaker;
use super::connection::Connection;
use super::fault::{Fault, FaultKind};
use super::observer::State;
use super::random;
use super::spec::Address;

/// A server with its breaker, which all workers share.
#[derive(Debug)]
pub(super) struct Node {
    pub address: Address,
    /// The key that a probe writes.
    pub probe: Mutex<Arc<str>>,
    condition: Mutex<Condition>,
    /// The breaker's state for calls, without a lock: [`CLOSED`], [`SUSPECT`], or [`OPEN`] and
    /// more.
    breaker_state: AtomicU8,
    open: watch::Sender<bool>,
    /// The right to probe.
    probe_permit: Semaphore,
    connections: Box<[ArcSwapOption<Connection>]>,
    /// The number of the client's scripts that it has, from the start of the list.
    scripts: AtomicUsize,
    /// The right to load scripts.
    pub loading: Semaphore,
}

#[derive(Debug, Default)]
struct Condition {
    breaker: Breaker,
    /// The reason for the open breaker, from the first probe that failed.
    fault: Option<Fault>,
}

const CLOSED: u8 = 0;
const SUSPECT: u8 = 1;
/// Plus the number of the fault's kind.
const OPEN: u8 = 2;

impl Node {
    pub(super) fn new(address: Address, probe: Arc<str>, workers: usize) -> Self {
        Self {
            address,
            probe: Mutex::new(probe),
            condition: Mutex::default(),
            breaker_state: AtomicU8::new(OPEN + FaultKind::Connecting as u8),
            open: watch::Sender::new(true),
            probe_permit: Semaphore::new(1),
            connections: (0..workers).map(|_| ArcSwapOption::empty()).collect(),
            scripts: AtomicUsize::new(0),
            loading: Semaphore::new(1),
        }
    }

    /// The worker's connection, or the reason for its absence.
    pub(super) fn connection(&self, worker: usize) -> Result<Arc<Connection>, Fault> {
        let kind = self.breaker_state.load(Relaxed).checked_sub(OPEN);
        if let Some(kind) = kind {
            return Err(FaultKind::ALL[usize::from(kind)].fault());
        }
        let connection = self.connections[worker].load_full();
        connection.ok_or(FaultKind::Connecting.fault())
    }

    pub(super) fn scripts(&self) -> usize {
        self.scripts.load(Relaxed)
    }

    pub(super) fn set_scripts(&self, count: usize) {
        self.scripts.store(count, Relaxed);
    }

    pub(super) fn set_connection(&self, worker: usize, connection: Option<Arc<Connection>>) {
        self.connections[worker].store(connection);
    }

    /// The state of this server alone.
    pub(super) fn state(&self) -> State {
        let condition = self.condition.lock();
        match (&condition.fault, condition.breaker.is_open()) {
            (_, false) => State::Up,
            (None, true) => State::Starting,
            (Some(fault), true) => State::Down {
                server: Some(self.address.clone()),
                fault: fault.clone(),
            },
        }
    }

    /// Waits until a worker may connect. With an open breaker it returns the right to probe; with a
    /// closed one, `None`.
    pub(super) async fn wait_to_connect(&self) -> Option<SemaphorePermit<'_>> {
        let mut open = self.open.subscribe();
        if !*open.borrow_and_update() {
            return None;
        }
        let probe_permit = tokio::select! {
            probe_permit = self.probe_permit.acquire() => probe_permit.ok()?,
            _ = open.wait_for(|open| !open) => return None,
        };
        let pause = self.condition.lock().breaker.pause(random());
        tokio::time::sleep(pause).await;
        Some(probe_permit)
    }

    /// Waits until the breaker is open.
    pub(super) async fn wait_until_open(&self) {
        let mut open = self.open.subscribe();
        let _ = open.wait_for(|open| *open).await;
    }

    /// Records an answer.
    pub(super) fn record_answer(&self) {
        if self.breaker_state.load(Relaxed) == SUSPECT {
            self.change(|condition| {
                condition.breaker.answered();
            });
        }
    }

    /// Records that a call begun at `started` timed out, or showed the server out of use.
    pub(super) fn record_failure(&self, started: Instant, now: Instant, fault: Fault) {
        self.change(|condition| {
            let has_opened = match fault.kind {
                FaultKind::Timeout => condition.breaker.timed_out(started, now),
                _ => condition.breaker.failed(started, now),
            };
            if has_opened {
                condition.fault = Some(fault);
            }
        });
    }

    /// Records a failed connection, or a failed check of one.
    pub(super) fn record_probe_failure(&self, now: Instant, fault: Fault) {
        self.change(|condition| {
            condition.breaker.probe_failed(now);
            condition.fault = Some(fault);
        });
    }

    /// Records a connection that was made and checked.
    pub(super) fn record_probe_success(&self, now: Instant) {
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
        let breaker_state = match &condition.fault {
            _ if !breaker.is_open() && breaker.is_suspect() => SUSPECT,
            _ if !breaker.is_open() => CLOSED,
            None => OPEN + FaultKind::Connecting as u8,
            Some(fault) => OPEN + fault.kind as u8,
        };
        self.breaker_state.store(breaker_state, Relaxed);
        let is_open = breaker.is_open();
        // Under the lock, so that the last change is also the last one published.
        self.open
            .send_if_modified(|open| std::mem::replace(open, is_open) != is_open);
    }
}
