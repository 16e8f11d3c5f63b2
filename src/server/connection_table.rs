//! The open connections of a server that answers probes. When there is no permit for a new client,
//! the table evicts an older connection. Clients that stay silent or do not read keep no probe out.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::connection_bounds::ConnectionPermit;
use crate::http::message::Response;

/// The time from the whole head of a request until the kernel has taken the whole answer. Of an
/// endless answer, the time until it has taken each frame.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The connections of a server with a single listener of HTTP/1, by their
/// [id](crate::http::connection::ClientConnection::id). Clones share the table.
#[derive(Clone, Default)]
pub struct ConnectionTable(Arc<Mutex<Connections>>);

#[derive(Default)]
struct Connections {
    open: BTreeMap<u64, Entry>,
    /// Connections without a whole head, by when they were accepted or last answered.
    idle: BTreeMap<u64, u64>,
    /// Connections that are being answered, by when their head was whole.
    busy: BTreeMap<u64, u64>,
    /// The next key of `idle` and `busy`.
    next: u64,
}

struct Entry {
    /// Its key in `idle` or `busy`.
    position: u64,
    /// The deadline of its response while it is busy. Dropping the sender closes the connection.
    deadline: watch::Sender<Option<Instant>>,
    /// Free for the next client as soon as this connection is evicted, not only when its task has
    /// run.
    _permit: Option<ConnectionPermit>,
}

