//! The queue of requests that wait for units of a key: first in, first out.

use std::collections::BTreeMap;
use std::task::Waker;

/// Waiting requests, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct PermitQueue {
    waiters: BTreeMap<Ticket, Waiter>,
    next: u64,
}

/// A place in a queue, unique within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

#[derive(Debug)]
struct Waiter {
    units: u32,
    waker: Option<Waker>,
}

impl PermitQueue {
    /// The number of waiting requests.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// True if a waiting request fits `max` units. Larger requests hold up no other.
    pub(super) fn has_waiter_within(&self, max: u64) -> bool {
        self.waiters
            .values()
            .any(|place| u64::from(place.units) <= max)
    }

    /// Adds a request at the end.
    pub(super) fn enter(&mut self, units: u32) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        let waker = None;
        self.waiters.insert(ticket, Waiter { units, waker });
        ticket
    }

    /// Removes a request from any place; true if it was still there.
    pub(super) fn leave(&mut self, ticket: Ticket) -> bool {
        self.waiters.remove(&ticket).is_some()
    }

    /// True if the request is still there.
    pub(super) fn contains(&self, ticket: Ticket) -> bool {
        self.waiters.contains_key(&ticket)
    }

    /// Sets the waker of a request; false if it has been admitted.
    pub(super) fn set_waker(&mut self, ticket: Ticket, waker: &Waker) -> bool {
        let Some(place) = self.waiters.get_mut(&ticket) else {
            return false;
        };
        match &mut place.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    /// Admits the first request that fits `max` units at all, if `free` units suffice. Returns its
    /// units and its waker.
    pub(super) fn admit(&mut self, free: u64, max: u64) -> Option<(u32, Option<Waker>)> {
        let mut places = self.waiters.iter();
        let (&ticket, place) = places.find(|(_, place)| u64::from(place.units) <= max)?;
        if u64::from(place.units) > free {
            return None;
        }
        let place = self.waiters.remove(&ticket)?;
        Some((place.units, place.waker))
    }
}
