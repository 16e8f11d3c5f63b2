//! The open connections of a server that answers probes. When there is no permit for a new client,
//! the table evicts an older connection. Clients that stay silent or do not read keep no probe out.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use hyper::service::Service;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, timeout_at};

use crate::http::message::Response;
use crate::http::service::ServiceFuture;

/// The time from the whole head of a request until the kernel has taken the whole answer.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The connections of a server with a single listener of HTTP/1, by the address of the client.
/// Clones share the table.
#[derive(Clone, Default)]
pub struct ConnectionTable(Arc<Mutex<Connections>>);

#[derive(Default)]
struct Connections {
    open: BTreeMap<SocketAddr, Entry>,
    /// Connections without a whole head, by when they were accepted or last answered.
    idle: BTreeMap<u64, SocketAddr>,
    /// Connections that are being answered, by when their head was whole.
    busy: BTreeMap<u64, SocketAddr>,
    /// The next number of a connection, and the next key of `idle` and `busy`.
    next: u64,
}

struct Entry {
    /// Distinguishes connections that have the same address one after the other.
    number: u64,
    /// Its key in `idle` or `busy`.
    position: u64,
    /// The deadline of its response while it is busy. Dropping the sender closes the connection.
    deadline: watch::Sender<Option<Instant>>,
    /// Free for the next client as soon as this connection is evicted, not only when its task has
    /// run.
    _permit: Option<OwnedSemaphorePermit>,
}

/// A connection of the table.
#[derive(Clone, Copy, Debug)]
struct Id {
    client: SocketAddr,
    number: u64,
}

impl ConnectionTable {
    /// Adds a connection of `client`, in place of an older one from the same address, which the
    /// kernel has closed.
    pub(super) fn enter(
        &self,
        client: SocketAddr,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Membership {
        let (deadline, deadlines) = watch::channel(None);
        let mut connections = self.0.lock();
        if let Some(older) = connections.open.get(&client) {
            let number = older.number;
            connections.remove(Id { client, number });
        }
        let number = connections.take_next();
        let entry = Entry {
            number,
            position: number,
            deadline,
            _permit: permit,
        };
        connections.open.insert(client, entry);
        connections.idle.insert(number, client);
        Membership {
            table: self.clone(),
            id: Id { client, number },
            deadlines,
        }
    }

    /// Closes the oldest of the idle or of the busy connections, whichever are more.
    pub(super) fn evict(&self) {
        let mut connections = self.0.lock();
        let oldest = if connections.busy.len() > connections.idle.len() {
            connections.busy.pop_first()
        } else {
            connections.idle.pop_first()
        };
        if let Some((_, client)) = oldest {
            connections.open.remove(&client);
        }
    }

    /// Wraps a service so that it notes the head of each request of `client`, and the end of its
    /// response.
    pub fn watch<S>(&self, client: SocketAddr, service: S) -> WatchedService<S> {
        let connections = self.0.lock();
        let number = connections.open.get(&client).map(|entry| entry.number);
        WatchedService {
            service,
            table: self.clone(),
            id: number.map(|number| Id { client, number }),
        }
    }
}

impl Connections {
    fn take_next(&mut self) -> u64 {
        let next = self.next;
        self.next += 1;
        next
    }

    /// Notes that a connection is busy until `deadline`, or idle if `None`.
    fn set_deadline(&mut self, id: Id, deadline: Option<Instant>) {
        let position = self.take_next();
        let entry = self.open.get_mut(&id.client);
        let Some(entry) = entry.filter(|entry| entry.number == id.number) else {
            return;
        };
        self.idle.remove(&entry.position);
        self.busy.remove(&entry.position);
        entry.position = position;
        entry.deadline.send_replace(deadline);
        match deadline {
            Some(_) => self.busy.insert(position, id.client),
            None => self.idle.insert(position, id.client),
        };
    }

    fn remove(&mut self, id: Id) {
        let entry = self.open.get(&id.client);
        if let Some(entry) = entry.filter(|entry| entry.number == id.number) {
            self.idle.remove(&entry.position);
            self.busy.remove(&entry.position);
            self.open.remove(&id.client);
        }
    }
}

impl fmt::Debug for ConnectionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionTable").finish_non_exhaustive()
    }
}

/// A connection's entry in the table, removed when dropped.
#[derive(Debug)]
pub(super) struct Membership {
    table: ConnectionTable,
    id: Id,
    deadlines: watch::Receiver<Option<Instant>>,
}

