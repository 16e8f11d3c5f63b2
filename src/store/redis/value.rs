//! Stored values: the recipe of an algorithm, and the state of a bucket under it.
//! `script/buckets.lua` and the algorithms' files beside it document the layout.

use crate::clock::Timestamp;
use crate::limiter::{
    Algorithm, BucketFacts, BucketState, Cell, Concurrency, Fingerprint, RingMemory,
};
use crate::store::Probe;

/// A bucket read from Redis. Of a ring it has all slots, or those that a decision reads.
#[derive(Debug)]
pub(super) struct StoredBucket {
    pub(super) cell: Cell,
    words: Option<RingMemory>,
    /// The unsettled units and the start of their count, if the bucket counts them.
    pub(super) unsettled: Option<(u64, Timestamp)>,
}

impl StoredBucket {
    const fn of(cell: Cell) -> Self {
        Self {
            cell,
            words: None,
            unsettled: None,
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
            _ => Self::cell(state),
        }
    }

    /// Reads the state in a stored value.
    fn from_value(algorithm: &Algorithm, state: &[u8]) -> Option<Self> {
        let Algorithm::SlidingLog(_) = algorithm else {
            return Self::from_reply(algorithm, state);
        };
        let (head, ticks) = state.split_at_checked(LOG_HEAD)?;
        let [expires, units, gone] = numbers(head)?;
        // A log of a larger limit: the newest units count.
        let counting = units.min(algorithm.limit().into());
        let gone = gone.checked_add(units - counting)?;
        let ticks = words_in(ticks).skip(usize::try_from(gone).ok()?);
        let known: Vec<_> = (0..).zip(ticks.map(u64::from)).collect();
        let is_whole = known.len() as u64 == counting;
        is_whole.then(|| Self::log(algorithm, expires, counting, &known))?
    }

    fn cell(state: &[u8]) -> Option<Self> {
        let (expires, a, b, unsettled) = match numbers(state) {
            Some([expires, a, b]) => (expires, a, b, None),
            None => {
                let [expires, a, b, units, since] = numbers(state)?;
                let since = Timestamp::from_micros(since);
                (expires, a, b, Some((units, since)))
            }
        };
        let (a, b) = (a.try_into().ok()?, b.try_into().ok()?);
        Some(Self {
            unsettled,
            ..Self::of(Cell { expires, a, b })
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
            cell,
            words: Some(words),
            unsettled: None,
        })
    }

    fn log(algorithm: &Algorithm, expires: u64, units: u64, known: &[(u64, u64)]) -> Option<Self> {
        let units = u32::try_from(units)
            .ok()
            .filter(|units| *units <= algorithm.limit())?;
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
            cell,
            words: Some(words),
            unsettled: None,
        })
    }
}

/// Bytes of a state before its counters.
const COUNTERS_HEAD: usize = 28;
/// Bytes of a state before its ticks.
const LOG_HEAD: usize = 39;

/// Writes the recipe that begins a stored value; nothing for algorithms without values.
pub(super) fn write_recipe(value: &mut Vec<u8>, algorithm: &Algorithm) {
    let Some(numbers) = algorithm.encode() else {
        return;
    };
    for (number, after) in numbers.into_iter().zip(*b"....|") {
        value.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        value.push(after);
    }
}

/// The algorithm of a recipe, which is enough to read and convert its states. `None` if there is no
/// such.
pub(super) fn read_recipe(recipe: &[u8]) -> Option<Algorithm> {
    Algorithm::decode(numbers_between(recipe, b'.')?)
}

/// The text of a cell's state.
pub(super) fn cell_text(cell: Cell) -> String {
    format!("{} {} {}", cell.expires, cell.a, cell.b)
}

/// A value of another recipe, converted.
#[derive(Debug)]
pub(super) struct Converted {
    /// Empty if the bucket is full.
    pub(super) value: Vec<u8>,
    /// True if the algorithm has no room for all used units, so that the other recipe would find
    /// fewer afterwards.
    pub(super) loses_units: bool,
    /// The units that it has left at present; all of them if nothing was converted.
    pub(super) left: u32,
}

