//! Numbers that the registry renders as long as a handle to them lives.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use strum::{EnumMessage, VariantArray};

/// A count that only grows. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct Counter(pub(super) Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Returns the count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A closed set of values of a label, which `label_values!` declares.
pub trait LabelValue:
    Copy + EnumMessage + Into<&'static str> + VariantArray + Send + Sync + 'static
{
    /// A counter for each value.
    type Counts: AsRef<[AtomicU64]> + Default + Send + Sync;

    /// Returns the place of the value in [`VARIANTS`](VariantArray::VARIANTS).
    fn index(self) -> usize;
}

/// Counters that differ in their last label. Cheap to clone; clones count together.
#[derive(Clone)]
pub struct Counters<L: LabelValue>(pub(super) Arc<CounterSet<L>>);

/// A counter for each value of a label.
pub(super) struct CounterSet<L: LabelValue>(pub(super) L::Counts);

impl<L: LabelValue> Default for CounterSet<L> {
    fn default() -> Self {
        Self(L::Counts::default())
    }
}

impl<L: LabelValue> fmt::Debug for Counters<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counters").field(&self.0.0.as_ref()).finish()
    }
}

impl<L: LabelValue> Counters<L> {
    /// Counters that no scrape shows.
    pub fn unregistered() -> Self {
        Self(Arc::default())
    }

    fn counter(&self, label: L) -> &AtomicU64 {
        &self.0.0.as_ref()[label.index()]
    }

    /// Adds one to the counter of this label.
    pub fn record(&self, label: L) {
        self.add(label, 1);
    }

    /// Adds `n` to the counter of this label.
    pub fn add(&self, label: L, n: u64) {
        self.counter(label).fetch_add(n, Relaxed);
    }

    /// Returns the count of all labels so far.
    pub fn total(&self) -> u64 {
        let counters = self.0.0.as_ref().iter();
        counters.map(|counter| counter.load(Relaxed)).sum()
    }

    /// Returns the count of this label so far.
    pub fn count(&self, label: L) -> u64 {
        self.counter(label).load(Relaxed)
    }
}

/// A whole number that goes up and down. Cheap to clone; clones are one number.
#[derive(Clone, Debug)]
pub struct Gauge(pub(super) Arc<AtomicI64>);

impl Gauge {
    /// Replaces the number.
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    /// Adds `n`, which may be negative.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Adds `n` until the guard is dropped.
    #[must_use]
    pub fn hold(&self, n: u32) -> GaugeGuard {
        self.add(i64::from(n));
        GaugeGuard {
            gauge: self.clone(),
            part: i64::from(n),
        }
    }

    /// Adds one until the guard is dropped; `None` unless the number is below `most`.
    pub fn hold_below(&self, most: i64) -> Option<GaugeGuard> {
        let more = |number| (number < most).then_some(number + 1);
        let added = self.0.fetch_update(Relaxed, Relaxed, more);
        added.is_ok().then(|| GaugeGuard {
            gauge: self.clone(),
            part: 1,
        })
    }
}

/// A part of a gauge's number, which is taken off when this is dropped.
#[derive(Debug)]
pub struct GaugeGuard {
    gauge: Gauge,
    part: i64,
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.gauge.add(-self.part);
    }
}

/// Upper bounds of a histogram's buckets: nanoseconds, and the same in seconds as a label value.
pub const BOUNDS: [(u64, &str); 14] = [
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
];

#[derive(Debug, Default)]
pub(super) struct HistogramBuckets {
    /// Not cumulative; the last is above every bound.
    pub(super) counts: [AtomicU64; BOUNDS.len() + 1],
    pub(super) nanos: AtomicU64,
}

/// Durations counted in buckets. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct Histogram(pub(super) Arc<HistogramBuckets>);

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|&(bound, _)| bound < nanos);
        self.0.counts[bucket].fetch_add(1, Relaxed);
        self.0.nanos.fetch_add(nanos, Relaxed);
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> DurationCounts {
        let counts = &self.0.counts;
        DurationCounts(std::array::from_fn(|bucket| counts[bucket].load(Relaxed)))
    }
}

/// Counts of durations in the buckets of [`BOUNDS`]; the last is above every bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationCounts([u64; BOUNDS.len() + 1]);

impl DurationCounts {
    /// Returns the sum of both.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self(std::array::from_fn(|bucket| {
            self.0[bucket].saturating_add(other.0[bucket])
        }))
    }

    /// Returns the counts that came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|bucket| {
            self.0[bucket].saturating_sub(earlier.0[bucket])
        }))
    }

    /// Returns the duration that this share of all does not exceed, interpolated in its bucket;
    /// `None` without any. Durations above every bound count as the highest bound.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        let wanted = all as f64 * share.clamp(0.0, 1.0);
        let (mut below, mut lower) = (0, 0);
        for (&count, (upper, _)) in self.0.iter().zip(BOUNDS) {
            if count > 0 && (below + count) as f64 >= wanted {
                let part = ((wanted - below as f64) / count as f64).clamp(0.0, 1.0);
                let nanos = lower as f64 + part * (upper - lower) as f64;
                return Some(Duration::from_nanos(nanos as u64));
            }
            below += count;
            lower = upper;
        }
        (all > 0).then(|| Duration::from_nanos(lower))
    }
}

/// Keeps a series that is computed at each scrape; the series ends when this is dropped.
#[derive(Clone, derive_more::Debug)]
pub struct Observer {
    #[debug(skip)]
    pub(super) _function: Arc<ObservedFn>,
}

/// Computes the number of a series.
pub(super) struct ObservedFn(pub(super) Box<dyn Fn() -> f64 + Send + Sync>);
