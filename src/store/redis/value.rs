//! Stored values: the state of a bucket. `script/buckets.lua` and the algorithms' files beside it
//! document the layout.

use super::reply::parsed;
use crate::clock::Timestamp;
use crate::limiter::algorithms::{Concurrency, FixedWindow};
use crate::limiter::bucket::{BucketFacts, Grant};
use crate::limiter::ring::{BucketState, RingMemory};
use crate::limiter::{Algorithm, Cell, Fingerprint};
use crate::store::Probe;

/// A bucket read from Redis. Of a ring it has all slots, or those that a decision reads.
#[derive(Debug)]
pub(super) struct StoredBucket {
    pub(super) cell: Cell,
    words: Option<RingMemory>,
    /// The unsettled units and the start of their count, if the bucket counts them.
    pub(super) unsettled: Option<(u64, Timestamp)>,
    /// The [rate](Algorithm::cell_rate) of another quota, under which it was written.
    pub(super) rate: Option<u32>,
}

impl StoredBucket {
    const fn of(cell: Cell) -> Self {
        Self {
            cell,
            words: None,
            unsettled: None,
            rate: None,
        }
    }

    pub(super) fn state(&self, cell: Cell) -> BucketState<'_> {
        BucketState {
            cell,
            words: self.words.as_ref(),
        }
    }

    /// Reads the state in a script's reply.
    pub(super) fn from_reply(algorithm: &Algorithm, state: &[u8]) -> Option<Self> {
        match algorithm {
            Algorithm::Concurrency(_) => {
                let [units] = numbers(state)?;
                let units = u32::try_from(units).unwrap_or(u32::MAX);
                Some(Self::of(Concurrency::cell(units, 0)))
            }
            Algorithm::SlidingCounters(_) | Algorithm::SlidingLog(_) if state.is_empty() => {
                Some(Self::of(Cell::EMPTY))
            }
            Algorithm::SlidingCounters(_) => Self::counters(algorithm, state),
            Algorithm::SlidingLog(_) => {
                let [expires, units, first, last, tick, _] = numbers(state)?;
                let known = [(0, first), (last, tick)];
                Self::log(algorithm, expires, units, &known)
            }
            _ => Self::cell(algorithm, state),
        }
    }

    /// Reads a stored value, which machines with another quota may have written.
    fn from_value(algorithm: &Algorithm, value: &[u8]) -> Option<Self> {
        let Algorithm::SlidingLog(_) = algorithm else {
            return Self::from_reply(algorithm, value);
        };
        let (head, ticks) = value.split_at_checked(LOG_HEAD)?;
        let [expires, units, gone] = numbers(head)?;
        // A log of a larger limit: the newest units count.
        let counting = units.min(algorithm.limit());
        let gone = gone.checked_add(units - counting)?;
        let ticks = words_in(ticks).skip(usize::try_from(gone).ok()?);
        let known: Vec<_> = (0..).zip(ticks.map(u64::from)).collect();
        let is_whole = known.len() as u64 == counting;
        is_whole.then(|| Self::log(algorithm, expires, counting, &known))?
    }

    /// A cell, which may follow its rate.
    fn cell(algorithm: &Algorithm, value: &[u8]) -> Option<Self> {
        let bar = value.iter().position(|byte| *byte == b'|');
        let (rate, state) = bar.map_or((None, value), |bar| {
            (parsed::<u32>(&value[..bar]).ok(), &value[bar + 1..])
        });
        let (expires, a, b, unsettled) = match numbers(state) {
            Some([expires, a, b]) => (expires, a, b, None),
            None => {
                let [expires, a, b, units, since] = numbers(state)?;
                let since = Timestamp::from_micros(since);
                (expires, a, b, Some((units, since)))
            }
        };
        let cell = match algorithm {
            Algorithm::FixedWindow(_) => FixedWindow::cell(expires, a, b),
            _ => Cell {
                expires,
                a: a.try_into().ok()?,
                b: b.try_into().ok()?,
            },
        };
        Some(Self {
            unsettled,
            rate: rate.filter(|rate| *rate > 0 && Some(*rate) != algorithm.cell_rate()),
            ..Self::of(cell)
        })
    }

    fn counters(algorithm: &Algorithm, state: &[u8]) -> Option<Self> {
        let (head, slots) = state.split_at_checked(COUNTERS_HEAD)?;
        let [expires, sum] = numbers(head)?;
        let Algorithm::SlidingCounters(counters) = algorithm else {
            return None;
        };
        let slots_in_all = counters.parts().0 + 1;
        let slots = (0..slots_in_all).zip(words_in(slots));
        let (words, root) = RingMemory::with_ring(
            algorithm.clone().with_wide_counters().shape()?,
            slots_in_all,
            slots.filter(|(_, count)| *count > 0),
        );
        let cell = Cell {
            expires,
            a: root,
            b: sum.try_into().ok()?,
        };
        Some(Self {
            words: Some(words),
            ..Self::of(cell)
        })
    }

    fn log(algorithm: &Algorithm, expires: u64, units: u64, known: &[(u64, u64)]) -> Option<Self> {
        let units = u32::try_from(units)
            .ok()
            .filter(|units| u64::from(*units) <= algorithm.limit())?;
        let slot = |(place, tick): &(u64, u64)| {
            let place = u32::try_from(*place).ok().filter(|place| *place < units)?;
            Some((place, u32::try_from(*tick).ok()?))
        };
        let known = known.iter().map(slot).collect::<Option<Vec<_>>>()?;
        let (words, root) = RingMemory::with_ring(algorithm.shape()?, units, known);
        let cell = Cell {
            expires,
            a: root,
            b: units,
        };
        Some(Self {
            words: Some(words),
            ..Self::of(cell)
        })
    }
}

