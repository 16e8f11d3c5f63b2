//! Counts of keys over the last minutes, in slices of 10 s, and the highest of a window.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use traffic::{KeyCount, TopKeys};

use super::KeyRecord;
use crate::clock::Timestamp;
use crate::limiter::Fingerprint;

/// The length of a slice.
const SLICE: Duration = Duration::from_secs(10);
/// The longest window.
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// The most keys that are kept of an earlier slice.
const KEPT: usize = 256;

/// The number by which keys are ordered.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr, ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Measure {
    /// Refused requests
    Limited,
    /// All requests
    Busiest,
    /// Units that admitted requests charged
    Units,
}

/// The time before now that is looked at.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr, ValueEnum,
)]
pub enum Window {
    /// One minute
    #[serde(rename = "1m")]
    #[strum(serialize = "1m")]
    #[value(name = "1m")]
    Minute,
    /// Five minutes
    #[serde(rename = "5m")]
    #[strum(serialize = "5m")]
    #[value(name = "5m")]
    FiveMinutes,
    /// Fifteen minutes
    #[serde(rename = "15m")]
    #[strum(serialize = "15m")]
    #[value(name = "15m")]
    QuarterHour,
}

impl Window {
    /// Returns the length of the window.
    pub const fn length(self) -> Duration {
        match self {
            Self::Minute => Duration::from_secs(60),
            Self::FiveMinutes => Duration::from_secs(5 * 60),
            Self::QuarterHour => LONGEST,
        }
    }
}

/// The keys with the highest counts.
#[derive(Debug)]
pub struct Top {
    /// The time over which they were counted: up to 10 s more than the window, or less if counting
    /// began later.
    pub counted: Duration,
    /// The rows, the highest count first.
    pub rows: Vec<TopRow>,
}

/// A key, and its counts.
#[derive(Clone, Debug)]
pub struct TopRow {
    /// The key.
    pub record: KeyRecord,
    /// Its counts.
    pub counts: KeyCounts,
}

/// The counts of a key. Those beside the one that orders the keys are null if they are unknown, or were
/// not counted over the same time.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct KeyCounts {
    /// Refused requests. Null if unknown.
    pub limited: Option<u64>,
    /// Requests that met the policy. Null if unknown, or not counted for as long as the refusals.
    pub requests: Option<u64>,
    /// Units that requests charged as they were admitted. Null if unknown, or not counted for as long
    /// as the refusals.
    pub units: Option<u64>,
    /// By how much the count that orders the keys may be wrong, in both directions.
    pub error_bound: u64,
    /// The time since the first refusal, to 10 s, of those with less than 15 minutes between them. Null
    /// without one.
    #[serde(default)]
    pub first_s: Option<f64>,
}

/// Refused requests of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Refusals {
    /// Their number.
    pub requests: u64,
    /// By how much the number may be wrong, in both directions: a flood of keys makes it uncertain.
    pub error_bound: u64,
    /// The time over which they were counted.
    pub counted_s: f64,
    /// The time since the first refusal, to 10 s, of those with less than 15 minutes between them. Null
    /// without one.
    #[serde(default)]
    pub first_s: Option<f64>,
    /// The time since the last of these, to 10 s.
    #[serde(default)]
    pub last_s: Option<f64>,
}

/// The ids of keys in sketches, each with the instants of the first and the last refusal, in microseconds.
pub type RefusedKeys = Vec<(u64, u64, u64)>;

/// Sketches of one worker until the next collection, by [`Measure`].
pub(super) type Sketches = [TopKeys<KeyRecord>; 3];

/// Counts of all workers over the longest window.
#[derive(Debug)]
pub(super) struct Windows {
    /// By [`Measure`].
    series: [Series; 3],
    /// The first and the last slice in which a key was refused, without a pause of the longest window: the
    /// begin of the first, and the end of the last.
    refused: HashMap<Fingerprint, (Timestamp, Timestamp)>,
    /// Empty sketches, to exchange for those of a worker.
    spare: Sketches,
    /// The begin of the present slice.
    slice_began: Timestamp,
    /// The begin of counting refusals.
    began: Timestamp,
    /// The begin of counting requests and units.
    watch_began: Timestamp,
    /// The end of counting requests and units.
    watch_ends: Timestamp,
}

