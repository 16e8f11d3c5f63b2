//! What answers requests, and a function as such.

use std::future::Ready;
use std::pin::Pin;

use hyper::service::Service;

/// An answer that comes, or is there.
pub trait ServiceFuture: Future + Unpin {
    /// Whether nobody has to wait for it. To be found out by asking for it would mean to keep it somewhere.
    fn is_ready(&self) -> bool;
}

/// One that is worked at.
impl<F: Future + ?Sized> ServiceFuture for Pin<Box<F>> {
    fn is_ready(&self) -> bool {
        false
    }
}

/// One that was there from the beginning.
impl<T> ServiceFuture for Ready<T> {
    fn is_ready(&self) -> bool {
        true
    }
}

/// What [`service_fn`] makes of a function.
#[derive(Clone, Copy, Debug)]
pub struct ServiceFn<F>(F);

/// The service that answers a request with what `answer` returns: hyper's function of that name, for requests of
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
