//! Idle connections of one endpoint, a list for each worker, so that a request never changes
//! threads. The last used connection is used next: the rest grow old and are closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::Dscp;
use super::connect::Stream;
use super::http1;
use crate::net::idle_timer::IdleTimer;
use crate::telemetry::metrics::{EndpointConnection, EndpointFailure, EndpointMetrics};

/// The most idle connections of an endpoint that one worker keeps.
const MAX_IDLE: usize = 512;

/// The pools of one endpoint: one for most requests, and one for each DSCP.
#[derive(Debug)]
pub(super) struct Pools {
    plain: Arc<Pool>,
    workers: usize,
    metrics: Arc<EndpointMetrics>,
    /// Few: there are 64 code points.
    marked: Mutex<Vec<(Dscp, Arc<Pool>)>>,
}

impl Pools {
    pub(super) fn new(workers: usize, metrics: &Arc<EndpointMetrics>) -> Self {
        Pools {
            plain: Arc::new(Pool::new(workers, metrics)),
            workers,
            metrics: Arc::clone(metrics),
            marked: Mutex::default(),
        }
    }

    /// The pool for most requests.
    pub(super) fn plain(&self) -> &Arc<Pool> {
        &self.plain
    }

    /// The pool for requests with this DSCP, created on first use.
    pub(super) fn by_dscp(&self, dscp: Dscp) -> Arc<Pool> {
        let mut marked = self.marked.lock();
        if let Some((_, pool)) = marked.iter().find(|(other, _)| *other == dscp) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(Pool::new(self.workers, &self.metrics));
        marked.push((dscp, Arc::clone(&pool)));
        pool
    }

    /// Closes connections that were idle for `limit` whole seconds, or that the upstream closed.
    /// Must be called once a second.
    pub(super) fn sweep(&self, limit: Duration) {
        self.plain.sweep(limit);
        for (_, pool) in &*self.marked.lock() {
            pool.sweep(limit);
        }
    }
}

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
    since: u32,
}

/// A connection with its time-out.
#[derive(Debug)]
pub(super) struct PooledConnection {
    pub(super) http: http1::Connection<Stream>,
    pub(super) idle_timer: IdleTimer,
    _open: EndpointConnection,
}

/// A connection in use, to be returned to the pool once its response was read to the end. Dropping
/// it closes the connection: no other request may read the rest of that response.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) connection: Box<PooledConnection>,
    pool: Arc<Pool>,
    worker: usize,
}

impl Pool {
    fn new(workers: usize, metrics: &Arc<EndpointMetrics>) -> Self {
        Pool {
            workers: (0..workers).map(|_| Mutex::default()).collect(),
            sweeps: AtomicU32::new(0),
            metrics: Arc::clone(metrics),
        }
    }

    /// The connection that went idle last, if one is open.
    pub(super) fn take(self: &Arc<Self>, worker: usize) -> Option<Lease> {
        loop {
            let Idle { mut connection, .. } = self.workers[worker].lock().pop()?;
            if connection.http.is_open() {
                return Some(self.lease(worker, connection));
            }
        }
    }

    /// A lease on a new connection over `stream`.
    pub(super) fn open(self: &Arc<Self>, worker: usize, stream: Stream) -> Lease {
        let connection = PooledConnection {
            http: http1::Connection::new(stream),
            idle_timer: IdleTimer::new(Duration::ZERO),
            _open: self.metrics.connection(),
        };
        self.lease(worker, Box::new(connection))
    }

    fn lease(self: &Arc<Self>, worker: usize, connection: Box<PooledConnection>) -> Lease {
        Lease {
            connection,
            pool: Arc::clone(self),
            worker,
        }
    }

    fn sweep(&self, limit: Duration) {
        let now = self.sweeps.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let limit = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX);
        for worker in &self.workers {
            worker.lock().retain_mut(|idle| {
                now.wrapping_sub(idle.since) <= limit && idle.connection.http.is_open()
            });
        }
    }
}

impl Lease {
    /// Counts a response that the endpoint did not finish.
    pub(super) fn failed(&self, reason: EndpointFailure) {
        self.pool.metrics.failure(reason);
    }

    /// Returns the connection to the pool if it may carry another request. Must be called after the
    /// end of the response.
    pub(super) fn release(mut self) {
        if !self.connection.http.is_reusable() {
            return;
        }
        self.connection.http.release();
        let since = self.pool.sweeps.load(Ordering::Relaxed);
        let mut idle = self.pool.workers[self.worker].lock();
        if idle.len() < MAX_IDLE {
            idle.push(Idle {
                connection: self.connection,
                since,
            });
        }
    }
}
