//! What is kept of one bucket: what was charged here in its last two epochs, and what of the others' charges it knows.

use super::epoch::{Epochs, SyncInstant};
use crate::clock::Timestamp;
use crate::limiter::Cell;
use crate::store::bounded_map::HeapSize;

/// A bucket of which nothing new is heard is asked about after so many rounds, and twice as many, and at last each so many. At
/// once where enough of it is charged to be told.
const PAUSES: [u64; 2] = [2, 32];
/// What is charged is told after so many rounds at the latest, however little it is.
const LONGEST_UNTOLD: u64 = 8;

/// A bucket.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) name: Box<[u8]>,
    current: Epoch,
    before: Option<Epoch>,
    /// When it was charged here first, where it was whole until then.
    whole_at: Option<Timestamp>,
}

/// What others have charged that was not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteDelta {
    pub(super) units: u64,
    /// When they charged it, at the latest.
    pub(super) at: Timestamp,
}

/// What the server knew of a bucket in one epoch when it was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    /// Units that all other nodes have charged.
    pub(super) others: u64,
    /// Units that this node had told before.
    pub(super) own: u64,
}

/// Units of others that a bucket was charged for, by the end of the epoch: the last two.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteUnits([(u64, u64); 2]);

impl RemoteUnits {
    /// Whether none of it counts any more.
    pub(super) fn is_over(&self, epochs: Epochs, now: SyncInstant) -> bool {
        self.0.iter().all(|(end, _)| epochs.is_over(*end, now))
    }

    fn units(&self, end: u64) -> u64 {
        let known = self.0.iter().find(|(known, _)| *known == end);
        known.map_or(0, |(_, units)| *units)
    }
}

impl HeapSize for RemoteUnits {
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// What is known of it in one epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    /// When the epoch ends.
    pub(super) end: u64,
    /// Units charged here, as far as they are known.
    own: u64,
    /// Whether that is all of them: a key that was forgotten within the epoch may have told more, which the server knows.
    is_complete: bool,
    /// Those that the server is known to know of.
    told: u64,
    /// Units of others that the bucket has been charged for. It never falls, so that a server that has forgotten them, and is
    /// told again, says nothing new.
    seen: u64,
    /// Whether others have ever been asked about.
    is_known: bool,
    /// The round in which others were asked about last, and how many there are until the next.
    asked: u64,
    pause: u64,
}

impl HeapSize for Tracked {
    fn heap_bytes(&self) -> usize {
        self.name.len()
    }
}

impl Tracked {
    /// A bucket that nobody has charged here in the epoch that ends then, nor in the one before.
    pub(super) fn new(
        name: Vec<u8>,
        epochs: Epochs,
        end: u64,
        whole_at: Option<Timestamp>,
    ) -> Self {
        Self {
            name: name.into(),
            whole_at,
            current: Epoch::new(end),
            before: epochs.before(end).map(Epoch::new),
        }
    }

    /// The server may know of units that were charged here before; of the others' units, those were charged here.
    pub(super) fn expect_own_units(&mut self, heard: Option<RemoteUnits>) {
        let terms = self.before.iter_mut().chain(Some(&mut self.current));
        for term in terms {
            term.is_complete = false;
            term.seen = heard.map_or(0, |heard| heard.units(term.end));
        }
    }

    /// What is to outlast the key: the units of others that its bucket was charged for.
    pub(super) fn heard(&self) -> RemoteUnits {
        let of = |term: &Epoch| (term.end, term.seen);
        RemoteUnits([self.before.as_ref().map_or((0, 0), of), of(&self.current)])
    }

    /// Counts a charge that left this cell.
    pub(super) fn note(&mut self, epochs: Epochs, cost: u32, cell: Cell, now: SyncInstant) {
        let is_common = matches!(epochs, Epochs::Windows(_));
        if is_common || !epochs.is_running(self.current.end, now) {
            self.turn(epochs, epochs.end(cell, now));
        }
        let term = &mut self.current;
        term.own = term.own.saturating_add(u64::from(cost));
    }