/// Counts of one measure.
#[derive(Debug, Default)]
struct Series {
    slices: VecDeque<Slice>,
    present: TopKeys<KeyRecord>,
    /// By how much a count of the present slice may be too low.
    missed: u64,
}

/// Counts of an earlier slice.
#[derive(Debug)]
struct Slice {
    began: Timestamp,
    ended: Timestamp,
    counts: Box<[(Fingerprint, Count)]>,
    /// By how much a count may be too low, and the most of a key that is not here.
    missed: u64,
}

/// A count of one key.
type Count = KeyCount<KeyRecord>;

impl Windows {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            series: Default::default(),
            refused: HashMap::new(),
            spare: Sketches::default(),
            slice_began: now,
            began: now,
            watch_began: now,
            watch_ends: now,
        }
    }

    /// Counts requests and units until an instant; anew unless they are counted at `now`.
    pub(super) fn watch(&mut self, now: Timestamp, until: Timestamp) {
        if self.watch_ends <= now {
            // All measures have the same slices, so that their counts can be compared.
            self.end_slice(now);
            let [_limited, watched @ ..] = &mut self.series;
            watched.fill_with(Series::default);
            self.watch_began = now;
        }
        self.watch_ends = until;
    }

    /// Ends the present slice if it is over, and forgets slices that are older than all windows.
    pub(super) fn advance(&mut self, now: Timestamp) {
        if now.since(self.slice_began) >= SLICE {
            self.end_slice(now);
        }
    }

    fn end_slice(&mut self, now: Timestamp) {
        for series in &mut self.series {
            series.end_slice(self.slice_began, now);
        }
        let limited = self.series[Measure::Limited as usize].slices.back();
        let limited = limited.filter(|slice| slice.ended == now).into_iter();
        for (id, _) in limited.flat_map(|slice| &slice.counts) {
            let refused = self.refused.entry(*id);
            refused.or_insert((self.slice_began, now)).1 = now;
        }
        let oldest = now.saturating_sub(LONGEST);
        self.refused.retain(|_, (_, last)| *last > oldest);
        self.slice_began = now;
    }

    /// The record of a key that was counted.
    pub(super) fn record_of(&self, id: Fingerprint) -> Option<KeyRecord> {
        let found = self.series.iter().find_map(|series| {
            let present = series.present.find(id).map(|entry| &entry.counted);
            let mut earlier = series.slices.iter().flat_map(|slice| &slice.counts);
            present.or_else(|| earlier.find_map(|(key, count)| (*key == id).then_some(count)))
        });
        found.map(|count| count.value.clone())
    }

    pub(super) fn refused_keys(&mut self, now: Timestamp) -> RefusedKeys {
        self.end_slice(now);
        let refused = self.refused.iter();
        let refused =
            refused.map(|(id, (first, last))| (id.bits(), first.as_micros(), last.as_micros()));
        refused.collect()
    }

    pub(super) fn begin_with(&mut self, refused: RefusedKeys) {
        let refused = refused.into_iter().map(|(id, first, last)| {
            let instants = (Timestamp::from_micros(first), Timestamp::from_micros(last));
            (Fingerprint::from_bits(id), instants)
        });
        self.refused.extend(refused);
    }

    /// The seconds since the first and since the last refusal of a key.
    fn refused_since(&self, id: Fingerprint, now: Timestamp) -> (Option<f64>, Option<f64>) {
        let present = self.series[Measure::Limited as usize].present.find(id);
        let present = present.map(|_| (self.slice_began, now));
        let earlier = self.refused.get(&id).copied();
        let first = earlier.or(present).map(|(first, _)| first);
        let last = present.or(earlier).map(|(_, last)| last);
        let seconds = |at: Option<Timestamp>| at.map(|at| now.since(at).as_secs_f64());
        (seconds(first), seconds(last))
    }

    /// Exchanges the sketches of a worker for empty ones, unless they are empty.
    pub(super) fn exchange(&mut self, sketches: &mut Sketches) {
        if !sketches.iter().all(TopKeys::is_empty) {
            std::mem::swap(sketches, &mut self.spare);
        }
    }

    /// Adds the exchanged sketches.
    pub(super) fn add_exchanged(&mut self) {
        for (series, sketch) in self.series.iter_mut().zip(&mut self.spare) {
            series.add(sketch);
            sketch.clear();
        }
    }

    /// The refused requests of each key over the last five minutes.
    pub(super) fn refusals_of(
        &self,
        ids: impl Iterator<Item = Fingerprint>,
        now: Timestamp,
    ) -> Vec<Refusals> {
        let since = now.saturating_sub(Window::FiveMinutes.length());
        let series = &self.series[Measure::Limited as usize];
        let counts = series.counts(since.max(self.began));
        let refusals = ids.map(|id| {
            let found = counts.by_key.get(&id);
            let excess = found.map_or(0, |count| count.excess);
            let (first_s, last_s) = self.refused_since(id, now);
            Refusals {
                requests: found.map_or(0, |count| count.count),
                error_bound: excess.saturating_add(counts.missed),
                counted_s: now.since(counts.began).as_secs_f64(),
                first_s,
                last_s,
            }
        });
        refusals.collect()
    }

    pub(super) fn top(
        &self,
        by: Measure,
        window: Window,
        policy: Option<u64>,
        most: usize,
        now: Timestamp,
    ) -> Top {
        let counting_began = match by {
            Measure::Limited => self.began,
            Measure::Busiest | Measure::Units => self.watch_began,
        };
        let since = now.saturating_sub(window.length()).max(counting_began);
        let counts = self.series.each_ref().map(|series| series.counts(since));
        let ordering = &counts[by as usize];
        let [limited, busiest, units] = &counts;
        let is_watched = self.watch_began <= ordering.began && now < self.watch_ends;
        let is_wanted = |count: &Count| policy.is_none_or(|policy| count.value.policy == policy);
        let mut rows: Vec<_> = ordering
            .by_key
            .iter()
            .filter(|(_, count)| is_wanted(count))
            .collect();
        rows.sort_unstable_by_key(|(id, count)| (Reverse(count.count), id.bits()));
        let rows = rows.into_iter().take(most).map(|(id, count)| {
            let (limited, requests) = (limited.of(*id), busiest.of(*id));
            let requests = requests.filter(|_| is_watched);
            // A sketch that lost the key would show fewer requests than refusals.
            let is_lost = limited
                .zip(requests)
                .is_some_and(|(limited, requests)| requests < limited);
            TopRow {
                record: count.value.clone(),
                counts: KeyCounts {
                    limited: limited.filter(|_| by == Measure::Limited || !is_lost),
                    requests: requests.filter(|_| by == Measure::Busiest || !is_lost),
                    units: units.of(*id).filter(|_| is_watched),
                    error_bound: count.excess.saturating_add(ordering.missed),
                    first_s: self.refused_since(*id, now).0,
                },
            }
        });
        Top {
            counted: now.since(ordering.began),
            rows: rows.collect(),
        }
    }
}

