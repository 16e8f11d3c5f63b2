//! Metric series and their rendering in Prometheus's text format, version 0.0.4.
//!
//! A series lives as long as a handle to it: when a reload drops the handles of a removed route,
//! its series leave the next scrape, and a route that stays finds its numbers again by name. That
//! is why series are kept here, and `metrics-exporter-prometheus` only writes them: its own
//! recorder drops series by idleness, and a handle that outlives its series counts into nothing.
//! The families are in [`metrics`](super::metrics).

mod handles;
mod render;

use std::{
    collections::BTreeMap,
    fmt,
    ops::Bound,
    sync::{
        Arc, Weak,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

pub use self::handles::{
    BOUNDS, Counter, CounterSet, DurationCounts, Gauge, GaugeGuard, Histogram, Observer,
};
use self::handles::{HistogramBuckets, ObservedFn};
use self::render::Zeros;

/// The content type of [`Registry::render`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Series that are looked up under one lock.
const BATCH: usize = 128;

/// The largest number of entries with which a [`Scale::Large`] family shows zeros. An entry is a
/// series, or a set of counters.
pub const MOST_ZEROS: usize = 1_000;

/// A metric's name, meaning and label names. All families are constants.
#[derive(Debug)]
pub struct Family {
    /// Full name, with prefix, unit and `_total`.
    pub name: &'static str,
    /// One line for `# HELP`.
    pub help: &'static str,
    /// The kind in `# TYPE`.
    pub kind: Kind,
    /// Label names, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// The number of series that a configuration may give it.
    pub scale: Scale,
}

/// The number of series that a configuration may give a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Few: all are rendered.
    Small,
    /// Several for each route or endpoint. With more than [`MOST_ZEROS`] entries, series that have
    /// not counted are not rendered.
    Large,
}

/// Names a value of a family's last label by its index.
pub type LabelValue = fn(usize) -> &'static str;

/// How a family's numbers behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations in the buckets of [`BOUNDS`].
    Histogram,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

enum Series {
    Counter(Weak<AtomicU64>),
    CounterSet(Weak<[AtomicU64]>, LabelValue),
    Gauge(Weak<AtomicI64>),
    Histogram(Weak<HistogramBuckets>),
    /// The last one alive is read: a snapshot that is compiled and then discarded hides no other.
    Observed(Vec<Weak<ObservedFn>>),
}

impl Series {
    fn is_alive(&self) -> bool {
        match self {
            Self::Counter(weak) => weak.strong_count() > 0,
            Self::CounterSet(weak, _) => weak.strong_count() > 0,
            Self::Gauge(weak) => weak.strong_count() > 0,
            Self::Histogram(weak) => weak.strong_count() > 0,
            Self::Observed(all) => all.iter().any(|weak| weak.strong_count() > 0),
        }
    }
}

/// The number of a series that is alive.
enum LiveSeries {
    Counter(Arc<AtomicU64>),
    CounterSet(Arc<[AtomicU64]>, LabelValue),
    Gauge(Arc<AtomicI64>),
    Histogram(Arc<HistogramBuckets>),
    Observed(Arc<ObservedFn>),
}

impl LiveSeries {
    /// Returns true for counters and histograms that have not counted yet.
    fn is_zero(&self) -> bool {
        match self {
            Self::Counter(count) => count.load(Relaxed) == 0,
            Self::CounterSet(counts, _) => counts.iter().all(|count| count.load(Relaxed) == 0),
            Self::Histogram(buckets) => buckets.counts.iter().all(|count| count.load(Relaxed) == 0),
            Self::Gauge(_) | Self::Observed(_) => false,
        }
    }
}

impl Series {
    fn upgrade(&self) -> Option<LiveSeries> {
        match self {
            Self::Counter(weak) => weak.upgrade().map(LiveSeries::Counter),
            Self::CounterSet(weak, value) => Some(LiveSeries::CounterSet(weak.upgrade()?, *value)),
            Self::Gauge(weak) => weak.upgrade().map(LiveSeries::Gauge),
            Self::Histogram(weak) => weak.upgrade().map(LiveSeries::Histogram),
            Self::Observed(all) => all
                .iter()
                .rev()
                .find_map(Weak::upgrade)
                .map(LiveSeries::Observed),
        }
    }
}

/// The values of a series' labels, in the order of its family's names.
type Labels = Arc<[Box<str>]>;

/// All series of one family, by their labels.
struct Table {
    family: &'static Family,
    series: BTreeMap<Labels, Series>,
    /// Dead series are swept when the table has grown to this.
    sweep_at: usize,
}

impl Table {
    fn new(family: &'static Family) -> Self {
        Self {
            family,
            series: BTreeMap::new(),
            sweep_at: 64,
        }
    }

    fn sweep(&mut self) {
        self.series.retain(|_, series| series.is_alive());
        self.sweep_at = (self.series.len() * 2).max(64);
    }

    /// More than [`MOST_ZEROS`] entries are alive.
    fn is_crowded(&self) -> bool {
        let is_candidate = self.series.len() > MOST_ZEROS;
        let alive = || self.series.values().filter(|series| series.is_alive());
        is_candidate && alive().nth(MOST_ZEROS).is_some()
    }

    /// The live ones of the next [`BATCH`] series after `last`, which is then the last of them;
    /// dead ones are removed. `None` behind the last series.
    fn batch(&mut self, last: &mut Option<Labels>) -> Option<Vec<(Labels, LiveSeries)>> {
        let start = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.series.range::<Labels, _>((start, Bound::Unbounded));
        let (mut live, mut dead, mut end) = (Vec::new(), Vec::new(), None);
        for (labels, series) in next.take(BATCH) {
            match series.upgrade() {
                Some(number) => live.push((Arc::clone(labels), number)),
                None => dead.push(Arc::clone(labels)),
            }
            end = Some(labels);
        }
        *last = Some(Arc::clone(end?));
        for labels in &dead {
            self.series.remove(labels);
        }
        Some(live)
    }
}

/// All families and their live series. Cheap to clone; clones are one registry.
#[derive(Clone, Default)]
pub struct Registry {
    tables: Arc<Mutex<BTreeMap<&'static str, Table>>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Registry {
    /// Returns the counter with these label values: the live one, or a new one at 0.
    pub fn counter(&self, family: &'static Family, labels: &[&str]) -> Counter {
        debug_assert_eq!(family.kind, Kind::Counter);
        debug_assert_eq!(family.labels.len(), labels.len());
        self.with_series(family, labels, |slot| {
            if let Some(Series::Counter(weak)) = slot
                && let Some(live) = weak.upgrade()
            {
                return Counter(live);
            }
            let new = Arc::default();
            *slot = Some(Series::Counter(Arc::downgrade(&new)));
            Counter(new)
        })
    }

    /// Returns the counters with these values of all labels but the last: the live ones, or new
    /// ones at 0. `value` names the last label of each of the `count` counters.
    pub fn counter_set(
        &self,
        family: &'static Family,
        labels: &[&str],
        count: usize,
        value: LabelValue,
    ) -> CounterSet {
        debug_assert_eq!(family.kind, Kind::Counter);
        debug_assert_eq!(family.labels.len(), labels.len() + 1);
        self.with_series(family, labels, |slot| {
            if let Some(Series::CounterSet(weak, _)) = slot
                && let Some(live) = weak.upgrade()
            {
                return CounterSet(live);
            }
            let new = CounterSet::unregistered(count);
            *slot = Some(Series::CounterSet(Arc::downgrade(&new.0), value));
            new
        })
    }

    /// Returns the gauge with these label values: the live one, or a new one at 0.
    pub fn gauge(&self, family: &'static Family, labels: &[&str]) -> Gauge {
        debug_assert_eq!(family.kind, Kind::Gauge);
        debug_assert_eq!(family.labels.len(), labels.len());
        self.with_series(family, labels, |slot| {
            if let Some(Series::Gauge(weak)) = slot
                && let Some(live) = weak.upgrade()
            {
                return Gauge(live);
            }
            let new = Arc::default();
            *slot = Some(Series::Gauge(Arc::downgrade(&new)));
            Gauge(new)
        })
    }

    /// Returns the histogram with these label values: the live one, or a new empty one.
    pub fn histogram(&self, family: &'static Family, labels: &[&str]) -> Histogram {
        debug_assert_eq!(family.kind, Kind::Histogram);
        debug_assert_eq!(family.labels.len(), labels.len());
        self.with_series(family, labels, |slot| {
            if let Some(Series::Histogram(weak)) = slot
                && let Some(live) = weak.upgrade()
            {
                return Histogram(live);
            }
            let new = Arc::default();
            *slot = Some(Series::Histogram(Arc::downgrade(&new)));
            Histogram(new)
        })
    }

    /// Adds a series whose number is computed at each scrape, for as long as the observer is kept.
    pub fn observe(
        &self,
        family: &'static Family,
        labels: &[&str],
        function: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Observer {
        debug_assert_ne!(family.kind, Kind::Histogram);
        debug_assert_eq!(family.labels.len(), labels.len());
        let function: Arc<ObservedFn> = Arc::new(function);
        self.with_series(family, labels, |slot| {
            let weak = Arc::downgrade(&function);
            match slot {
                Some(Series::Observed(all)) => {
                    all.retain(|weak| weak.strong_count() > 0);
                    all.push(weak);
                }
                _ => *slot = Some(Series::Observed(vec![weak])),
            }
        });
        Observer {
            _function: function,
        }
    }

    fn with_series<T>(
        &self,
        family: &'static Family,
        labels: &[&str],
        get: impl FnOnce(&mut Option<Series>) -> T,
    ) -> T {
        let key: Labels = labels.iter().map(|&value| value.into()).collect();
        let mut tables = self.tables.lock();
        let table = tables
            .entry(family.name)
            .or_insert_with(|| Table::new(family));
        if table.series.len() >= table.sweep_at {
            table.sweep();
        }
        let mut slot = table.series.remove(&key);
        let handle = get(&mut slot);
        table.series.extend(slot.map(|series| (key, series)));
        handle
    }

    /// Renders every live series, families by name and series by labels. Workers that need the lock
    /// for a new series wait for a batch of series to be looked up, never for one to be computed or
    /// written.
    pub fn render(&self) -> String {
        let tables = self.tables.lock();
        let families: Vec<_> = tables.values().map(|table| table.family).collect();
        drop(tables);
        let mut out = String::new();
        for family in families {
            self.render_family(family, &mut out);
        }
        out
    }

    fn zeros(&self, family: &Family) -> Zeros {
        let is_crowded = || {
            let tables = self.tables.lock();
            tables.get(family.name).is_some_and(Table::is_crowded)
        };
        match family.scale {
            Scale::Large if is_crowded() => Zeros::Hidden,
            Scale::Small | Scale::Large => Zeros::Shown,
        }
    }

    fn render_family(&self, family: &'static Family, out: &mut String) {
        let mut is_begun = false;
        let zeros = self.zeros(family);
        self.for_each(family, |labels, number| {
            if zeros == Zeros::Hidden && number.is_zero() {
                return;
            }
            if !is_begun {
                render::head(out, family);
                is_begun = true;
            }
            render::series(out, family, labels, number, zeros);
        });
    }

    /// Calls `read` with the labels and the number of each live series of a family of counters.
    pub(super) fn read_counters(
        &self,
        family: &'static Family,
        mut read: impl FnMut(&[&str], u64),
    ) {
        self.for_each(family, |labels, number| {
            let mut labels: Vec<&str> = labels.iter().map(|label| &**label).collect();
            match number {
                LiveSeries::Counter(count) => read(&labels, count.load(Relaxed)),
                LiveSeries::CounterSet(counts, value_of) => {
                    for (index, count) in counts.iter().enumerate() {
                        labels.push(value_of(index));
                        read(&labels, count.load(Relaxed));
                        labels.pop();
                    }
                }
                LiveSeries::Observed(count) => read(&labels, count() as u64),
                LiveSeries::Gauge(_) | LiveSeries::Histogram(_) => {}
            }
        });
    }

    /// Calls `read` with each live series of a family, without holding the lock.
    fn for_each(&self, family: &Family, mut read: impl FnMut(&[Box<str>], &LiveSeries)) {
        let mut last = None;
        let batch = |last: &mut Option<Labels>| {
            let mut tables = self.tables.lock();
            tables.get_mut(family.name)?.batch(last)
        };
        while let Some(batch) = batch(&mut last) {
            for (labels, number) in batch {
                read(&labels, &number);
            }
        }
    }
}

#[cfg(test)]
mod tests;
