//! The connections of one worker, those without a request in flight by the time of their last.

use std::task::Waker;

use tokio::time::Instant;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// The connections of one worker, by their index. The idle ones are a list, the oldest first.
#[derive(Debug)]
pub(super) struct IdleList {
    entries: Vec<Entry>,
    /// The first free entry; `next` leads to others.
    free: u32,
    oldest: u32,
    newest: u32,
}

#[derive(Debug)]
struct Entry {
    state: State,
    /// The neighbours in the list.
    before: u32,
    next: u32,
    idle_since: Instant,
    waker: Option<Waker>,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the list.
    Idle,
    /// A request is in flight.
    Busy,
    /// It has to end.
    Evicted,
}

impl IdleList {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            oldest: NONE,
            newest: NONE,
        }
    }

    /// Adds a connection, which waits for its first request. Returns its index.
    pub(super) fn insert(&mut self, now: Instant) -> u32 {
        let entry = Entry {
            state: State::Idle,
            before: NONE,
            next: NONE,
            idle_since: now,
            waker: None,
        };
        let index = match self.free {
            NONE => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).expect("fewer connections than files")
            }
            index => {
                self.free = self.entries[index as usize].next;
                self.entries[index as usize] = entry;
                index
            }
        };
        self.link(index);
        index
    }

    /// Notes a request in flight.
    pub(super) fn begin(&mut self, index: u32) {
        if self.entries[index as usize].state == State::Idle {
            self.unlink(index);
            self.entries[index as usize].state = State::Busy;
        }
    }

    /// Notes that a connection is idle, and the task to wake. Returns true if it has been evicted.
    pub(super) fn is_evicted(
        &mut self,
        index: u32,
        since: impl FnOnce() -> Instant,
        task: &Waker,
    ) -> bool {
        let entry = &mut self.entries[index as usize];
        match &mut entry.waker {
            Some(waker) => waker.clone_from(task),
            None => entry.waker = Some(task.clone()),
        }
        if entry.state == State::Busy {
            (entry.state, entry.idle_since) = (State::Idle, since());
            self.link(index);
        }
        self.entries[index as usize].state == State::Evicted
    }

    /// The time since which the oldest idle connection is idle.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let oldest = self.entries.get(self.oldest as usize)?;
        Some(oldest.idle_since)
    }

    /// Evicts the oldest idle connection. Returns the task to wake, if there is one.
    pub(super) fn evict(&mut self) -> Option<Waker> {
        let index = self.oldest;
        self.entries.get(index as usize)?;
        self.unlink(index);
        let entry = &mut self.entries[index as usize];
        entry.state = State::Evicted;
        entry.waker.take()
    }

    /// Removes a connection that has ended.
    pub(super) fn remove(&mut self, index: u32) {
        self.begin(index);
        let entry = &mut self.entries[index as usize];
        (entry.next, entry.waker) = (self.free, None);
        self.free = index;
    }

    /// Appends an entry to the list.
    fn link(&mut self, index: u32) {
        let newest = std::mem::replace(&mut self.newest, index);
        let entry = &mut self.entries[index as usize];
        (entry.before, entry.next) = (newest, NONE);
        match newest {
            NONE => self.oldest = index,
            newest => self.entries[newest as usize].next = index,
        }
    }

    /// Takes an entry out of the list.
    fn unlink(&mut self, index: u32) {
        let Entry { before, next, .. } = self.entries[index as usize];
        match before {
            NONE => self.oldest = next,
            before => self.entries[before as usize].next = next,
        }
        match next {
            NONE => self.newest = before,
            next => self.entries[next as usize].before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn is_evicted(list: &mut IdleList, index: u32, since: Instant) -> bool {
        list.is_evicted(index, || since, Waker::noop())
    }

    #[test]
    fn an_entry_that_is_free_is_used_again() {
        let (mut list, now) = (IdleList::new(), Instant::now());
        let [first, second] = [list.insert(now), list.insert(now)];
        list.remove(first);
        assert_eq!(list.insert(now), first);
        list.remove(second);
        list.remove(first);
        assert_eq!([list.insert(now), list.insert(now)], [first, second]);
        assert_eq!(list.entries.len(), 2);
    }

    #[test]
    fn an_evicted_connection_hears_of_it_once() {
        let (mut list, now) = (IdleList::new(), Instant::now());
        let index = list.insert(now);
        assert!(!is_evicted(&mut list, index, now));
        assert!(list.evict().is_some());
        assert!(list.evict().is_none() && list.oldest().is_none());
        // Also if a request came at the same time.
        list.begin(index);
        assert!(is_evicted(&mut list, index, now));
        list.remove(index);
        let again = list.insert(now);
        assert!(again == index && !is_evicted(&mut list, again, now));
    }

    proptest! {
        /// The list is that of a plain model, whatever happens.
        #[test]
        fn the_oldest_is_evicted(steps in prop::collection::vec((0..5_u8, 0..8_usize), 0..200)) {
            let (mut list, mut now) = (IdleList::new(), Instant::now());
            // Live connections, and the idle ones in order.
            let (mut live, mut idle) = (Vec::new(), Vec::new());
            for (step, which) in steps {
                now += Duration::from_secs(1);
                let chosen = live.get(which % live.len().max(1)).copied();
                match (step, chosen) {
                    (0, _) => {
                        let index = list.insert(now);
                        live.push(index);
                        idle.push((index, now));
                    }
                    (1, Some(index)) => {
                        list.begin(index);
                        idle.retain(|(one, _)| *one != index);
                    }
                    (2, Some(index)) => {
                        let was_idle = idle.iter().any(|(one, _)| *one == index);
                        let evicted = is_evicted(&mut list, index, now);
                        if !was_idle && !evicted {
                            idle.push((index, now));
                        }
                    }
                    (3, Some(index)) => {
                        list.remove(index);
                        live.retain(|one| *one != index);
                        idle.retain(|(one, _)| *one != index);
                    }
                    (4, _) if !idle.is_empty() => {
                        let (index, _) = idle.remove(0);
                        list.evict();
                        prop_assert!(is_evicted(&mut list, index, now));
                    }
                    _ => {}
                }
                prop_assert_eq!(list.oldest(), idle.first().map(|(_, since)| *since));
            }
        }
    }
}
