//! Requests that wait for a slot at a host of their upstream, where `connections.max` bounds the
//! requests in flight at each: one queue for all workers, first in, first out. It outlives reloads.
//!
//! A slot that becomes free goes to the first request that may use it, in the same step. Not here:
//! which hosts those are (`cluster::slots`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use arc_swap::ArcSwap;
use derive_more::Debug;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::host::{Host, InFlight};
use super::host_set::{HostSet, Tried};

/// The bound of a host that has none.
pub(super) const UNBOUNDED: u32 = u32::MAX;

/// The requests of an upstream that wait for a slot, and the bound that makes them wait.
///
/// Its length and the counts of the hosts are sequentially consistent: a request that enters looks
/// for slots afterwards, and a request that ends looks for those that wait. One sees the other.
#[derive(Debug)]
pub(super) struct PendingQueue {
    /// The most requests in flight at each host.
    max: AtomicU32,
    /// How many wait. Changed under the lock.
    length: AtomicUsize,
    /// Each leads to the hosts, which lead here.
    #[debug(skip)]
    waiters: Mutex<Waiters>,
}

/// Waiting requests, in the order of their arrival.
#[derive(Default)]
struct Waiters {
    by_ticket: BTreeMap<u64, Waiter>,
    /// The next ticket.
    next: u64,
}

struct Waiter {
    claim: SlotClaim,
    assigned: oneshot::Sender<Assignment>,
}

/// A request in the queue, which it leaves when this is dropped. A slot that it was given meanwhile
/// goes to the next.
#[derive(Debug)]
pub(super) struct PendingRequest<'a> {
    queue: &'a PendingQueue,
    ticket: u64,
    assigned: oneshot::Receiver<Assignment>,
}

/// The number of a host, and the slot of a request there.
pub(super) type Slot = (usize, InFlight);

/// The slot that a request has waited for.
#[derive(Debug)]
pub(super) struct Assignment {
    /// The hosts of the cluster at that moment.
    pub set: Arc<HostSet>,
    pub slot: Slot,
}

/// The slots that a waiting request may use: those of the hosts of its cluster, but for the hosts
/// that it was tried at.
#[derive(Debug)]
pub(super) struct SlotClaim {
    pub hosts: Arc<ArcSwap<HostSet>>,
    pub tried: SmallVec<[Arc<Host>; 2]>,
}

impl PendingQueue {
    /// An empty queue, without a bound.
    pub(super) fn new() -> Self {
        PendingQueue {
            max: AtomicU32::new(UNBOUNDED),
            length: AtomicUsize::new(0),
            waiters: Mutex::default(),
        }
    }

    /// The most requests in flight at each host.
    pub(super) fn max(&self) -> u32 {
        self.max.load(SeqCst)
    }

    /// Changes the bound. The caller offers the slots that it adds.
    pub(super) fn set_max(&self, max: u32) {
        self.max.store(max, SeqCst);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The requests that wait.
    pub(super) fn len(&self) -> usize {
        self.length.load(SeqCst)
    }

    /// Adds a request at the end; `None` if `most` wait. The caller then offers the slots that have
    /// become free meanwhile.
    pub(super) fn enter(&self, claim: SlotClaim, most: u32) -> Option<PendingRequest<'_>> {
        let mut waiters = self.waiters.lock();
        if waiters.by_ticket.len() >= most as usize {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let ticket = waiters.next;
        waiters.next += 1;
        let assigned = sender;
        let waiter = Waiter { claim, assigned };
        waiters.by_ticket.insert(ticket, waiter);
        self.length.store(waiters.by_ticket.len(), SeqCst);
        Some(PendingRequest {
            queue: self,
            ticket,
            assigned: receiver,
        })
    }

    /// Gives the free slots of `host` to the requests that may use them, in order.
    pub(super) fn offer(&self, host: &Arc<Host>) {
        while !self.is_empty() && host.has_slot(self.max()) {
            let Some((waiter, assignment)) = self.assign(host) else {
                return;
            };
            // A request that has left meanwhile drops the slot, which is then offered again.
            drop(waiter.assigned.send(assignment));
        }
    }

    /// Takes the first request out that may use a slot of `host`, with the slot.
    fn assign(&self, host: &Arc<Host>) -> Option<(Waiter, Assignment)> {
        let max = self.max();
        let mut waiters = self.waiters.lock();
        let mut in_order = waiters.by_ticket.iter();
        let (ticket, assignment) = in_order.find_map(|(&ticket, waiter)| {
            let assignment = waiter.claim.assign(host, max)?;
            Some((ticket, assignment))
        })?;
        let waiter = waiters.by_ticket.remove(&ticket);
        self.length.store(waiters.by_ticket.len(), SeqCst);
        Some((waiter.expect("it was found under this lock"), assignment))
    }

    fn leave(&self, ticket: u64) {
        let mut waiters = self.waiters.lock();
        let left = waiters.by_ticket.remove(&ticket);
        self.length.store(waiters.by_ticket.len(), SeqCst);
        drop(waiters);
        // Dropped without the lock: it may be the last owner of a host.
        drop(left);
    }
}

impl SlotClaim {
    /// Takes a slot of `host`, if the request may go there.
    fn assign(&self, host: &Arc<Host>, max: u32) -> Option<Assignment> {
        let set = self.hosts.load();
        let number = set.number_of(host)?;
        let tried = self.tried.iter().filter_map(|host| set.number_of(host));
        let tried: Tried = tried.collect();
        if !set.may_take(number, &tried) {
            return None;
        }
        let slot = (number, InFlight::begin_below(host, max)?);
        Some(Assignment {
            set: Arc::clone(&set),
            slot,
        })
    }
}

impl PendingRequest<'_> {
    /// Waits for a host with a slot.
    pub(super) async fn assigned(&mut self) -> Assignment {
        let assigned = (&mut self.assigned).await;
        assigned.expect("the queue sends before it drops the sender")
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.queue.leave(self.ticket);
    }
}
