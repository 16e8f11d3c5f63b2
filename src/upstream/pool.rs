//! Connections of one host, apart for each worker, so that a request never changes threads.
//!
//! Connections of HTTP/1.1 are in a list while they are idle. The last used connection is used
//! next: the rest grow old and are closed. Connections of HTTP/2 are [shared].

mod lease;
mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::session::{PooledConnection, SharedConnection};
use super::spec::ConnectionLimits;
use crate::net::dial::Dscp;
pub(super) use lease::ConnectionLease;
use shared::IdleConnection;
pub(super) use shared::SharedConnections;

/// The most idle connections of a host that one worker keeps.
const MAX_IDLE: usize = 512;

/// The connections of one host.
#[derive(Debug)]
pub(super) struct Pool {
    workers: Box<[Connections]>,
    /// Counts the sweeps, which come once a second: a clock that costs nothing to read.
    sweeps: AtomicU32,
    /// The bounds of connections that are opened from now on.
    pub limits: Mutex<ConnectionLimits>,
    /// No idle connection is kept any more.
    pub(super) is_closed: AtomicBool,
}

/// The connections of one worker.
#[derive(Debug, Default)]
struct Connections {
    idle: Mutex<Vec<Idle>>,
    shared: Mutex<SharedConnections>,
}

/// An idle connection of HTTP/1.1.
#[derive(Debug)]
struct Idle {
    connection: Box<PooledConnection>,
    /// The number of sweeps before it went idle.
    since: u32,
}

impl Pool {
    pub(super) fn new(workers: usize) -> Self {
        Pool {
            workers: (0..workers).map(|_| Connections::default()).collect(),
            sweeps: AtomicU32::new(0),
            limits: Mutex::new(ConnectionLimits {
                max_lifetime: Duration::MAX,
                max_requests: u32::MAX,
            }),
            is_closed: AtomicBool::new(false),
        }
    }

    /// The lease of a new connection.
    pub(super) fn lease(&self) -> ConnectionLease {
        ConnectionLease::new(*self.limits.lock(), self.sweeps.load(Ordering::Relaxed))
    }

    /// The shared connections of a worker.
    pub(super) fn shared(&self, worker: usize) -> MutexGuard<'_, SharedConnections> {
        self.workers[worker].shared.lock()
    }

    /// Adds a shared connection to those of its code point.
    pub(super) fn share(
        &self,
        worker: usize,
        dscp: Option<Dscp>,
        connection: Arc<SharedConnection>,
    ) {
        let connection = IdleConnection {
            connection,
            lease: self.lease(),
            since: self.sweeps.load(Ordering::Relaxed),
        };
        let mut shared = self.shared(worker);
        shared.group(dscp).connections.push(connection);
    }

    /// The connection of this code point that went idle last, if one is open.
    pub(super) fn checkout(
        &self,
        worker: usize,
        dscp: Option<Dscp>,
    ) -> Option<Box<PooledConnection>> {
        loop {
            let mut connection = {
                let mut idle = self.workers[worker].idle.lock();
                let last = idle.iter().rposition(|idle| idle.connection.dscp == dscp)?;
                idle.remove(last).connection
            };
            if connection.http.is_open() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose response was read to its end, unless its lease is over.
    pub(super) fn check_in(&self, worker: usize, mut connection: Box<PooledConnection>) {
        let since = self.sweeps.load(Ordering::Relaxed);
        connection.lease.spend();
        if connection.lease.is_over(since) {
            return;
        }
        let mut idle = self.workers[worker].idle.lock();
        // Read under the lock: `close` sets it before it takes the lock.
        if idle.len() < MAX_IDLE && !self.is_closed.load(Ordering::Relaxed) {
            idle.push(Idle { connection, since });
        }
    }

    /// The idle connections of HTTP/1.1.
    pub(super) fn idle(&self) -> usize {
        let idle = |worker: &Connections| worker.idle.lock().len();
        self.workers.iter().map(idle).sum()
    }

    /// Closes idle connections of HTTP/1.1 until at most `most` are left, each time the oldest of the
    /// worker that has most.
    pub(super) fn trim(&self, most: usize) {
        let idle = |worker: &Connections| worker.idle.lock().len();
        while self.idle() > most {
            let longest = self.workers.iter().max_by_key(|worker| idle(worker));
            let closed = longest.and_then(|worker| {
                let mut idle = worker.idle.lock();
                (!idle.is_empty()).then(|| idle.remove(0))
            });
            drop(closed);
        }
    }

    /// Closes the idle connections, and keeps none from now on. Shared connections end after their
    /// requests.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        for worker in &self.workers {
            worker.idle.lock().clear();
            worker.shared.lock().close();
        }
    }

    /// Closes connections that were idle for `limit` whole seconds, whose lease is over, or that the
    /// upstream closed.
    /// Must be called once a second.
    pub(super) fn sweep(&self, limit: Duration) {
        let now = self.sweeps.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let limit = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX);
        for worker in &self.workers {
            worker.idle.lock().retain_mut(|idle| {
                let is_fresh = now.wrapping_sub(idle.since) <= limit;
                is_fresh && !idle.connection.lease.is_over(now) && idle.connection.http.is_open()
            });
            worker.shared.lock().sweep(now, limit);
        }
    }
}
