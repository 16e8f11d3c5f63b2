//! Connections that have sent no whole head: where places are few, the oldest of them gives way to the next client. A
//! probe is answered however many clients keep silent.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use hyper::service::Service;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::http_ext::message::Response;
use crate::http_ext::service::Answer;

/// The connections of a server with a single listener, by the address of the client. Clones are one.
#[derive(Clone, Default)]
pub struct Newcomers(Arc<Mutex<Connections>>);

#[derive(Default)]
struct Connections {
    open: BTreeMap<SocketAddr, Open>,
    /// Those without a whole head, by when they came or were answered last.
    silent: BTreeMap<u64, SocketAddr>,
    next: u64,
}

struct Open {
    /// Dropped to close the connection.
    _closer: oneshot::Sender<()>,
    /// Requests that are being answered.
    requests: usize,
    /// Its place among the silent ones.
    silent: Option<u64>,
}

impl Newcomers {
    /// Notes a connection of `client` without a head. It is to be closed when the returned future ends.
    pub(super) fn enter(&self, client: SocketAddr) -> impl Future<Output = ()> + use<> {
        let (closer, closed) = oneshot::channel();
        let mut connections = self.0.lock();
        let open = Open {
            _closer: closer,
            requests: 0,
            silent: None,
        };
        connections.open.insert(client, open);
        connections.answered(client);
        async move {
            let _ = closed.await;
        }
    }

    /// Forgets a connection that is closed.
    pub(super) fn leave(&self, client: SocketAddr) {
        let mut connections = self.0.lock();
        let left = connections.open.remove(&client);
        if let Some(place) = left.and_then(|open| open.silent) {
            connections.silent.remove(&place);
        }
    }

    /// Has the oldest connection without a whole head closed. Returns false if there is none.
    pub(super) fn close_oldest(&self) -> bool {
        let mut connections = self.0.lock();
        let oldest = connections.silent.pop_first();
        oldest.is_some_and(|(_, client)| connections.open.remove(&client).is_some())
    }

    /// A service that notes the heads of requests on a connection of `client`, and the ends of their responses.
    pub fn watch<S>(&self, client: SocketAddr, service: S) -> Watched<S> {
        Watched {
            service,
            newcomers: self.clone(),
            client,
        }
    }

    fn begin(&self, client: SocketAddr) -> Request {
        let mut connections = self.0.lock();
        if let Some(open) = connections.open.get_mut(&client) {
            open.requests += 1;
            if let Some(place) = open.silent.take() {
                connections.silent.remove(&place);
            }
        }
        Request(self.clone(), client)
    }
}

impl Connections {
    /// Has the connection wait for a head, unless it has requests.
    fn answered(&mut self, client: SocketAddr) {
        let Some(open) = self.open.get_mut(&client) else {
            return;
        };
        if open.requests == 0 {
            open.silent = Some(self.next);
            self.silent.insert(self.next, client);
            self.next += 1;
        }
    }
}

impl fmt::Debug for Newcomers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Newcomers").finish_non_exhaustive()
    }
}

/// A request from its head to the end of its response.
#[derive(Debug)]
struct Request(Newcomers, SocketAddr);

impl Drop for Request {
    fn drop(&mut self) {
        let Self(newcomers, client) = self;
        let mut connections = newcomers.0.lock();
        if let Some(open) = connections.open.get_mut(client) {
            open.requests -= 1;
        }
        connections.answered(*client);
    }
}

/// What [`Newcomers::watch`] makes of a service.
#[derive(Clone, Debug)]
pub struct Watched<S> {
    service: S,
    newcomers: Newcomers,
    client: SocketAddr,
}

impl<S, Q, B> Service<Q> for Watched<S>
where
    S: Service<Q, Response = Response<B>, Future: Answer>,
{
    type Response = Response<WatchedBody<B>>;
    type Error = S::Error;
    type Future = WatchedAnswer<S::Future>;

    fn call(&self, request: Q) -> Self::Future {
        WatchedAnswer {
            request: Some(self.newcomers.begin(self.client)),
            answer: self.service.call(request),
        }
    }
}

/// The answer of a [`Watched`] service.
#[derive(Debug)]
pub struct WatchedAnswer<F> {
    answer: F,
    /// Until it is the body's.
    request: Option<Request>,
}

impl<F, B, E> Future for WatchedAnswer<F>
where
    F: Future<Output = Result<Response<B>, E>> + Unpin,
{
    type Output = Result<Response<WatchedBody<B>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx))?;
        let request = self.request.take();
        Poll::Ready(Ok(answer.map(|body| WatchedBody {
            body,
            _request: request,
        })))
    }
}

impl<F, B, E> Answer for WatchedAnswer<F>
where
    F: Answer<Output = Result<Response<B>, E>>,
{
    fn is_there(&self) -> bool {
        self.answer.is_there()
    }
}

/// The body of a response of a [`Watched`] service.
#[derive(Debug)]
pub struct WatchedBody<B> {
    body: B,
    _request: Option<Request>,
}

impl<B: Body + Unpin> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// The clients whose connections are open and silent, the oldest first.
    fn silent(newcomers: &Newcomers) -> Vec<u16> {
        let connections = newcomers.0.lock();
        let clients = connections.silent.values();
        clients.map(SocketAddr::port).collect()
    }

    #[tokio::test]
    async fn the_oldest_without_a_head_gives_way() {
        let newcomers = Newcomers::default();
        let closed = [1, 2, 3].map(|port| newcomers.enter(client(port)));
        let request = newcomers.begin(client(1));
        assert!(newcomers.close_oldest());
        assert_eq!(silent(&newcomers), [3]);
        let [first, second, third] = closed;
        second.await;
        newcomers.leave(client(2));
        drop(request);
        assert_eq!(silent(&newcomers), [3, 1], "it waits for its next head");
        assert!(newcomers.close_oldest());
        third.await;
        newcomers.leave(client(1));
        first.await;
        assert!(!newcomers.close_oldest());
        assert!(silent(&newcomers).is_empty());
        assert!(newcomers.0.lock().open.is_empty());
    }

    #[test]
    fn a_connection_with_several_requests_waits_for_the_last() {
        let newcomers = Newcomers::default();
        let _closed = newcomers.enter(client(1));
        let requests = [0, 1].map(|_| newcomers.begin(client(1)));
        let [first, second] = requests;
        drop(first);
        assert!(!newcomers.close_oldest());
        assert!(newcomers.0.lock().open.contains_key(&client(1)));
        drop(second);
        assert_eq!(silent(&newcomers), [1]);
    }
}
