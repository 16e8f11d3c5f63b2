//! Spans of requests for a collector of OpenTelemetry: a bounded queue between the workers and the
//! exporter, which is `app`'s. [`context`] has the Traceparent field, [`encoding`] the messages.
//!
//! A worker adds a span under a lock that is held for a push. Spans that do not fit are counted.

pub mod context;
pub mod encoding;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, Version};
use parking_lot::{Condvar, Mutex};

use self::context::{SpanId, TraceId};
use super::metrics::{SpanLoss, SpanMetrics};
use super::registry::Registry;
use crate::clock::Timestamp;

/// The largest number of spans that wait for their export.
const CAPACITY: usize = 4_096;
/// The largest number of spans in one export.
pub const BATCH: usize = 512;
/// The time for which spans wait for others.
const PAUSE: Duration = Duration::from_secs(1);

/// The spans of one request: that of the server, and that of the client if it was forwarded.
#[derive(Clone, Debug)]
pub struct RequestSpans {
    /// The trace.
    pub trace: TraceId,
    /// The span of the caller.
    pub parent: Option<SpanId>,
    /// The span of the whole request.
    pub server: SpanId,
    /// The span of the forwarded request, which the upstream's spans have as their parent.
    pub client: SpanId,
    /// When the request's head had arrived.
    pub started: Timestamp,
    /// The end of the response.
    pub ended: Timestamp,
    /// The method, of a closed set.
    pub method: &'static str,
    /// The path without its query.
    pub path: Box<str>,
    /// The route.
    pub route: Arc<str>,
    /// The version of HTTP.
    pub version: Version,
    /// The client's address.
    pub client_ip: IpAddr,
    /// The client's name, if it is known.
    pub client_name: Option<Box<str>>,
    /// The status of the response.
    pub status: StatusCode,
    /// The deciding policy and its decision.
    pub decision: Option<(Arc<str>, &'static str)>,
    /// The reason for a missing or incomplete response.
    pub error: Option<&'static str>,
    /// The forwarded request.
    pub forwarded: Option<Forwarded>,
}

/// The part of a request that an upstream served.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// When it was sent.
    pub started: Timestamp,
    /// When the head of the response arrived, or the request failed.
    pub ended: Timestamp,
    /// The upstream's name.
    pub upstream: Arc<str>,
    /// Host and port of the endpoint, as configured.
    pub endpoint: Arc<str>,
    /// The number of addresses that were tried.
    pub attempts: u32,
    /// False if no head of a response arrived.
    pub has_response: bool,
}

/// The queue of spans, as one configuration fills it. It closes with its last holder.
#[derive(Debug)]
pub struct SpanQueue {
    pub percent: u32,
    opened: Arc<OpenQueue>,
}

/// The exporter's end of a queue.
#[derive(Debug)]
pub struct SpanReceiver {
    shared: Arc<SharedSpans>,
}

/// Closes the queue when it is dropped.
#[derive(Debug)]
struct OpenQueue(Arc<SharedSpans>);

#[derive(Debug)]
struct SharedSpans {
    metrics: SpanMetrics,
    state: Mutex<SpanQueueState>,
    /// Notified for a whole batch, at the close, and at the exporter's end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SpanQueueState {
    waiting: Vec<RequestSpans>,
    is_closed: bool,
    has_ended: bool,
}

impl SpanQueue {
    /// A queue for the spans of this percentage of requests, and the exporter's end of it.
    pub fn new(percent: u32, registry: &Registry) -> (Self, SpanReceiver) {
        let shared = Arc::new(SharedSpans {
            metrics: SpanMetrics::new(registry),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let receiver = SpanReceiver {
            shared: Arc::clone(&shared),
        };
        let opened = Arc::new(OpenQueue(shared));
        (Self { percent, opened }, receiver)
    }

    /// Returns the queue for another percentage of requests.
    #[must_use]
    pub fn with_percent(&self, percent: u32) -> Self {
        Self {
            percent,
            opened: Arc::clone(&self.opened),
        }
    }

    fn shared(&self) -> &SharedSpans {
        &self.opened.0
    }

    /// Queues the spans of a request, or counts them as dropped. Never waits for the exporter.
    pub fn push(&self, spans: RequestSpans) {
        let mut state = self.shared().state.lock();
        if state.is_closed || state.waiting.len() >= CAPACITY {
            drop(state);
            let lost = spans.count();
            self.shared().metrics.dropped.add(SpanLoss::QueueFull, lost);
            return;
        }
        state.waiting.push(spans);
        let is_batch = state.waiting.len() == BATCH;
        drop(state);
        if is_batch {
            self.shared().changed.notify_all();
        }
    }

    /// Closes the queue, and waits at most `deadline` for the last export.
    pub fn close(&self, deadline: Duration) {
        self.shared().close();
        let mut state = self.shared().state.lock();
        let goes_on = |state: &mut SpanQueueState| !state.has_ended;
        let changed = &self.shared().changed;
        changed.wait_while_for(&mut state, goes_on, deadline);
    }
}

impl Drop for OpenQueue {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl SharedSpans {
    fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}

impl SpanReceiver {
    /// The counters of exported and lost spans.
    pub fn metrics(&self) -> &SpanMetrics {
        &self.shared.metrics
    }

    /// Waits for `pause`. True once the queue is closed, which ends the pause: the exporter then
    /// tries each batch once.
    pub fn closes_within(&self, pause: Duration) -> bool {
        let mut state = self.shared.state.lock();
        let is_open = |state: &mut SpanQueueState| !state.is_closed;
        let changed = &self.shared.changed;
        changed.wait_while_for(&mut state, is_open, pause);
        state.is_closed
    }

    /// Waits for spans, and takes up to [`BATCH`] requests. `None` once the queue is closed and
    /// empty.
    pub fn next_batch(&self) -> Option<Vec<RequestSpans>> {
        let mut state = self.shared.state.lock();
        loop {
            let is_early =
                |state: &mut SpanQueueState| !state.is_closed && state.waiting.len() < BATCH;
            let changed = &self.shared.changed;
            changed.wait_while_for(&mut state, is_early, PAUSE);
            let count = state.waiting.len().min(BATCH);
            if count > 0 {
                return Some(state.waiting.drain(..count).collect());
            }
            if state.is_closed {
                return None;
            }
        }
    }
}

impl Drop for SpanReceiver {
    fn drop(&mut self) {
        self.shared.state.lock().has_ended = true;
        self.shared.changed.notify_all();
    }
}

impl RequestSpans {
    /// The number of spans.
    pub fn count(&self) -> u64 {
        1 + u64::from(self.forwarded.is_some())
    }
}

#[cfg(test)]
mod tests;