impl Membership {
    /// Waits until the connection must be closed: evicted, or its client does not take the response
    /// in time.
    pub(super) async fn ended(&mut self) {
        loop {
            let deadline = *self.deadlines.borrow_and_update();
            let changed = self.deadlines.changed();
            let changed = match deadline {
                Some(deadline) => timeout_at(deadline, changed).await,
                None => Ok(changed.await),
            };
            if !matches!(changed, Ok(Ok(()))) {
                return;
            }
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.table.0.lock().remove(self.id);
    }
}

/// A request, from its head to the end of its response.
#[derive(Debug)]
struct Exchange {
    table: ConnectionTable,
    id: Id,
}

impl Exchange {
    fn begin(table: ConnectionTable, id: Id) -> Self {
        let deadline = Instant::now() + EXCHANGE_TIMEOUT;
        table.0.lock().set_deadline(id, Some(deadline));
        Self { table, id }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.table.0.lock().set_deadline(self.id, None);
    }
}

/// A service whose connection is in a [`ConnectionTable`].
#[derive(Clone, Debug)]
pub struct WatchedService<S> {
    service: S,
    table: ConnectionTable,
    /// `None` once the connection is closed.
    id: Option<Id>,
}

impl<S, Q, B> Service<Q> for WatchedService<S>
where
    S: Service<Q, Response = Response<B>, Future: ServiceFuture>,
{
    type Response = Response<WatchedBody<B>>;
    type Error = S::Error;
    type Future = WatchedFuture<S::Future>;

    fn call(&self, request: Q) -> Self::Future {
        let exchange = self.id.map(|id| Exchange::begin(self.table.clone(), id));
        WatchedFuture {
            exchange,
            answer: self.service.call(request),
        }
    }
}

/// The future of a [`WatchedService`].
#[derive(Debug)]
pub struct WatchedFuture<F> {
    answer: F,
    /// `None` once the body has it.
    exchange: Option<Exchange>,
}

impl<F, B, E> Future for WatchedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>> + Unpin,
{
    type Output = Result<Response<WatchedBody<B>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx))?;
        let exchange = self.exchange.take();
        Poll::Ready(Ok(answer.map(|body| WatchedBody {
            body,
            _exchange: exchange,
        })))
    }
}

impl<F, B, E> ServiceFuture for WatchedFuture<F>
where
    F: ServiceFuture<Output = Result<Response<B>, E>>,
{
    fn is_ready(&self) -> bool {
        self.answer.is_ready()
    }
}

/// The body of a response of a [`WatchedService`]. HTTP/1 drops it when the whole response is
/// written.
#[derive(Debug)]
pub struct WatchedBody<B> {
    body: B,
    _exchange: Option<Exchange>,
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
    use tokio::time::timeout;

    use super::*;

    fn enter(table: &ConnectionTable, port: u16) -> Membership {
        table.enter(SocketAddr::from(([127, 0, 0, 1], port)), None)
    }

    fn begin(membership: &Membership) -> Exchange {
        Exchange::begin(membership.table.clone(), membership.id)
    }

    /// The ports of the idle and of the busy clients, the oldest first.
    fn ports(table: &ConnectionTable) -> (Vec<u16>, Vec<u16>) {
        let connections = table.0.lock();
        let ports =
            |order: &BTreeMap<u64, SocketAddr>| order.values().map(SocketAddr::port).collect();
        (ports(&connections.idle), ports(&connections.busy))
    }

    #[tokio::test]
    async fn the_oldest_of_the_larger_group_is_evicted() {
        let table = ConnectionTable::default();
        let mut members = [1, 2, 3, 4].map(|port| enter(&table, port));
        let exchanges = [2, 1, 0].map(|index| begin(&members[index]));
        assert_eq!(ports(&table), (vec![4], vec![3, 2, 1]));
        table.evict();
        members[2].ended().await;
        table.evict();
        members[1].ended().await;
        assert_eq!(ports(&table), (vec![4], vec![1]));
        table.evict();
        members[3].ended().await;
        assert_eq!(ports(&table), (vec![], vec![1]));
        drop(exchanges);
        assert_eq!(
            ports(&table),
            (vec![1], vec![]),
            "it waits for its next head"
        );
        table.evict();
        members[0].ended().await;
        assert!(table.0.lock().open.is_empty());
        table.evict();
    }

    #[test]
    fn an_exchange_survives_any_number_of_idle_connections() {
        let table = ConnectionTable::default();
        let slow = enter(&table, 1);
        let mut others: Vec<_> = (2..10).map(|port| enter(&table, port)).collect();
        let _exchange = begin(&slow);
        for port in 10..1000 {
            table.evict();
            others.push(enter(&table, port));
        }
        assert_eq!(ports(&table).1, [1]);
    }

    #[test]
    fn a_new_connection_survives_as_many_as_are_busy() {
        let table = ConnectionTable::default();
        let busy: Vec<_> = (1..=8).map(|port| enter(&table, port)).collect();
        let _exchanges: Vec<_> = busy.iter().map(begin).collect();
        let mut new = Vec::new();
        for port in 11..=14 {
            table.evict();
            new.push(enter(&table, port));
        }
        assert_eq!(ports(&table), (vec![11, 12, 13, 14], vec![5, 6, 7, 8]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_exchange_ends_in_time_and_an_idle_connection_stays() {
        let table = ConnectionTable::default();
        let [mut slow, mut idle] = [1, 2].map(|port| enter(&table, port));
        drop(begin(&idle));
        let begun = Instant::now();
        let _exchange = begin(&slow);
        slow.ended().await;
        assert_eq!(begun.elapsed().as_secs(), EXCHANGE_TIMEOUT.as_secs());
        let later = timeout(EXCHANGE_TIMEOUT * 9, idle.ended()).await;
        assert!(later.is_err(), "its time ended with its exchange");
    }

    #[tokio::test]
    async fn the_next_connection_from_an_address_is_another() {
        let table = ConnectionTable::default();
        let mut first = enter(&table, 1);
        let exchange = begin(&first);
        let second = enter(&table, 1);
        first.ended().await;
        drop(exchange);
        let _busy = begin(&second);
        drop(first);
        assert_eq!(ports(&table), (vec![], vec![1]));
        drop(second);
        assert_eq!(ports(&table), (vec![], vec![]));
    }
}