    /// Goes on to the epoch that runs, where that needs no charge to be known; whether anything of the bucket may still
    /// count.
    pub(super) fn is_in_use(&mut self, epochs: Epochs, now: SyncInstant) -> bool {
        match epochs {
            Epochs::Grid(_) => {
                if !epochs.is_running(self.current.end, now) {
                    self.turn(epochs, epochs.end(Cell::EMPTY, now));
                }
                self.terms().any(|term| term.own > 0)
            }
            Epochs::Windows(_) => !epochs.is_over(self.current.end, now),
        }
    }

    /// Its epochs in which there is something to tell or to ask in this round: to tell of the running one where that is `worth` so
    /// many units, or has waited for long.
    pub(super) fn due(
        &self,
        epochs: Epochs,
        round: u64,
        worth: u64,
        now: SyncInstant,
    ) -> impl Iterator<Item = &Epoch> {
        let is_due = move |term: &Epoch| {
            let is_running = term.end == self.current.end;
            match term.own.saturating_sub(term.told) {
                0 => round >= term.asked + term.pause && epochs.counts(term.end, now),
                untold if is_running && untold < worth => {
                    round >= term.asked + term.pause.min(LONGEST_UNTOLD)
                }
                _ => true,
            }
        };
        self.terms().filter(move |term| is_due(term))
    }

    /// Takes in what the server said of an epoch when it was told `own`; `None` where that is nothing new, or counts no
    /// longer.
    pub(super) fn answered(
        &mut self,
        (end, own): (u64, u64),
        totals: Totals,
        (round, worth): (u64, u64),
        now: SyncInstant,
        epochs: Epochs,
    ) -> Option<RemoteDelta> {
        let mut terms = self.before.iter_mut().chain(Some(&mut self.current));
        let term = terms.find(|term| term.end == end)?;
        let is_first = !term.is_known;
        let units = term.answered(own, totals, (round, worth));
        // Of what was charged before that epoch ended, some has come back while the bucket was whole here.
        let whole_at = self.whole_at.filter(|_| is_first);
        let back = whole_at.map_or(0, |whole_at| now.at(whole_at).saturating_sub(end));
        let at = now.here.saturating_sub_micros(back);
        (units > 0 && epochs.counts(end, now)).then_some(RemoteDelta { units, at })
    }

    fn terms(&self) -> impl Iterator<Item = &Epoch> {
        self.before.iter().chain(std::iter::once(&self.current))
    }

    /// Begins the epoch that ends then.
    fn turn(&mut self, epochs: Epochs, end: Option<u64>) {
        let Some(end) = end.filter(|end| *end != self.current.end) else {
            return;
        };
        if epochs.before(self.current.end) == Some(end) {
            // The server's clock is seen from a little further away: what has begun goes on.
            return;
        }
        let mut last = std::mem::replace(&mut self.current, Epoch::new(end));
        // All the others tell the rest of it now.
        last.pause = last.pause.min(PAUSES[0]);
        self.before = match epochs.before(end) {
            // Somebody whose clock is behind may want to know.
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
            told: 0,
            seen: 0,
            is_known: false,
            asked: 0,
            pause: 0,
        }
    }

    /// Units to tell in all; none until it is known what was told before.
    pub(super) fn total(&self) -> u64 {
        match self.is_complete {
            true => self.own,
            false => 0,
        }
    }

    fn answered(&mut self, own: u64, totals: Totals, (round, worth): (u64, u64)) -> u64 {
        let others = totals.others;
        if !self.is_complete {
            // An answer to what was told before the key was forgotten does not know of that yet.
            self.told = totals.own.max(own);
            self.is_complete = true;
            self.own = self.own.saturating_add(self.told);
        }
        let news = others.saturating_sub(self.seen);
        let is_quiet = own.saturating_sub(self.told) < worth;
        self.seen = self.seen.max(others);
        self.told = self.told.max(own);
        self.is_known = true;
        self.pause = match news {
            0 if is_quiet => (self.pause * 2).clamp(PAUSES[0], PAUSES[1]),
            0 => PAUSES[0],
            _ => 1,
        };
        self.asked = round;
        news
    }
}
