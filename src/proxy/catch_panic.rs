//! Catches panics of the code that serves a request: the client gets a response, and the connection
//! and the worker go on. The panic hook logs them
//! ([`telemetry::panics`](crate::telemetry::panics)).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::telemetry::metrics::RequestMetrics;

/// A panic while serving a request, already counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proxy failed: its log has a panic")]
pub struct CaughtPanic;

/// Runs `serve`. After a panic, its state is only dropped.
pub(super) fn catch<T>(
    metrics: &RequestMetrics,
    serve: impl FnOnce() -> T,
) -> Result<T, CaughtPanic> {
    catch_unwind(AssertUnwindSafe(serve)).map_err(|_| {
        metrics.panics.increment();
        CaughtPanic
    })
}

/// Awaits `serving`, which is not polled again after a panic.
pub(super) async fn catch_async<F: Future>(
    metrics: &RequestMetrics,
    mut serving: Pin<&mut F>,
) -> Result<F::Output, CaughtPanic> {
    let poll = |cx: &mut Context<'_>| {
        catch(metrics, || serving.as_mut().poll(cx)).map_or_else(
            |panicked| Poll::Ready(Err(panicked)),
            |polled| polled.map(Ok),
        )
    };
    std::future::poll_fn(poll).await
}
