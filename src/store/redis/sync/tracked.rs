//! One bucket's charges in its last two epochs, and the known charges of others.

use super::epoch::{Epochs, SyncInstant};
use crate::clock::Timestamp;
use crate::limiter::{Cell, Fingerprint};
use crate::store::bounded_map::HeapSize;

/// The rounds between queries for a bucket without news: at first, and at most after doubling. A
/// bucket with enough to report is queried at once.
const QUERY_PAUSES: [u64; 2] = [2, 32];
/// The most rounds before a charge is reported, however small.
const MAX_ROUNDS_UNREPORTED: u64 = 8;

#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) name: Box<[u8]>,
    current: Epoch,
    before: Option<Epoch>,
    /// The first charge here, if the bucket was full until then.
    full_until: Option<Timestamp>,
    /// The instant at which an operator last reset the bucket, in the server's time; 0 without one.
    reset: u64,
}

/// A report on one bucket in one epoch, and the query for the others' total.
#[derive(Clone, Debug)]
pub(super) struct SyncRequest {
    pub(super) key: Fingerprint,
    /// The end of the epoch.
    pub(super) end: u64,
    /// The Redis key of the totals.
    pub(super) name: Vec<u8>,
    /// The node's total.
    pub(super) own: u64,
    /// The time to live of the totals, in milliseconds.
    pub(super) ttl_millis: u64,
    /// The last reset that concerns the epoch, in the server's time; 0 without one.
    pub(super) reset: u64,
}

/// New charges of others.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteDelta {
    pub(super) units: u64,
    /// The latest instant of these charges.
    pub(super) at: Timestamp,
}

/// The server's totals of a bucket in one epoch, at a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    /// The units of all other nodes.
    pub(super) others: u64,
    /// The units that this node had reported before.
    pub(super) own: u64,
}

/// The units of others that a bucket was charged for, by the end of the epoch: the last two.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteUnits(pub(super) [(u64, u64); 2]);

impl RemoteUnits {
    /// True if none of it counts any more.
    pub(super) fn is_over(&self, epochs: Epochs, now: SyncInstant) -> bool {
        self.0.iter().all(|(end, _)| epochs.is_over(*end, now))
    }

    fn units(&self, end: u64) -> u64 {
        let known = self.0.iter().find(|(known, _)| *known == end);
        known.map_or(0, |(_, units)| *units)
    }
}

impl HeapSize for RemoteUnits {}

/// A bucket's units in one epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    /// The end of the epoch.
    pub(super) end: u64,
    /// The known units charged here.
    own: u64,
    /// False after an eviction within the epoch: the server may then know of more units.
    is_complete: bool,
    /// The reported units that the server has confirmed.
    confirmed: u64,
    /// The units of others that the bucket was charged for. It never falls: a server that has lost
    /// its data, and is told again, causes no new charge.
    charged: u64,
    /// True once the server has answered.
    is_queried: bool,
    /// The round of the last query, and the number of rounds until the next.
    last_query: u64,
    pause: u64,
}

impl HeapSize for Tracked {
    fn heap_bytes(&self) -> usize {
        self.name.len()
    }
}

impl Tracked {
    /// A bucket without charges here in the epoch with this end, nor in the one before.
    pub(super) fn new(
        name: Vec<u8>,
        epochs: Epochs,
        end: u64,
        full_until: Option<Timestamp>,
        reset: u64,
    ) -> Self {
        Self {
            name: name.into(),
            full_until,
            reset,
            current: Epoch::new(end),
            before: epochs.before(end).map(Epoch::new),
        }
    }

    /// Marks the own units as incomplete after an eviction, and restores the charged units of
    /// others.
    pub(super) fn mark_incomplete(&mut self, remote_units: Option<RemoteUnits>) {
        for epoch in self.epochs_mut() {
            epoch.is_complete = false;
            epoch.charged = remote_units.map_or(0, |remote_units| remote_units.units(epoch.end));
        }
    }

    /// The units of others that the bucket was charged for, which outlast the key.
    pub(super) fn remote_units(&self) -> RemoteUnits {
        let of = |epoch: &Epoch| (epoch.end, epoch.charged);
        RemoteUnits([self.before.as_ref().map_or((0, 0), of), of(&self.current)])
    }

    /// All units that the bucket was charged for, also here.
    pub(super) fn all_units(&self) -> RemoteUnits {
        let of = |epoch: &Epoch| (epoch.end, epoch.charged.saturating_add(epoch.own));
        RemoteUnits([self.before.as_ref().map_or((0, 0), of), of(&self.current)])
    }

    /// The last reset that concerns the epoch with this end; 0 without one.
    pub(super) fn reset_in(&self, epochs: Epochs, end: u64) -> u64 {
        epochs.reset_in(end, self.reset)
    }

    /// Counts from zero, since an operator has reset the bucket at `reset`. False if that is known.
    pub(super) fn restart(&mut self, reset: u64, now: SyncInstant) -> bool {
        if reset <= self.reset {
            return false;
        }
        self.reset = reset;
        self.full_until = Some(now.local);
        (self.epochs_mut()).for_each(|epoch| *epoch = Epoch::new(epoch.end));
        true
    }

