//! The services of connections, and the work of each worker, which the layers above give a server.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use crate::http::connection::ClientConnection;
use crate::http::service::HttpService;

/// A function that makes the service of each connection.
pub trait ServiceFactory:
    Fn(&ClientConnection) -> <Self as ServiceFactory>::Service + Clone + 'static
{
    /// The service.
    type Service: HttpService;
}

impl<F, S> ServiceFactory for F
where
    F: Fn(&ClientConnection) -> S + Clone + 'static,
    S: HttpService,
{
    type Service = S;
}

/// A function that each worker calls with its index, to await the result.
pub type WorkerHook = Arc<dyn Fn(usize) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

/// A hook that does nothing.
pub fn no_hook() -> WorkerHook {
    Arc::new(|_| Box::pin(ready(())))
}
