//! Metric series and their rendering in Prometheus's text format, version 0.0.4.
//!
//! A series lives as long as a handle to it: when a reload drops the handles of a removed route, its
//! series leave the next scrape, and a route that stays finds its numbers again by name. That is why
//! series are kept here, and `metrics-exporter-prometheus` only writes them: its own recorder drops
//! series by idleness, and a handle that outlives its series counts into nothing.
//! Which families exist is in [`metrics`](super::metrics).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use metrics::{Key, Label};
use metrics_exporter_prometheus::{LabelSet, formatting};
use parking_lot::Mutex;

/// The content type of [`Registry::render`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric's name, meaning and label names. All families are constants.
#[derive(Debug)]
pub struct Family {
    /// Full name, with prefix, unit and `_total`.
    pub name: &'static str,
    /// One line for `# HELP`.
    pub help: &'static str,
    /// What `# TYPE` says.
    pub kind: Kind,
    /// Label names, in the order in which values are given.
    pub labels: &'static [&'static str],
}

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
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A count that only grows. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct Counter(Arc<AtomicU64>);

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

/// A whole number that goes up and down. Cheap to clone; clones are one number.
#[derive(Clone, Debug)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Replaces the number.
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    /// Adds `n`, which may be negative.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
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
struct Buckets {
    /// Not cumulative; the last is above every bound.
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

/// Durations counted in buckets. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Buckets>);

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|&(bound, _)| bound < nanos);
        self.0.counts[bucket].fetch_add(1, Relaxed);
        self.0.nanos.fetch_add(nanos, Relaxed);
    }
}

/// Keeps a series that is computed at each scrape; the series ends when this is dropped.
#[derive(Clone)]
pub struct Observer {
    _function: Arc<ObservedFn>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

type ObservedFn = dyn Fn() -> f64 + Send + Sync;

enum Series {
    Counter(Weak<AtomicU64>),
    Gauge(Weak<AtomicI64>),
    Histogram(Weak<Buckets>),
    /// The last one alive is read: a snapshot that is compiled and then discarded hides no other.
    Observed(Vec<Weak<ObservedFn>>),
}

impl Series {
    fn is_alive(&self) -> bool {
        match self {
            Self::Counter(weak) => weak.strong_count() > 0,
            Self::Gauge(weak) => weak.strong_count() > 0,
            Self::Histogram(weak) => weak.strong_count() > 0,
            Self::Observed(all) => all.iter().any(|weak| weak.strong_count() > 0),
        }
    }
}

/// The values of a series' labels, in the order of its family's names.
type Labels = Box<[Box<str>]>;

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

    /// Returns the gauge with these label values: the live one, or a new one at 0.
    pub fn gauge(&self, family: &'static Family, labels: &[&str]) -> Gauge {
        debug_assert_eq!(family.kind, Kind::Gauge);
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
        debug_assert_eq!(family.labels.len(), labels.len());
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

    /// Renders every live series, families by name and series by labels.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for table in self.tables.lock().values_mut() {
            table.sweep();
            if !table.series.is_empty() {
                render_table(&mut out, table);
            }
        }
        out
    }
}

fn render_table(out: &mut String, table: &Table) {
    let Family {
        name,
        help,
        kind,
        labels,
    } = table.family;
    formatting::write_help_line(out, name, None, None, help);
    formatting::write_type_line(out, name, None, None, kind.as_str());
    for (values, series) in &table.series {
        let mut line = Line {
            name,
            labels: label_set(name, labels, values),
            out,
        };
        match series {
            Series::Counter(weak) => {
                let value = weak.upgrade().map(|value| value.load(Relaxed));
                value
                    .into_iter()
                    .for_each(|value| line.write(None, None, value));
            }
            Series::Gauge(weak) => {
                let value = weak.upgrade().map(|value| value.load(Relaxed));
                value
                    .into_iter()
                    .for_each(|value| line.write(None, None, value));
            }
            Series::Histogram(weak) => {
                weak.upgrade()
                    .iter()
                    .for_each(|buckets| render_histogram(&mut line, buckets));
            }
            Series::Observed(all) => {
                let function = all.iter().rev().find_map(Weak::upgrade);
                function
                    .iter()
                    .for_each(|function| line.write(None, None, function()));
            }
        }
    }
}

fn render_histogram(line: &mut Line<'_>, buckets: &Buckets) {
    let bounds = BOUNDS.iter().map(|&(_, seconds)| seconds).chain(["+Inf"]);
    let mut total = 0;
    for (bound, count) in bounds.zip(&buckets.counts) {
        total += count.load(Relaxed);
        line.write(Some("bucket"), Some(bound), total);
    }
    let nanos = buckets.nanos.load(Relaxed);
    let (whole, part) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    line.write(Some("sum"), None, format_args!("{whole}.{part:09}"));
    line.write(Some("count"), None, total);
}

/// Where the samples of one series are written.
struct Line<'a> {
    name: &'static str,
    labels: LabelSet,
    out: &'a mut String,
}

impl Line<'_> {
    /// One sample; `bound` is that of a histogram's bucket.
    fn write(
        &mut self,
        suffix: Option<&'static str>,
        bound: Option<&str>,
        value: impl fmt::Display,
    ) {
        let bound = bound.map(|bound| ("le", bound));
        formatting::write_metric_line(
            self.out,
            self.name,
            suffix,
            &self.labels,
            bound,
            value,
            None,
        );
    }
}

fn label_set(name: &'static str, names: &[&'static str], values: &[Box<str>]) -> LabelSet {
    let labels = names.iter().zip(values);
    let labels = labels.map(|(name, value)| Label::new(*name, String::from(&**value)));
    let key = Key::from_parts(name, labels.collect::<Vec<_>>());
    LabelSet::from_key_and_global(&key, &Default::default())
}

#[cfg(test)]
mod tests;