/// Sums of counts over a window.
struct WindowSums {
    by_key: HashMap<Fingerprint, Count>,
    missed: u64,
    /// The begin of the oldest slice, or of the window.
    began: Timestamp,
}

impl WindowSums {
    fn of(&self, id: Fingerprint) -> Option<u64> {
        self.by_key.get(&id).map(|count| count.count)
    }

    fn add(&mut self, id: Fingerprint, added: Count) {
        let count = self.by_key.entry(id);
        count.and_modify(|count| count.add(&added)).or_insert(added);
    }
}

impl Series {
    fn add(&mut self, sketch: &TopKeys<KeyRecord>) {
        self.present.merge(sketch);
        // A key that the sketch does not follow may have so many hits.
        self.missed = self.missed.saturating_add(sketch.floor());
    }

    fn end_slice(&mut self, began: Timestamp, ended: Timestamp) {
        if !self.present.is_empty() {
            let most = self.present.most(KEPT + 1);
            let left_out = most.get(KEPT).map_or(0, |entry| entry.counted.count);
            let most = most.into_iter().take(KEPT);
            let counts = most.map(|entry| (entry.key, entry.counted.clone()));
            self.slices.push_back(Slice {
                began,
                ended,
                counts: counts.collect(),
                missed: self.missed.saturating_add(left_out),
            });
            self.present.clear();
            self.missed = 0;
        }
        let oldest = ended.saturating_sub(LONGEST);
        while self
            .slices
            .front()
            .is_some_and(|slice| slice.ended <= oldest)
        {
            self.slices.pop_front();
        }
    }

