//! One line per request, written by a thread of its own.
//!
//! A worker adds its lines to a queue of its own: about 300 ns, rarely an allocation, no system
//! call but to wake the writer, which writes whole queues and sleeps while there is nothing. Queues
//! are bounded; lines that do not fit, or cannot be written, are counted.
//!
//! A log ends with its last holder: whoever exchanges it for another drops it, and requests in
//! flight still write to the one that they began with.

mod fields;
mod format;
mod queue;
mod writer;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder as ThreadBuilder, Thread};
use std::time::Duration;

use derive_more::Display;
use http::{HeaderName, StatusCode, Version};
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

pub use self::fields::{KeyForm, LogField, LoggedParts, MAX_HEADER_VALUE, MAX_HEADER_VALUES};
use self::queue::{PushResult, Queue};
use self::writer::LogWriter;
use super::metrics::{LimitDecision, access_log_dropped};
use super::registry::{Counter, Registry};
use crate::clock::Timestamp;

/// The format and the target of an access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSpec {
    /// How lines look.
    pub format: LineFormat,
    /// Where they go.
    pub target: LogTarget,
    /// The fields of JSON lines, in their order.
    pub fields: Vec<LogField>,
    /// The form of keys in JSON lines.
    pub keys: KeyForm,
    /// Header fields of requests that JSON lines have.
    pub headers: Vec<HeaderName>,
    /// Columns of clients that JSON lines have.
    pub client_columns: Box<[Box<str>]>,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// A JSON object.
    Json,
    /// The combined log format of Apache and nginx.
    Combined,
}

/// Where lines go.
#[derive(Default, Clone, Debug, Display, PartialEq, Eq)]
pub enum LogTarget {
    /// To standard output.
    #[default]
    #[display("stdout")]
    Stdout,
    /// To the end of a file, which is made if there is none.
    #[display("{}", _0.display())]
    File(PathBuf),
}

/// The logged fields of one request. Texts may be any bytes; an empty one stands for an absent one.
#[derive(Debug)]
pub struct Record<'a> {
    /// When the request's head had arrived.
    pub time: Timestamp,
    /// The client's address.
    pub client_ip: IpAddr,
    /// The name of the client by its key, and the columns of the operator's choice with their values.
    pub client: &'a [(&'a str, &'a str)],
    /// The method.
    pub method: &'a [u8],
    /// The request's own texts.
    pub texts: RequestTexts<'a>,
    /// The version of HTTP.
    pub version: Version,
    /// The status answered.
    pub status: StatusCode,
    /// Bytes of the response's body that were sent.
    pub bytes: u64,
    /// From the head's arrival to the end of the response.
    pub duration: Duration,
    /// For how long a limit has the request wait, where it does.
    pub delay: Option<Duration>,
    /// For how long the request has waited for a slot of its upstream, where it did.
    pub pending: Option<Duration>,
    /// The time until the upstream's response; `None` if none was asked.
    pub upstream_time: Option<Duration>,
    /// The route that took the request.
    pub route: &'a [u8],
    /// The upstream that was sent the request.
    pub upstream: &'a [u8],
    /// Its endpoint that was sent the request last.
    pub endpoint: &'a [u8],
    /// How many of its addresses were tried.
    pub attempts: u32,
    /// Why there is no response of the upstream's, or not all of it.
    pub error: &'static str,
    /// The part of the limits.
    pub limits: LoggedDecision<'a>,
    /// Costs that the response stated, by policy.
    pub costs: &'a [(Arc<str>, u32)],
    /// The version of TLS; empty for a connection in clear text.
    pub tls_version: &'static str,
    /// Header fields of the operator's choice; those of one name stand together.
    pub headers: &'a [LoggedHeader<'a>],
}

/// Texts of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTexts<'a> {
    /// The path with its query.
    pub path: &'a [u8],
    /// The host asked for, without a port.
    pub host: &'a [u8],
    /// The Referer field.
    pub referer: &'a [u8],
    /// The User-Agent field.
    pub user_agent: &'a [u8],
    /// The X-Request-Id field.
    pub request_id: &'a [u8],
    /// The trace of the Traceparent field.
    pub trace_id: &'a [u8],
}

/// The decision of the limits on a request; by default none has decided.
#[derive(Debug, Default)]
pub struct LoggedDecision<'a> {
    /// The deciding policy.
    pub policy: &'a str,
    /// The decision.
    pub decision: LimitDecision,
    /// True if the deciding policy bans the key.
    pub is_banned: bool,
    /// The policies whose granted units paid.
    pub granted: SmallVec<[&'a str; 2]>,
    /// The key of the deciding bucket.
    pub key: LoggedKey<'a>,
    /// Units that the deciding bucket has left.
    pub remaining: Option<u64>,
    /// The time until the same request is allowed, if it is refused and ever will be.
    pub retry_after: Option<Duration>,
}

