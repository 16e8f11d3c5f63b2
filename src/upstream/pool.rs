//! Idle connections of one endpoint, a list for each worker, so that a request never changes
//! threads. The last used connection is used next: the rest grow old and are closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::Dscp;
use super::connector::Stream;
use super::session::{Http1Session, PooledConnection, Session};
use crate::telemetry::metrics::EndpointMetrics;

/// The most idle connections of an endpoint that one worker keeps.
const MAX_IDLE: usize = 512;

/// Idle connections of one endpoint.
#[derive(Debug)]
pub(super) struct Pool {
    workers: Box<[Mutex<Vec<Idle>>]>,
    /// Counts the sweeps, which come once a second: a clock that costs nothing to read.
    sweeps: AtomicU32,
    metrics: Arc<EndpointMetrics>,
}

#[derive(Debug)]
struct Idle {
    connection: Box<PooledConnection>,
    /// The number of sweeps before it went idle.
    since: u32,
}

impl Pool {
    pub(super) fn new(workers: usize, metrics: &Arc<EndpointMetrics>) -> Self {
        Pool {
            workers: (0..workers).map(|_| Mutex::default()).collect(),
            sweeps: AtomicU32::new(0),
            metrics: Arc::clone(metrics),
        }
    }

    pub(super) fn metrics(&self) -> &EndpointMetrics {
        &self.metrics
    }

    /// A session over the connection of this code point that went idle last, if one is open.
    pub(super) fn checkout(self: &Arc<Self>, worker: usize, dscp: Option<Dscp>) -> Option<Session> {
        loop {
            let mut connection = {
                let mut idle = self.workers[worker].lock();
                let last = idle.iter().rposition(|idle| idle.connection.dscp == dscp)?;
                idle.remove(last).connection
            };
            if connection.is_open() {
                return Some(self.session(worker, connection));
            }
        }
    }

    /// A session over a new connection.
    pub(super) fn open(
        self: &Arc<Self>,
        worker: usize,
        dscp: Option<Dscp>,
        stream: Stream,
    ) -> Session {
        let connection = PooledConnection::new(stream, dscp, self.metrics.connection());
        self.session(worker, Box::new(connection))
    }

    fn session(self: &Arc<Self>, worker: usize, connection: Box<PooledConnection>) -> Session {
        Session::Http1(Http1Session {
            connection,
            pool: Arc::clone(self),
            worker,
        })
    }

    /// Keeps a connection whose response was read to its end.
    pub(super) fn check_in(&self, worker: usize, connection: Box<PooledConnection>) {
        let since = self.sweeps.load(Ordering::Relaxed);
        let mut idle = self.workers[worker].lock();
        if idle.len() < MAX_IDLE {
            idle.push(Idle { connection, since });
        }
    }

    /// Closes connections that were idle for `limit` whole seconds, or that the upstream closed.
    /// Must be called once a second.
    pub(super) fn sweep(&self, limit: Duration) {
        let now = self.sweeps.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let limit = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX);
        for worker in &self.workers {
            worker.lock().retain_mut(|idle| {
                now.wrapping_sub(idle.since) <= limit && idle.connection.is_open()
            });
        }
    }
}
