//! Futures of services that may be ready at once, and services from functions.

use std::future::Ready;
use std::pin::Pin;

use hyper::service::Service;

/// A future that may be ready without polling.
pub trait ServiceFuture: Future + Unpin {
    /// Returns true if the first poll will return the output. A poll to find out would need a place
    /// to keep it.
    fn is_ready(&self) -> bool;
}

/// Never known to be ready.
impl<F: Future + ?Sized> ServiceFuture for Pin<Box<F>> {
    fn is_ready(&self) -> bool {
        false
    }
}

/// Always ready.
impl<T> ServiceFuture for Ready<T> {
    fn is_ready(&self) -> bool {
        true
    }
}

/// The service that [`service_fn`] returns.
#[derive(Clone, Copy, Debug)]
pub struct ServiceFn<F>(F);

/// The service that calls `answer` for each request: hyper's function of that name, for requests of
/// any type.
pub fn service_fn<F>(answer: F) -> ServiceFn<F> {
    ServiceFn(answer)
}

impl<F, Q, R, S, E> Service<Q> for ServiceFn<F>
where
    F: Fn(Q) -> R,
    R: Future<Output = Result<S, E>>,
{
    type Response = S;
    type Error = E;
    type Future = R;

    fn call(&self, request: Q) -> R {
        (self.0)(request)
    }
}