impl ConnectionTable {
    /// Adds a connection.
    pub(super) fn enter(&self, id: u64, permit: Option<ConnectionPermit>) -> Membership {
        let (deadline, deadlines) = watch::channel(None);
        let mut connections = self.0.lock();
        let position = connections.take_next();
        let entry = Entry {
            position,
            deadline,
            _permit: permit,
        };
        connections.open.insert(id, entry);
        connections.idle.insert(position, id);
        Membership {
            table: self.clone(),
            id,
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
        if let Some((_, id)) = oldest {
            connections.open.remove(&id);
        }
    }

    /// Notes that a connection has the whole head of a request.
    pub fn begin_exchange(&self, id: u64) -> BusyGuard {
        let deadline = Instant::now() + EXCHANGE_TIMEOUT;
        self.0.lock().set_deadline(id, Some(deadline));
        BusyGuard {
            table: self.clone(),
            id,
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
    fn set_deadline(&mut self, id: u64, deadline: Option<Instant>) {
        let position = self.take_next();
        let Some(entry) = self.open.get_mut(&id) else {
            return;
        };
        self.idle.remove(&entry.position);
        self.busy.remove(&entry.position);
        entry.position = position;
        entry.deadline.send_replace(deadline);
        match deadline {
            Some(_) => self.busy.insert(position, id),
            None => self.idle.insert(position, id),
        };
    }

    fn remove(&mut self, id: u64) {
        if let Some(entry) = self.open.remove(&id) {
            self.idle.remove(&entry.position);
            self.busy.remove(&entry.position);
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
    id: u64,
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
pub struct BusyGuard {
    table: ConnectionTable,
    id: u64,
}

impl BusyGuard {
    /// Keeps the connection busy until the response's body is dropped.
    pub fn guard<B>(self, response: Response<B>) -> Response<GuardedBody<B>> {
        response.map(|body| GuardedBody {
            body,
            guard: self,
            allowance: Allowance::Whole,
        })
    }

    /// As [`BusyGuard::guard`], for a body without an end: its client has time for each frame. The
    /// body has to have a frame in less than 10 s.
    pub fn guard_each_frame<B>(self, response: Response<B>) -> Response<GuardedBody<B>> {
        response.map(|body| GuardedBody {
            body,
            guard: self,
            allowance: Allowance::EachFrame,
        })
    }

    /// Gives the client time for another frame.
    fn renew(&self) {
        let deadline = Instant::now() + EXCHANGE_TIMEOUT;
        self.table.0.lock().set_deadline(self.id, Some(deadline));
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.table.0.lock().set_deadline(self.id, None);
    }
}

/// A response's body with its [`BusyGuard`]. HTTP/1 drops it when the whole response is written.
#[derive(Debug)]
pub struct GuardedBody<B> {
    body: B,
    guard: BusyGuard,
    allowance: Allowance,
}

/// The part of a response that has to be taken in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowance {
    Whole,
    EachFrame,
}

impl<B: Body + Unpin> Body for GuardedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        // A client that takes nothing has no more frames asked for.
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_ready() && self.allowance == Allowance::EachFrame {
            self.guard.renew();
        }
        frame
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

    fn enter(table: &ConnectionTable, id: u64) -> Membership {
        table.enter(id, None)
    }

    fn begin(membership: &Membership) -> BusyGuard {
        membership.table.begin_exchange(membership.id)
    }

    /// The ids of the idle and of the busy connections, the oldest first.
    fn ids(table: &ConnectionTable) -> (Vec<u64>, Vec<u64>) {
        let connections = table.0.lock();
        let ids = |order: &BTreeMap<u64, u64>| order.values().copied().collect();
        (ids(&connections.idle), ids(&connections.busy))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_of_an_endless_answer_has_time_for_each_frame() {
        let table = ConnectionTable::default();
        let mut membership = enter(&table, 1);
        let busy = begin(&membership);
        let body = http_body_util::Full::new(bytes::Bytes::from_static(b"event"));
        let mut answer = busy.guard_each_frame(Response::new(body));
        let almost = EXCHANGE_TIMEOUT - Duration::from_secs(1);
        assert!(timeout(almost, membership.ended()).await.is_err());
        let frame = http_body_util::BodyExt::frame(answer.body_mut()).await;
        assert!(frame.is_some());
        assert!(timeout(almost, membership.ended()).await.is_err());
        // No further frame is asked for.
        assert!(timeout(almost, membership.ended()).await.is_ok());
    }

    #[tokio::test]
    async fn the_oldest_of_the_larger_group_is_evicted() {
        let table = ConnectionTable::default();
        let mut members = [1, 2, 3, 4].map(|id| enter(&table, id));
        let exchanges = [2, 1, 0].map(|index| begin(&members[index]));
        assert_eq!(ids(&table), (vec![4], vec![3, 2, 1]));
        table.evict();
        members[2].ended().await;
        table.evict();
        members[1].ended().await;
        assert_eq!(ids(&table), (vec![4], vec![1]));
        table.evict();
        members[3].ended().await;
        assert_eq!(ids(&table), (vec![], vec![1]));
        drop(exchanges);
        assert_eq!(ids(&table), (vec![1], vec![]), "it waits for its next head");
        table.evict();
        members[0].ended().await;
        assert!(table.0.lock().open.is_empty());
        table.evict();
    }

    #[test]
    fn an_exchange_survives_any_number_of_idle_connections() {
        let table = ConnectionTable::default();
        let slow = enter(&table, 1);
        let mut others: Vec<_> = (2..10).map(|id| enter(&table, id)).collect();
        let _exchange = begin(&slow);
        for id in 10..1000 {
            table.evict();
            others.push(enter(&table, id));
        }
        assert_eq!(ids(&table).1, [1]);
    }

    #[test]
    fn a_new_connection_survives_as_many_as_are_busy() {
        let table = ConnectionTable::default();
        let busy: Vec<_> = (1..=8).map(|id| enter(&table, id)).collect();
        let _exchanges: Vec<_> = busy.iter().map(begin).collect();
        let mut new = Vec::new();
        for id in 11..=14 {
            table.evict();
            new.push(enter(&table, id));
        }
        assert_eq!(ids(&table), (vec![11, 12, 13, 14], vec![5, 6, 7, 8]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_exchange_ends_in_time_and_an_idle_connection_stays() {
        let table = ConnectionTable::default();
        let [mut slow, mut idle] = [1, 2].map(|id| enter(&table, id));
        drop(begin(&idle));
        let begun = Instant::now();
        let _exchange = begin(&slow);
        slow.ended().await;
        assert_eq!(begun.elapsed().as_secs(), EXCHANGE_TIMEOUT.as_secs());
        let later = timeout(EXCHANGE_TIMEOUT * 9, idle.ended()).await;
        assert!(later.is_err(), "its time ended with its exchange");
    }
}
