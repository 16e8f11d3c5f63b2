//! Who waits for units of a key that are in use: first in, first out.

use std::collections::BTreeMap;
use std::task::Waker;

/// Those who wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct PermitQueue {
    waiters: BTreeMap<Ticket, Waiter>,
    next: u64,
}

/// A place in a line. None is given twice while somebody has one of the same line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

#[derive(Debug)]
struct Waiter {
    units: u32,
    waker: Option<Waker>,
}

impl PermitQueue {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether somebody waits who could be let in where there are `max` units: who asks for more holds up nobody.
    pub(super) fn has_waiter_within(&self, max: u32) -> bool {
        self.waiters.values().any(|place| place.units <= max)
    }

    /// Takes the last place.
    pub(super) fn enter(&mut self, units: u32) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        let waker = None;
        self.waiters.insert(ticket, Waiter { units, waker });
        ticket
    }

    /// Gives up a place, wherever it is; whether there was one still.
    pub(super) fn leave(&mut self, ticket: Ticket) -> bool {
        self.waiters.remove(&ticket).is_some()
    }

    /// Has `waker` woken when the turn of this place comes; `false` if it has come.
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

    /// Lets in the next one, of those who ask for no more than there is at all, if `free` units are enough: his units,
    /// and whom to wake.
    pub(super) fn admit(&mut self, free: u64, max: u32) -> Option<(u32, Option<Waker>)> {
        let mut places = self.waiters.iter();
        let (&ticket, place) = places.find(|(_, place)| place.units <= max)?;
        if u64::from(place.units) > free {
            return None;
        }
        let place = self.waiters.remove(&ticket)?;
        Some((place.units, place.waker))
    }
}