/// Converts a value of another recipe to this algorithm as of `now`; `present` is not before. `None` if
/// the value cannot be read.
pub(super) fn convert(
    algorithm: &Algorithm,
    value: &[u8],
    (now, present): (Timestamp, Timestamp),
) -> Option<Converted> {
    let bar = value.iter().position(|byte| *byte == b'|')?;
    let (recipe_of_other, state) = (&value[..bar], &value[bar + 1..]);
    let from = read_recipe(recipe_of_other)?;
    let bucket = StoredBucket::from_value(&from, state)?;
    let mut value = Vec::new();
    if algorithm.has_same_ring_format(&from) && bucket.cell.is_live(now) {
        write_recipe(&mut value, algorithm);
        value.extend_from_slice(state);
        return Some(Converted {
            value,
            loses_units: false,
            left: u32::MAX,
        });
    }
    let used = from.capacity() - from.decide(bucket.state(bucket.cell), now, 0).remaining;
    let has_no_place = algorithm.shape().is_some() || algorithm.capacity() == 0;
    let loses_units = has_no_place && used > algorithm.capacity();
    let carried = algorithm.convert(&from, bucket.state(bucket.cell), now);
    let words = algorithm
        .shape()
        .map(|shape| RingMemory::new(shape, shape.max_chunks()));
    let cell = carried_in(carried, words.as_ref());
    let carried = BucketState {
        cell,
        words: words.as_ref(),
    };
    let left = algorithm.decide(carried, present, 0).remaining;
    if cell.is_live(now) {
        write_recipe(&mut value, algorithm);
        write_state(&mut value, algorithm, cell, words.as_ref());
        if let (None, Some((units, since))) = (words, bucket.unsettled) {
            value.extend(format!(" {units} {}", since.as_micros()).into_bytes());
        }
    }
    Some(Converted {
        value,
        loses_units,
        left,
    })
}

/// The cell of granted units with this stored value. `None` if it cannot be read.
pub(in crate::store) fn read_grant(value: &[u8]) -> Option<Cell> {
    StoredBucket::cell(value).map(|bucket| bucket.cell)
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
    let mut recipe = Vec::new();
    write_recipe(&mut recipe, algorithm);
    let converted;
    let state = match value.strip_prefix(&*recipe) {
        Some(state) => state,
        None if value.is_empty() => &[],
        None => {
            converted = convert(algorithm, value, (now, now))?.value;
            converted.strip_prefix(&*recipe).unwrap_or_default()
        }
    };
    let bucket = match state {
        [] => StoredBucket::of(Cell::EMPTY),
        state => StoredBucket::from_value(algorithm, state)?,
    };
    let cell = algorithm.open_until(bucket.cell, key, probe.window_end, now);
    Some(algorithm.facts(bucket.state(cell), probe.demand, now))
}

fn carried_in(carried: crate::limiter::RingConversion<'_>, words: Option<&RingMemory>) -> Cell {
    let mut chunks = 1..=carried.chunks();
    carried.write(words, &mut chunks)
}

fn write_state(value: &mut Vec<u8>, algorithm: &Algorithm, cell: Cell, words: Option<&RingMemory>) {
    let Cell { expires, a, b } = cell;
    let slots = match (algorithm, words) {
        (Algorithm::SlidingCounters(counters), Some(words)) => {
            value.extend(format!("{expires:016} {b:010} ").into_bytes());
            let ring = words.ring(a);
            (0..=counters.parts().0)
                .map(|slot| ring.get(slot))
                .collect()
        }
        (Algorithm::SlidingLog(_), Some(words)) => {
            value.extend(format!("{expires:016} {b:010} {:010} ", 0).into_bytes());
            let ring = words.ring(a);
            let place = |unit| (ring.head() + unit) % ring.capacity();
            (0..b).map(|unit| ring.get(place(unit))).collect()
        }
        _ => {
            value.extend(cell_text(cell).into_bytes());
            Vec::new()
        }
    };
    value.extend(slots.into_iter().flat_map(u32::to_be_bytes));
}

fn words_in(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let words = bytes.as_chunks::<4>().0;
    words.iter().map(|word| u32::from_be_bytes(*word))
}

/// Reads exactly `N` decimal numbers.
fn numbers<const N: usize>(text: &[u8]) -> Option<[u64; N]> {
    numbers_between(text.trim_ascii_end(), b' ')
}

fn numbers_between<const N: usize>(text: &[u8], between: u8) -> Option<[u64; N]> {
    let mut all = text.split(|byte| *byte == between).map(number);
    let mut found = [0; N];
    for one in &mut found {
        *one = all.next()??;
    }
    all.next().is_none().then_some(found)
}

fn number(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok()
}