    /// The counts since an instant, whole slices at a time.
    fn counts(&self, since: Timestamp) -> WindowSums {
        let mut counts = WindowSums {
            by_key: HashMap::new(),
            missed: self.missed,
            began: since,
        };
        for entry in self.present.entries() {
            counts.add(entry.key, entry.counted.clone());
        }
        for slice in self.slices.iter().filter(|slice| slice.ended > since) {
            counts.missed = counts.missed.saturating_add(slice.missed);
            counts.began = counts.began.min(slice.began);
            for (id, count) in &slice.counts {
                counts.add(*id, count.clone());
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn second(second: u64) -> Timestamp {
        Timestamp::from_micros((1_000_000 + second) * 1_000_000)
    }

    fn id(bits: u64) -> Fingerprint {
        Fingerprint::from_bits(bits)
    }

    /// Refusals of one worker, and what it counted.
    fn refuse(windows: &mut Windows, at: u64, keys: impl IntoIterator<Item = u64>) {
        windows.advance(second(at));
        let mut counted = Sketches::default();
        for key in keys {
            counted[Measure::Limited as usize].hit(id(key), 1, || KeyRecord {
                policy: key % 2,
                key: id(key),
                texts: None,
            });
        }
        windows.exchange(&mut counted);
        windows.add_exchanged();
    }

    fn top(windows: &Windows, window: Window, policy: Option<u64>, at: u64) -> Vec<(u64, u64)> {
        let top = windows.top(Measure::Limited, window, policy, 3, second(at));
        let rows = top.rows.iter();
        rows.map(|row| {
            (
                row.record.key.bits(),
                row.counts.limited.unwrap_or_default(),
            )
        })
        .collect()
    }

    #[test]
    fn a_window_forgets_what_is_older() {
        let mut windows = Windows::new(second(0));
        refuse(&mut windows, 1, [2, 2, 2, 3]);
        refuse(&mut windows, 11, []);
        refuse(&mut windows, 100, [3, 3]);
        assert_eq!(top(&windows, Window::Minute, None, 100), [(3, 2)]);
        assert_eq!(
            top(&windows, Window::FiveMinutes, None, 100),
            [(2, 3), (3, 3)]
        );
        assert_eq!(top(&windows, Window::FiveMinutes, Some(1), 100), [(3, 3)]);
        refuse(&mut windows, 110, []);
        refuse(&mut windows, 1_100, []);
        assert_eq!(top(&windows, Window::QuarterHour, None, 1_100), []);
        assert!(windows.series[0].slices.is_empty());
    }

    fn refusals_of(windows: &Windows, key: u64, at: u64) -> Refusals {
        windows
            .refusals_of(std::iter::once(id(key)), second(at))
            .remove(0)
    }

    #[test]
    fn the_refusals_of_one_key_are_those_of_the_last_minutes() {
        let mut windows = Windows::new(second(0));
        refuse(&mut windows, 1, [2, 2, 2, 3]);
        refuse(&mut windows, 11, []);
        refuse(&mut windows, 100, [3, 3]);
        let of = refusals_of;
        let exact = |requests, first_s, last_s| Refusals {
            requests,
            error_bound: 0,
            counted_s: 110.0,
            first_s,
            last_s,
        };
        assert_eq!(of(&windows, 2, 110), exact(3, Some(110.0), Some(99.0)));
        assert_eq!(of(&windows, 3, 110), exact(3, Some(110.0), Some(0.0)));
        assert_eq!(of(&windows, 4, 110), exact(0, None, None));
        refuse(&mut windows, 395, []);
        assert_eq!(of(&windows, 2, 395).requests, 0, "it is too long ago");
        assert_eq!(of(&windows, 2, 395).first_s, Some(395.0));
        assert_eq!(of(&windows, 3, 395).requests, 2);
        refuse(&mut windows, 400, [5]);
        assert_eq!(of(&windows, 5, 403).first_s, Some(8.0), "the slice began");
    }

    #[test]
    fn a_key_is_refused_since_the_first_refusal_without_a_long_pause() {
        let mut windows = Windows::new(second(0));
        for at in (0..7_200).step_by(600) {
            refuse(&mut windows, at, [2]);
            refuse(&mut windows, at + 10, []);
        }
        let since = |windows: &Windows, at| refusals_of(windows, 2, at).first_s;
        assert_eq!(since(&windows, 7_200), Some(7_200.0));
        let top = windows.top(
            Measure::Limited,
            Window::QuarterHour,
            None,
            1,
            second(7_200),
        );
        assert_eq!(top.rows[0].counts.first_s, Some(7_200.0));
        refuse(&mut windows, 7_500, [2]);
        assert_eq!(since(&windows, 7_500), Some(7_500.0));
        refuse(&mut windows, 7_510, []);
        refuse(&mut windows, 8_410, [2]);
        assert_eq!(since(&windows, 8_415), Some(5.0), "after a long pause");
        assert_eq!(refusals_of(&windows, 2, 8_415).last_s, Some(0.0));
        refuse(&mut windows, 8_420, []);
        assert_eq!(refusals_of(&windows, 2, 8_450).last_s, Some(30.0));
        refuse(&mut windows, 9_320, []);
        assert!(windows.refused.is_empty());
    }

    #[test]
    fn a_flood_is_bounded_and_the_error_says_how_wrong_counts_may_be() {
        let mut windows = Windows::new(second(0));
        for at in 0..60 {
            let flood = (0..5_000).map(|number| 10_000 + at * 5_000 + number);
            let mixed = flood.flat_map(|key| [key, 2 + key % 2]);
            refuse(&mut windows, at, mixed);
        }
        let top = windows.top(Measure::Limited, Window::Minute, None, 2, second(60));
        for row in &top.rows {
            assert!([2, 3].contains(&row.record.key.bits()), "{row:?}");
            let exact = 60 * 2_500;
            let count = row.counts.limited.expect("it orders the rows");
            assert!(count.abs_diff(exact) <= row.counts.error_bound, "{row:?}");
            assert!(row.counts.error_bound < exact, "{row:?}");
        }
        let slices = windows.series[0].slices.iter();
        assert!(
            slices
                .map(|slice| slice.counts.len())
                .all(|len| len <= KEPT)
        );
    }

    #[test]
    fn counting_requests_begins_with_the_first_question() {
        let mut windows = Windows::new(second(0));
        windows.watch(second(500), second(560));
        let counted = |by, at| windows.top(by, Window::Minute, None, 1, second(at)).counted;
        assert_eq!(counted(Measure::Busiest, 507), Duration::from_secs(7));
        assert!(counted(Measure::Limited, 507) >= Duration::from_secs(60));
        assert_eq!(counted(Measure::Limited, 20), Duration::from_secs(20));
    }

    /// Requests of one key, of which some are refused.
    fn request(windows: &mut Windows, at: u64, requests: u64, refused: u64) {
        windows.advance(second(at));
        let mut counted = Sketches::default();
        let record = || KeyRecord {
            policy: 1,
            key: id(1),
            texts: None,
        };
        counted[Measure::Limited as usize].hit(id(1), refused, record);
        counted[Measure::Busiest as usize].hit(id(1), requests, record);
        counted[Measure::Units as usize].hit(id(1), requests - refused, record);
        windows.exchange(&mut counted);
        windows.add_exchanged();
    }

    #[test]
    fn counts_beside_one_another_are_of_the_same_time() {
        let mut windows = Windows::new(second(0));
        refuse(&mut windows, 1, [1; 9]);
        windows.watch(second(5), second(65));
        request(&mut windows, 6, 4, 2);
        let counts = |windows: &Windows, by, at| {
            let top = windows.top(by, Window::Minute, None, 1, second(at));
            let row = &top.rows[0];
            (row.counts.limited, row.counts.requests, row.counts.units)
        };
        // Refusals from before the first question have no requests beside them.
        let limited = counts(&windows, Measure::Limited, 7);
        assert_eq!(limited, (Some(11), None, None));
        let busiest = counts(&windows, Measure::Busiest, 7);
        assert_eq!(busiest, (Some(2), Some(4), Some(2)));
        // Once these have left the window, all is known, until counting ends.
        windows.watch(second(64), second(124));
        request(&mut windows, 64, 8, 3);
        let limited = counts(&windows, Measure::Limited, 70);
        assert_eq!(limited, (Some(5), Some(12), Some(7)));
        let limited = counts(&windows, Measure::Limited, 124);
        assert_eq!(limited, (Some(3), None, None));
    }
}
