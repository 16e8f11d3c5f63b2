//! Idle connections of one endpoint, a list for each worker, so that a request never changes
//! threads. The connection used last is used next: the rest grow old together and are closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::http_ext::body::{Patience, RequestBody};

/// The most idle connections of an endpoint that one worker keeps.
const MAX_IDLE: usize = 512;
/// How long a connection whose response has ended may take to be ready again.
const SETTLING: Duration = Duration::from_secs(1);

/// The pool of one endpoint.
#[derive(Debug)]
pub(super) struct Pool {
    workers: Box<[Mutex<Vec<Idle>>]>,
    /// Counts the sweeps, which come once a second: a clock that costs nothing to read.
    sweeps: AtomicU32,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: u32,
}

/// A connection, and the timer of what it is waited for.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<RequestBody>,
    pub(super) patience: Patience,
}

/// A connection out of the pool, to be given back once its response has been read to the end. If it
/// is dropped instead, the connection closes: nobody else may read the rest of that response.
#[derive(Debug)]
pub struct Lease {
    pub(super) connection: Connection,
    pool: Arc<Pool>,
    worker: usize,
}

impl Pool {
    pub(super) fn new(workers: usize) -> Self {
        Pool {
            workers: (0..workers).map(|_| Mutex::default()).collect(),
            sweeps: AtomicU32::new(0),
        }
    }

    /// The connection that went idle last, if one is open.
    pub(super) fn take(self: &Arc<Self>, worker: usize) -> Option<Lease> {
        let mut idle = self.workers[worker].lock();
        loop {
            let Idle { connection, .. } = idle.pop()?;
            if connection.sender.is_ready() {
                return Some(self.lease(worker, connection));
            }
        }
    }

    /// A lease on a new connection.
    pub(super) fn open(self: &Arc<Self>, worker: usize, sender: SendRequest<RequestBody>) -> Lease {
        let patience = Patience::new(Duration::ZERO);
        self.lease(worker, Connection { sender, patience })
    }

    fn lease(self: &Arc<Self>, worker: usize, connection: Connection) -> Lease {
        Lease {
            connection,
            pool: Arc::clone(self),
            worker,
        }
    }

    /// Closes what has been idle for `limit` whole seconds. To be called once a second.
    pub(super) fn sweep(&self, limit: Duration) {
        let now = self.sweeps.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let limit = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX);
        for worker in &self.workers {
            worker.lock().retain(|idle| {
                !idle.connection.sender.is_closed() && now.wrapping_sub(idle.since) <= limit
            });
        }
    }
}

impl Lease {
    /// How long the upstream is waited for.
    pub fn patience(&mut self) -> &mut Patience {
        &mut self.connection.patience
    }

    /// Gives the connection back for the next request. To be called after the end of the response.
    pub fn release(self) {
        if self.connection.sender.is_ready() {
            self.keep();
        } else if !self.connection.sender.is_closed() {
            tokio::spawn(self.settle());
        }
    }

    /// Waits until the connection's driver has seen the end too.
    async fn settle(mut self) {
        if let Ok(Ok(())) = timeout(SETTLING, self.connection.sender.ready()).await {
            self.keep();
        }
    }

    fn keep(self) {
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
