//! A function as a service.

use hyper::service::Service;

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
