//! The export of spans to a collector: OTLP over HTTP/1.1, on a thread of its own.
//!
//! A batch has one connection and two attempts at most. Spans that no collector takes are counted
//! and dropped: the queue behind is bounded.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use super::StartupError;
use crate::proxy::Ruleset;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::SpanLoss;
use crate::telemetry::registry::Registry;
use crate::telemetry::spans::encoding::encode;
use crate::telemetry::spans::{RequestSpans, SpanQueue, SpanReceiver, SpanSpec};

/// The pause before the second attempt.
const PAUSE: Duration = Duration::from_secs(1);
/// The largest answer of a collector that is read, in bytes.
const MAX_ANSWER: usize = 64 << 10;
/// Pauses between log lines about failed exports.
const LOG_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(600)];

/// Returns the queue that `spec` asks for: the running one if it is the same, or a new one with an
/// exporter.
///
/// # Errors
/// When there can be no thread.
pub(super) fn provide(
    spec: Option<&SpanSpec>,
    registry: &Registry,
    running: Option<&Ruleset>,
) -> Result<Option<Arc<SpanQueue>>, StartupError> {
    let Some(spec) = spec else {
        return Ok(None);
    };
    let running = running.and_then(|ruleset| ruleset.spans.as_ref());
    if let Some(same) = running.filter(|queue| queue.spec() == spec) {
        return Ok(Some(Arc::clone(same)));
    }
    let (queue, receiver) = SpanQueue::new(spec.clone(), registry);
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartupError::system("a runtime for spans"))?;
    thread::Builder::new()
        .name("spans".to_owned())
        .spawn(move || run(&runtime, &receiver))
        .map_err(StartupError::system("a thread for spans"))?;
    Ok(Some(Arc::new(queue)))
}

/// Exports batches until the queue is closed and empty.
fn run(runtime: &Runtime, receiver: &SpanReceiver) {
    let [shortest, longest] = LOG_PAUSES;
    let failures = LogThrottle::with_backoff(shortest, longest);
    while let Some(batch) = receiver.next_batch() {
        let count = batch.iter().map(RequestSpans::count).sum();
        match runtime.block_on(export(receiver, &batch)) {
            Ok(()) => receiver.metrics().exported(count),
            Err(failure) => {
                receiver.metrics().dropped(failure.loss(), count);
                if failures.admit_now().is_some() {
                    let collector = &*receiver.spec().authority;
                    tracing::warn!(collector, error = %failure, "spans are not exported");
                }
            }
        }
    }
}

/// The reason why a batch is not exported.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("{0}; does a collector listen there?")]
    Unreachable(#[from] io::Error),
    #[error("no answer within {0:?} (tracing.timeout)")]
    Late(Duration),
    #[error("the collector answers {0}")]
    Refused(StatusCode),
}

impl ExportError {
    fn loss(&self) -> SpanLoss {
        match self {
            Self::Unreachable(_) | Self::Late(_) => SpanLoss::Unreachable,
            Self::Refused(_) => SpanLoss::Refused,
        }
    }

    /// A later attempt may succeed (OTLP 1.x, "Failures").
    fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Late(_) => true,
            Self::Refused(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }
}

async fn export(receiver: &SpanReceiver, batch: &[RequestSpans]) -> Result<(), ExportError> {
    let spec = receiver.spec();
    let message = Bytes::from(encode(batch, &spec.service_name));
    let first = post(spec, message.clone()).await;
    match first {
        Err(failure) if failure.is_temporary() && !receiver.is_closed() => {
            sleep(PAUSE).await;
            post(spec, message).await
        }
        decided => decided,
    }
}

async fn post(spec: &SpanSpec, message: Bytes) -> Result<(), ExportError> {
    let late = |_| ExportError::Late(spec.timeout);
    let status = timeout(spec.timeout, exchange(spec, message)).await;
    let status = status.map_err(late)??;
    match status.is_success() {
        true => Ok(()),
        false => Err(ExportError::Refused(status)),
    }
}

async fn exchange(spec: &SpanSpec, message: Bytes) -> io::Result<StatusCode> {
    let stream = TcpStream::connect(&spec.authority).await?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(Method::POST)
        .uri(&spec.path)
        .header(HOST, &spec.authority)
        .header(CONTENT_TYPE, "application/x-protobuf")
        .body(Full::new(message))
        .map_err(io::Error::other)?;
    let answer = sender.send_request(request).await;
    let (head, body) = answer.map_err(io::Error::other)?.into_parts();
    // The status says all; a body that breaks off changes nothing.
    let _ = Limited::new(body, MAX_ANSWER).collect().await;
    connection.abort();
    Ok(head.status)
}