/// Bytes of a state before its counters.
const COUNTERS_HEAD: usize = 28;
/// Bytes of a state before its ticks.
const LOG_HEAD: usize = 39;

/// The numbers of a cell's state. A window has its count and its seconds apart.
pub(super) fn cell_numbers(algorithm: &Algorithm, cell: Cell) -> [u64; 3] {
    let (a, b) = match algorithm {
        Algorithm::FixedWindow(_) => (FixedWindow::units(cell), FixedWindow::seconds(cell)),
        _ => (cell.a.into(), cell.b.into()),
    };
    [cell.expires, a, b]
}

/// The cell of granted units with this stored value. `None` if it cannot be read.
pub(in crate::store) fn read_grant(value: &[u8]) -> Option<Cell> {
    StoredBucket::cell(&Algorithm::Grant(Grant), value).map(|bucket| bucket.cell)
}

/// The facts of the bucket with this stored value at `now`; `value` is empty without one. `None` if
/// it cannot be read.
pub(in crate::store) fn read_bucket(
    algorithm: &Algorithm,
    key: Fingerprint,
    value: &[u8],
    probe: Probe,
    now: Timestamp,
) -> Option<BucketFacts> {
    let bucket = match value {
        [] => StoredBucket::of(Cell::EMPTY),
        value => StoredBucket::from_value(algorithm, value)?,
    };
    let cell = algorithm.open(bucket.cell, key, probe.window_end, now);
    let facts =
        |algorithm: &Algorithm, cell| algorithm.facts(bucket.state(cell), probe.demand, now);
    let Some(rate) = bucket.rate else {
        return Some(facts(algorithm, cell));
    };
    let converted = algorithm.convert_rate(cell, rate, now);
    Some(match algorithm.with_rate(rate) {
        // Until it's charged, it recovers at that rate.
        Some(recovering) => BucketFacts {
            view: algorithm.view(converted, now),
            ..facts(&recovering, cell)
        },
        None => facts(algorithm, converted),
    })
}

fn words_in(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let words = bytes.as_chunks::<4>().0;
    words.iter().map(|word| u32::from_be_bytes(*word))
}

/// Reads exactly `N` decimal numbers.
fn numbers<const N: usize>(text: &[u8]) -> Option<[u64; N]> {
    let words = text.trim_ascii_end().split(|byte| *byte == b' ');
    let mut all = words.map(|word| parsed(word).ok());
    let mut found = [0; N];
    for one in &mut found {
        *one = all.next()??;
    }
    all.next().is_none().then_some(found)
}
