//! The places for calls under way on a connection. Further calls wait, and clients take turns: none
//! waits for the whole burst of another.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The most calls under way: 2,560 a second of one worker if each takes 100 ms. A server works off as
/// many in some 10 ms.
pub(super) const MAX_UNDER_WAY: usize = 256;

/// The most calls that wait. Beyond it, a call of the last round gets no place.
const MAX_WAITING: usize = 16_384;

/// The origin of a call.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The worker whose connection is used.
    pub worker: usize,
    /// The client that takes its turn; `None` stands for all that can't be told apart.
    pub client: Option<IpAddr>,
}

/// The places of one connection.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    under_way: usize,
    /// How many calls were answered.
    answers: u64,
    /// Waiting calls, by their round and in the order of arrival: a round has one call of each client.
    waiting: BTreeMap<(u64, u64), oneshot::Sender<Place>>,
    arrivals: u64,
    /// The round whose calls get places now.
    round: u64,
    /// The last round of each client that waits, or has waited.
    rounds: HashMap<Option<IpAddr>, u64>,
}

/// The place of one call. A drop gives it to the next one.
#[derive(Debug)]
pub(super) struct Place(Arc<Places>);

impl Places {
    /// Waits for a place; `None` if too many wait, and the client has the most.
    pub(super) async fn take(self: &Arc<Self>, client: Option<IpAddr>) -> Option<Place> {
        let place = {
            let mut calls = self.0.lock();
            if calls.under_way < MAX_UNDER_WAY {
                calls.under_way += 1;
                return Some(Place(Arc::clone(self)));
            }
            calls.wait(client)
        };
        place.await.ok()
    }

    /// How many calls were answered.
    pub(super) fn answers(&self) -> u64 {
        self.0.lock().answers
    }
}

impl Place {
    /// Notes that its call was answered.
    pub(super) fn answered(&self) {
        self.0.0.lock().answers += 1;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let next = self.0.0.lock().next();
        if let Some(next) = next {
            // If the call has just left, this place is dropped in turn.
            let _ = next.send(Place(Arc::clone(&self.0)));
        }
    }
}

impl Calls {
    fn wait(&mut self, client: Option<IpAddr>) -> oneshot::Receiver<Place> {
        let (sender, place) = oneshot::channel();
        let round = self.rounds.entry(client).or_default();
        *round = self.round.max(*round) + 1;
        self.arrivals += 1;
        self.waiting.insert((*round, self.arrivals), sender);
        if self.waiting.len() > MAX_WAITING {
            self.waiting.pop_last();
        }
        if self.rounds.len() > 2 * MAX_WAITING {
            self.rounds.retain(|_, round| *round > self.round);
        }
        place
    }

    /// Ends a call. Returns the one that takes its place.
    fn next(&mut self) -> Option<oneshot::Sender<Place>> {
        while let Some(((round, _), next)) = self.waiting.pop_first() {
            self.round = round;
            if !next.is_closed() {
                return Some(next);
            }
        }
        self.rounds.clear();
        self.under_way -= 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn client(number: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, number]))
    }

    fn poll(take: Pin<&mut impl Future<Output = Option<Place>>>) -> Poll<Option<Place>> {
        take.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Has a call wait.
    fn wait(
        places: &Arc<Places>,
        client: Option<IpAddr>,
    ) -> Pin<Box<impl Future<Output = Option<Place>>>> {
        let mut call = Box::pin(places.take(client));
        assert!(poll(call.as_mut()).is_pending());
        call
    }

    /// A connection, and all its places.
    fn full() -> (Arc<Places>, Vec<Place>) {
        let places = Arc::<Places>::default();
        let take = |_| match poll(pin!(places.take(None))) {
            Poll::Ready(Some(place)) => place,
            other => panic!("a place, not {other:?}"),
        };
        let taken = (0..MAX_UNDER_WAY).map(take).collect();
        (places, taken)
    }

    #[test]
    fn a_client_does_not_wait_for_the_burst_of_another() {
        let (places, mut taken) = full();
        let mut burst: Vec<_> = (0..5_000).map(|_| wait(&places, client(1))).collect();
        let mut honest = wait(&places, client(2));
        taken.truncate(MAX_UNDER_WAY - 2);
        for call in [&mut burst[0], &mut honest] {
            assert!(matches!(poll(call.as_mut()), Poll::Ready(Some(_))));
        }
    }

    #[test]
    fn of_too_many_calls_the_client_with_the_most_loses_its_last() {
        let (places, taken) = full();
        let mut honest = wait(&places, client(2));
        let call = |_| Box::pin(places.take(client(1)));
        let mut burst: Vec<_> = (0..20_000).map(call).collect();
        let refused = burst.iter_mut();
        let refused = refused.map(|call| matches!(poll(call.as_mut()), Poll::Ready(None)));
        assert_eq!(
            refused.filter(|is_refused| *is_refused).count(),
            20_001 - MAX_WAITING
        );
        let mut other = wait(&places, client(3));
        drop(taken);
        for call in [&mut honest, &mut other] {
            assert!(matches!(poll(call.as_mut()), Poll::Ready(Some(_))));
        }
    }

    #[test]
    fn places_of_calls_that_leave_go_to_the_next_one_or_are_free() {
        let (places, mut taken) = full();
        let leaves: Vec<_> = (0..10_000).map(|_| wait(&places, client(1))).collect();
        let mut last = wait(&places, client(1));
        drop(leaves);
        taken.pop();
        // Two calls have a place, and leave before they know.
        let given = wait(&places, client(1));
        taken.pop();
        drop(given);
        assert!(matches!(poll(last.as_mut()), Poll::Ready(Some(_))));
        drop((last, taken));
        let calls = places.0.lock();
        assert_eq!((calls.under_way, calls.waiting.len()), (0, 0));
        assert!(calls.rounds.is_empty());
    }
}
