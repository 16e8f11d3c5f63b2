//! Panics of the code that serves a request, caught so that the request gets an answer, and its connection and its worker
//! serve on. The hook of the process logs them ([`telemetry::panics`](crate::telemetry::panics)).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::proxy::answers::error::Error;
use crate::telemetry::metrics::RequestMetrics;

/// The code that served a request has panicked, and was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proxy failed: its log has a panic")]
pub struct CaughtPanic;

impl From<CaughtPanic> for Error {
    fn from(CaughtPanic: CaughtPanic) -> Self {
        Error::Panicked
    }
}

/// Runs `serve`, which leaves nothing behind that is used after a panic but what is made to be dropped half-way.
pub(super) fn catch<T>(
    metrics: &RequestMetrics,
    serve: impl FnOnce() -> T,
) -> Result<T, CaughtPanic> {
    catch_unwind(AssertUnwindSafe(serve)).map_err(|_| {
        metrics.panicked();
        CaughtPanic
    })
}

/// Awaits `serving`. It is polled no more after a panic.
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