/// The key of a bucket, as a line has it.
#[derive(Clone, Copy, Debug, Default)]
pub enum LoggedKey<'a> {
    /// No limit decided, or the request lacks the key.
    #[default]
    None,
    /// The hash under which the bucket is found.
    Hashed(u64),
    /// The values of its parts.
    Readable(&'a [Box<[u8]>]),
}

/// A header field of a request.
#[derive(Clone, Copy, Debug)]
pub struct LoggedHeader<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value, or the beginning of a longer one.
    pub value: &'a [u8],
    /// True if the value was longer, or there were more of them.
    pub is_cut: bool,
}

/// An access log that is being written, until it is dropped: then what is queued is the last.
#[derive(Debug)]
pub struct AccessLog {
    spec: AccessLogSpec,
    parts: LoggedParts,
    handle: WriterHandle,
}

/// A log's writer, which outlives the log by what is queued.
#[derive(Clone, Debug)]
pub struct WriterHandle {
    shared: Arc<SharedQueues>,
    writer: Thread,
}

/// State that the workers and the writer share.
#[derive(Debug)]
struct SharedQueues {
    queues: Box<[Mutex<Queue>]>,
    dropped: Counter,
    /// True while the writer sleeps until it is woken.
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
        let shared = Arc::new(SharedQueues {
            queues: (0..workers.max(1))
                .map(|_| Mutex::new(Queue::new(spec)))
                .collect(),
            dropped: access_log_dropped(registry),
            parked: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            stopped: Mutex::new(false),
            at_stop: Condvar::new(),
        });
        let writer = LogWriter::open(spec, shared.clone())?;
        let thread = ThreadBuilder::new()
            .name("access-log".into())
            .spawn(|| writer.run())?;
        Ok(Self {
            spec: spec.clone(),
            parts: LoggedParts::of(spec),
            handle: WriterHandle {
                shared,
                writer: thread.thread().clone(),
            },
        })
    }

    /// The settings that it was opened with.
    pub fn spec(&self) -> &AccessLogSpec {
        &self.spec
    }

    /// The parts of each request that lines have.
    pub fn parts(&self) -> &LoggedParts {
        &self.parts
    }

    /// Its writer.
    pub fn writer_handle(&self) -> WriterHandle {
        self.handle.clone()
    }

    /// Queues one line. Never waits for the writer; a line that does not fit is counted as dropped.
    ///
    /// `worker` is who calls, below the number given at [`open`](Self::open): others would only
    /// wait for each other.
    pub fn record(&self, worker: usize, record: &Record<'_>) {
        let WriterHandle { shared, writer } = &self.handle;
        let queue = &shared.queues[worker % shared.queues.len()];
        let pushed = queue.lock().push(record);
        if pushed == PushResult::Dropped {
            shared.dropped.increment();
        }
        // The writer sets this before it looks at the queues for the last time: see `LogWriter::park`.
        let sleeps = shared.parked.load(Relaxed) && shared.parked.swap(false, Relaxed);
        if sleeps || pushed == PushResult::BatchReady {
            writer.unpark();
        }
    }

    /// Has the file opened anew by its name, after it was moved away. Returns at once.
    pub fn reopen(&self) {
        self.handle.shared.reopen.store(true, Relaxed);
        self.handle.writer.unpark();
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.handle.stop();
    }
}

impl WriterHandle {
    /// Returns whether it is the writer of this log.
    pub fn writes_for(&self, log: &AccessLog) -> bool {
        Arc::ptr_eq(&self.shared, &log.handle.shared)
    }

    /// Has what is queued written and the writer ended, whoever still holds the log. Returns at
    /// once.
    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
        self.writer.unpark();
    }

    /// Returns whether the writer has ended.
    pub fn has_ended(&self) -> bool {
        *self.shared.stopped.lock()
    }

    /// Waits at most `deadline` for the writer to end. Returns whether it has: a reader of standard
    /// output that stands still can prevent it.
    pub fn wait(&self, deadline: Duration) -> bool {
        let mut stopped = self.shared.stopped.lock();
        let writes = |stopped: &mut bool| !*stopped;
        let at_stop = &self.shared.at_stop;
        at_stop.wait_while_for(&mut stopped, writes, deadline);
        *stopped
    }
}

#[cfg(test)]
mod tests;
