//! The export of spans to a collector: batches, attempts and their pauses, on a thread of its own.
//! `collector` has the exchange, `error` its failures.
//!
//! Reloads change where and how the thread exports, and keep the queue. Spans that no collector
//! takes are counted and dropped: the queue behind is bounded.

mod collector;
mod error;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::rand;
use bytes::Bytes;
use tokio::runtime::Runtime;

use self::collector::Collector;
use self::error::{ExportError, shown};
use super::StartupError;
use super::startup_error::runtime;
use crate::config::ExportSpec;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::SpanLoss;
use crate::telemetry::registry::Registry;
use crate::telemetry::spans::encoding::{PartialSuccess, encode};
use crate::telemetry::spans::{RequestSpans, SpanQueue, SpanReceiver};

/// The pauses between the attempts to export a batch, each shortened by chance to half at most.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// The longest pause that a collector can ask for.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Pauses between log lines about failed exports.
const LOG_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(600)];

/// The export of spans, as one configuration asks for it.
#[derive(Clone, Debug)]
pub(super) struct SpanExport {
    queue: Arc<SpanQueue>,
    spec: Arc<ExportSpec>,
    /// The spec that the exporter's thread follows.
    in_force: Arc<ArcSwap<ExportSpec>>,
}

impl SpanExport {
    /// The export that `spec` asks for: with the running queue and its exporter, or with new ones.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn provide(
        spec: Option<ExportSpec>,
        registry: &Registry,
        running: Option<&Self>,
    ) -> Result<Option<Self>, StartupError> {
        let Some(spec) = spec.map(Arc::new) else {
            return Ok(None);
        };
        if let Some(running) = running {
            return Ok(Some(Self {
                queue: Arc::new(running.queue.with_percent(spec.percent)),
                spec,
                in_force: Arc::clone(&running.in_force),
            }));
        }
        let (queue, receiver) = SpanQueue::new(spec.percent, registry);
        let in_force = Arc::new(ArcSwap::from(Arc::clone(&spec)));
        let throttle = || LogThrottle::with_backoff(LOG_PAUSES[0], LOG_PAUSES[1]);
        let exporter = Exporter {
            receiver,
            in_force: Arc::clone(&in_force),
            collector: Collector::default(),
            failures: throttle(),
            rejections: throttle(),
        };
        let runtime = runtime("a runtime for spans")?;
        thread::Builder::new()
            .name("spans".to_owned())
            .spawn(move || exporter.run(&runtime))
            .map_err(StartupError::system("a thread for spans"))?;
        Ok(Some(Self {
            queue: Arc::new(queue),
            spec,
            in_force,
        }))
    }

    /// The queue that requests fill.
    pub(super) fn queue(&self) -> Arc<SpanQueue> {
        Arc::clone(&self.queue)
    }

    /// Makes the exporter follow this configuration, from its next attempt on.
    pub(super) fn enforce(&self) {
        self.in_force.store(Arc::clone(&self.spec));
    }
}

/// The state of the exporter's thread.
struct Exporter {
    receiver: SpanReceiver,
    in_force: Arc<ArcSwap<ExportSpec>>,
    collector: Collector,
    failures: LogThrottle,
    rejections: LogThrottle,
}

impl Exporter {
    /// Exports batches until the queue is closed and empty.
    fn run(mut self, runtime: &Runtime) {
        while let Some(batch) = self.receiver.next_batch() {
            let count = batch.iter().map(RequestSpans::count).sum();
            match self.export(runtime, &batch) {
                Ok(partial) => self.taken(count, partial),
                Err(failure) => self.lost(count, &failure),
            }
        }
    }

    /// Tries to export a batch until it is taken, or cannot be, or its last attempt has failed.
    fn export(
        &mut self,
        runtime: &Runtime,
        batch: &[RequestSpans],
    ) -> Result<Option<PartialSuccess>, ExportError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let spec = self.in_force.load_full();
            let message = Bytes::from(encode(batch, &spec.service_name));
            let failure = match runtime.block_on(self.collector.post(&spec, message)) {
                Ok(partial) => return Ok(partial),
                Err(failure) => failure,
            };
            let Some(pause) = pauses.next().filter(|_| failure.is_temporary()) else {
                return Err(failure);
            };
            let pause = failure.retry_after().unwrap_or_else(|| shortened(pause));
            if self.receiver.closes_within(pause.min(MAX_PAUSE)) {
                return Err(failure);
            }
        }
    }

    /// Counts an export, and the spans of it that the collector has rejected.
    fn taken(&self, count: u64, partial: Option<PartialSuccess>) {
        let metrics = self.receiver.metrics();
        // Many collectors send an empty one with each success.
        let Some(partial) = partial.filter(|partial| *partial != PartialSuccess::default()) else {
            return metrics.exported.add(count);
        };
        let rejected = u64::try_from(partial.rejected_spans)
            .unwrap_or(0)
            .min(count);
        metrics.exported.add(count - rejected);
        metrics.dropped.add(SpanLoss::Refused, rejected);
        if self.rejections.admit_now().is_some() {
            let collector = &*self.in_force.load().url;
            let reason = shown(&partial.error_message);
            tracing::warn!(collector, rejected, reason, "the collector warns of spans");
        }
    }

    /// Counts a lost batch. The next one waits for as long as the collector asks for.
    fn lost(&self, count: u64, failure: &ExportError) {
        self.receiver.metrics().dropped.add(failure.loss(), count);
        if self.failures.admit_now().is_some() {
            let collector = &*self.in_force.load().url;
            tracing::warn!(collector, error = %failure, "spans are not exported");
        }
        if let Some(pause) = failure.retry_after() {
            self.receiver.closes_within(pause.min(MAX_PAUSE));
        }
    }
}

/// A pause between a half of `pause` and the whole: exporters that fail together come back one by
/// one.
fn shortened(pause: Duration) -> Duration {
    let mut drawn = [0];
    // Without randomness of the system the pause is always the same.
    let _ = rand::fill(&mut drawn);
    pause / 2 + pause / 2 * u32::from(drawn[0]) / 255
}
