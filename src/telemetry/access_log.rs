//! One line per request, written by a thread of its own.
//!
//! A worker copies a request's few texts into its own queue: about 100 ns, no formatting, no allocation,
//! no system call. The writer takes whole queues, formats and writes them in batches, and sleeps while
//! there is nothing. Queues are bounded; lines that do not fit, or cannot be written, are counted.

mod format;
mod queue;
mod writer;

use std::{
    io,
    net::IpAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{Builder as ThreadBuilder, Thread},
    time::Duration,
};

use http::Version;
use parking_lot::{Condvar, Mutex};

use self::{queue::Queue, writer::Writer};
use super::{
    metrics::access_log_dropped,
    registry::{Counter, Registry},
};
use crate::clock::Timestamp;

/// What an access log is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSpec {
    /// How lines look.
    pub format: Format,
    /// Where they go.
    pub target: Target,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A JSON object.
    Json,
    /// The combined log format of Apache and nginx.
    Combined,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To standard output.
    Stdout,
    /// To the end of a file, which is made if there is none.
    File(PathBuf),
}

/// What is logged of one request. Texts may be any bytes; an empty one stands for an absent one.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When the request's head had arrived.
    pub time: Timestamp,
    /// Whose request it is.
    pub client_ip: IpAddr,
    /// The method.
    pub method: &'a [u8],
    /// The host asked for, without a port.
    pub host: &'a [u8],
    /// The path with its query.
    pub path: &'a [u8],
    /// The version of HTTP.
    pub version: Version,
    /// The status answered.
    pub status: u16,
    /// Bytes of the response's body that were sent.
    pub bytes: u64,
    /// From the head's arrival to the end of the response.
    pub duration: Duration,
    /// What of it the upstream took to answer, where it was asked.
    pub upstream: Option<Duration>,
    /// The route that took the request.
    pub route: &'a [u8],
    /// The deciding policy.
    pub policy: &'a [u8],
    /// What it decided.
    pub decision: &'static str,
    /// The Referer field.
    pub referer: &'a [u8],
    /// The User-Agent field.
    pub user_agent: &'a [u8],
    /// The X-Request-Id field.
    pub request_id: &'a [u8],
}

/// An access log that is being written. Cheap to clone; clones write to the same one.
#[derive(Clone, Debug)]
pub struct AccessLog {
    shared: Arc<Shared>,
    writer: Thread,
}

/// What the workers and the writer share.
#[derive(Debug)]
struct Shared {
    queues: Box<[Mutex<Queue>]>,
    dropped: Counter,
    /// Whether the writer sleeps until it is woken.
    parked: AtomicBool,
    reopen: AtomicBool,
    stop: AtomicBool,
    stopped: Mutex<bool>,
    at_stop: Condvar,
}

impl AccessLog {
    /// Opens the log and starts its writer, with a queue for each of `workers`.
    ///
    /// # Errors
    ///
    /// A file that cannot be opened, or a thread that cannot be started.
    pub fn open(spec: &AccessLogSpec, workers: usize, registry: &Registry) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queues: std::iter::repeat_with(Mutex::default)
                .take(workers.max(1))
                .collect(),
            dropped: access_log_dropped(registry),
            parked: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            stopped: Mutex::new(false),
            at_stop: Condvar::new(),
        });
        let writer = Writer::open(spec, shared.clone())?;
        let thread = ThreadBuilder::new()
            .name("access-log".into())
            .spawn(|| writer.run())?;
        Ok(Self {
            shared,
            writer: thread.thread().clone(),
        })
    }

    /// Queues one line. Never waits for the writer; a line that does not fit is counted as dropped.
    ///
    /// `worker` is who calls, below the number given at [`open`](Self::open): others would only wait for
    /// each other.
    pub fn record(&self, worker: usize, record: &Record<'_>) {
        let queue = &self.shared.queues[worker % self.shared.queues.len()];
        if !queue.lock().push(record) {
            self.shared.dropped.increment();
        }
        // The writer sets this before it looks at the queues for the last time: see `Writer::park`.
        if self.shared.parked.load(Relaxed) && self.shared.parked.swap(false, Relaxed) {
            self.writer.unpark();
        }
    }

    /// Has the file opened anew by its name, after it was moved away. Returns at once.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Relaxed);
        self.writer.unpark();
    }

    /// Writes what is queued and ends the writer; waits for that at most `deadline`. Returns whether it
    /// ended: a reader of standard output that stands still can prevent it.
    pub fn close(&self, deadline: Duration) -> bool {
        self.shared.stop.store(true, Relaxed);
        self.writer.unpark();
        let mut stopped = self.shared.stopped.lock();
        while !*stopped {
            if self
                .shared
                .at_stop
                .wait_for(&mut stopped, deadline)
                .timed_out()
            {
                break;
            }
        }
        *stopped
    }
}

#[cfg(test)]
mod tests;
