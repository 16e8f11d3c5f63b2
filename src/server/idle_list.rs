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
    /// Requests so far.
    begun: u64,
}

#[derive(Debug)]
struct Entry {
    state: IdleState,
    /// The neighbours in the list.
    before: u32,
    next: u32,
    idle_since: Instant,
    /// The number of its last request in flight among those of all connections.
    begun: u64,
    waker: Option<Waker>,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleState {
    /// In the list.
    Idle,
    /// A request is in flight.
    Busy,
    /// It has to end.
    Evicted,
    /// The entry is of no connection.
    Free,
}

impl IdleList {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            oldest: NONE,
            newest: NONE,
            begun: 0,
        }
    }

    /// Adds a connection, which waits for its first request. Returns its index.
    pub(super) fn insert(&mut self, now: Instant) -> u32 {
        let entry = Entry {
            state: IdleState::Idle,
            before: NONE,
            next: NONE,
            idle_since: now,
            begun: 0,
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
        if self.entries[index as usize].state == IdleState::Idle {
            self.unlink(index);
            self.begun += 1;
            let entry = &mut self.entries[index as usize];
            (entry.state, entry.begun) = (IdleState::Busy, self.begun);
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
        if entry.state == IdleState::Busy {
            (entry.state, entry.idle_since) = (IdleState::Idle, since());
            self.link(index);
        }
        self.is_cut(index, task)
    }

    /// Notes the task to wake. Returns true if the connection has been evicted, with a request in
    /// flight or not.
    pub(super) fn is_cut(&mut self, index: u32, task: &Waker) -> bool {
        let entry = &mut self.entries[index as usize];
        match &mut entry.waker {
            Some(waker) => waker.clone_from(task),
            None => entry.waker = Some(task.clone()),
        }
        entry.state == IdleState::Evicted
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
        entry.state = IdleState::Evicted;
        entry.waker.take()
    }

    /// Evicts the oldest of the idle or of the busy connections, whichever are more. Returns the task
    /// to wake, if there is one.
    pub(super) fn evict_of_all(&mut self) -> Option<Waker> {
        let in_state = |state| self.entries.iter().filter(move |one| one.state == state);
        if in_state(IdleState::Busy).count() <= in_state(IdleState::Idle).count() {
            return self.evict();
        }
        let busy = self.entries.iter_mut();
        let busy = busy.filter(|one| one.state == IdleState::Busy);
        let oldest = busy.min_by_key(|one| one.begun)?;
        oldest.state = IdleState::Evicted;
        oldest.waker.take()
    }

    /// Removes a connection that has ended.
    pub(super) fn remove(&mut self, index: u32) {
        self.begin(index);
        let entry = &mut self.entries[index as usize];
        (entry.state, entry.next, entry.waker) = (IdleState::Free, self.free, None);
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

    /// Evicts one, and returns those of `all` that are evicted now.
    fn evicted(list: &mut IdleList, all: &[u32]) -> Vec<u32> {
        list.evict_of_all();
        let is_cut = |index: &&u32| list.is_cut(**index, Waker::noop());
        all.iter().filter(is_cut).copied().collect()
    }

    #[test]
    fn the_oldest_of_the_larger_group_is_evicted() {
        let (mut list, now) = (IdleList::new(), Instant::now());
        let all: Vec<u32> = (0..4).map(|_| list.insert(now)).collect();
        all[..3].iter().rev().for_each(|&index| list.begin(index));
        assert_eq!(evicted(&mut list, &all), [2]);
        assert_eq!(evicted(&mut list, &all), [1, 2]);
        assert_eq!(evicted(&mut list, &all), [1, 2, 3]);
        assert!(!is_evicted(&mut list, 0, now), "it waits for its next head");
        assert_eq!(evicted(&mut list, &all), [0, 1, 2, 3]);
        assert_eq!(evicted(&mut list, &all), [0, 1, 2, 3]);
    }

    #[test]
    fn a_busy_connection_survives_any_number_of_idle_ones() {
        let (mut list, now) = (IdleList::new(), Instant::now());
        let slow = list.insert(now);
        let mut idle: Vec<u32> = (0..8).map(|_| list.insert(now)).collect();
        list.begin(slow);
        for _ in 0..1_000 {
            list.evict_of_all();
            list.remove(idle.remove(0));
            idle.push(list.insert(now));
            assert!(!list.is_cut(slow, Waker::noop()));
        }
    }

    #[test]
    fn a_new_connection_survives_as_many_as_are_busy() {
        let (mut list, now) = (IdleList::new(), Instant::now());
        let busy: Vec<u32> = (0..8).map(|_| list.insert(now)).collect();
        busy.iter().for_each(|&index| list.begin(index));
        for &oldest in &busy[..4] {
            list.evict_of_all();
            list.insert(now);
            assert!(list.is_cut(oldest, Waker::noop()));
        }
        assert_eq!(evicted(&mut list, &busy).len(), 4, "an idle one");
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