    /// Counts a charge that left this cell.
    pub(super) fn note(&mut self, epochs: Epochs, cost: u32, cell: Cell, now: SyncInstant) {
        if epochs.depends_on_bucket() || !epochs.is_running(self.current.end, now) {
            self.start_epoch(epochs, epochs.end(cell, now));
        }
        let epoch = &mut self.current;
        epoch.own = epoch.own.saturating_add(u64::from(cost));
    }

    /// Starts the current epoch if no charge is needed to know it; returns true if the bucket may
    /// still count.
    pub(super) fn is_in_use(&mut self, epochs: Epochs, now: SyncInstant) -> bool {
        match epochs {
            Epochs::Grid(_) => {
                if !epochs.is_running(self.current.end, now) {
                    self.start_epoch(epochs, epochs.end(Cell::EMPTY, now));
                }
                self.tracked_epochs().any(|epoch| epoch.own > 0)
            }
            Epochs::Windows(_) | Epochs::Grants => !epochs.is_over(self.current.end, now),
        }
    }

    /// The epochs that are due in this round. In the current one, less than `threshold` units wait
    /// for some rounds.
    pub(super) fn due(
        &self,
        epochs: Epochs,
        round: u64,
        threshold: u64,
        now: SyncInstant,
    ) -> impl Iterator<Item = &Epoch> {
        let is_due = move |epoch: &Epoch| {
            let is_running = epoch.end == self.current.end;
            match epoch.own.saturating_sub(epoch.confirmed) {
                0 => round >= epoch.last_query + epoch.pause && epochs.counts(epoch.end, now),
                unreported if is_running && unreported < threshold => {
                    round >= epoch.last_query + epoch.pause.min(MAX_ROUNDS_UNREPORTED)
                }
                _ => true,
            }
        };
        self.tracked_epochs().filter(move |epoch| is_due(epoch))
    }

    /// Applies the server's totals of an epoch, replied to this request; `None` without new units that
    /// still count.
    pub(super) fn apply_totals(
        &mut self,
        request: &SyncRequest,
        totals: Totals,
        (round, threshold): (u64, u64),
        now: SyncInstant,
        epochs: Epochs,
    ) -> Option<RemoteDelta> {
        let end = request.end;
        if self.reset_in(epochs, end) != request.reset {
            // The answer is to a question from before a reset.
            return None;
        }
        let epoch = self.epochs_mut().find(|epoch| epoch.end == end)?;
        let is_first = !epoch.is_queried;
        let units = epoch.apply_totals(request.own, totals, (round, threshold));
        // The bucket was full here until its first charge: a part of what others charged in that
        // earlier epoch has been refilled.
        let full_until = self.full_until.filter(|_| is_first);
        let back = full_until.map_or(0, |full_until| now.at(full_until).saturating_sub(end));
        let at = now.local.saturating_sub_micros(back);
        (units > 0 && epochs.counts(end, now)).then_some(RemoteDelta { units, at })
    }

    fn epochs_mut(&mut self) -> impl Iterator<Item = &mut Epoch> {
        self.before.iter_mut().chain(Some(&mut self.current))
    }

    fn tracked_epochs(&self) -> impl Iterator<Item = &Epoch> {
        self.before.iter().chain(std::iter::once(&self.current))
    }

    /// Starts the epoch with this end.
    fn start_epoch(&mut self, epochs: Epochs, end: Option<u64>) {
        let Some(end) = end.filter(|end| *end != self.current.end) else {
            return;
        };
        if epochs.before(self.current.end) == Some(end) {
            // The estimate of the server's clock moved back a little: the current epoch goes on.
            return;
        }
        let mut last = std::mem::replace(&mut self.current, Epoch::new(end));
        // All other machines report the rest of that epoch now.
        last.pause = last.pause.min(QUERY_PAUSES[0]);
        self.before = match epochs.before(end) {
            // A machine with a clock behind may still need it.
            None => Some(last),
            Some(before) if before == last.end => Some(last),
            Some(before) => Some(Epoch::new(before)),
        };
        if epochs.before(end).is_some() && end < last.end {
            // The clock was wrong by more than an epoch until now.
            self.current.own = last.own;
            self.current.is_complete = last.is_complete;
        }
    }
}

impl Epoch {
    const fn new(end: u64) -> Self {
        Self {
            end,
            own: 0,
            is_complete: true,
            confirmed: 0,
            charged: 0,
            is_queried: false,
            last_query: 0,
            pause: 0,
        }
    }

    /// The total to report; 0 until the earlier reports of an evicted key are known.
    pub(super) fn total(&self) -> u64 {
        if self.is_complete { self.own } else { 0 }
    }

    fn apply_totals(&mut self, own: u64, totals: Totals, (round, threshold): (u64, u64)) -> u64 {
        let others = totals.others;
        if !self.is_complete {
            // The answer to a report from before the eviction does not include it.
            self.confirmed = totals.own.max(own);
            self.is_complete = true;
            self.own = self.own.saturating_add(self.confirmed);
        }
        let new_units = others.saturating_sub(self.charged);
        let is_quiet = own.saturating_sub(self.confirmed) < threshold;
        self.charged = self.charged.max(others);
        self.confirmed = self.confirmed.max(own);
        self.is_queried = true;
        self.pause = match new_units {
            0 if is_quiet => (self.pause * 2).clamp(QUERY_PAUSES[0], QUERY_PAUSES[1]),
            0 => QUERY_PAUSES[0],
            _ => 1,
        };
        self.last_query = round;
        new_units
    }
}
