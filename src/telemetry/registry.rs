//! Metric series and their rendering in Prometheus's text format, version 0.0.4.
//!
//! A series lives as long as a handle to it: when a reload drops the handles of a removed route,
//! its series leave the next scrape, and a route that stays finds its numbers again by name. That
//! is why series are kept here, and `metrics-exporter-prometheus` only writes them: its own
//! recorder drops series by idleness, and a handle that outlives its series counts into nothing.
//! The families are in [`metrics`](super::metrics).

mod handles;
mod render;

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smallvec::SmallVec;

use self::handles::ObservedFn;
pub use self::handles::{
    BOUNDS, Counter, Counters, DurationCounts, Gauge, GaugeGuard, Histogram, LabelValue, Observer,
};
use self::render::{Line, Number};

/// The content type of [`Registry::render`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Series that are looked up under one lock.
const BATCH: usize = 128;

/// The largest number of entries with which a large family shows zeros. An entry is a
/// series, or a set of counters.
pub const MOST_ZEROS: usize = 1_000;

/// A metric's name, meaning and label names.
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
    /// A configuration may give it several series for each route or endpoint. With more than
    /// [`MOST_ZEROS`] entries, series that have not counted are not rendered.
    pub is_large: bool,
}

/// How a family's numbers behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations in the buckets of [`BOUNDS`].
    Histogram,
}

/// The handles of a series. The last one alive is read: a ruleset that is compiled and then discarded
/// hides no other.
#[derive(Default)]
struct Series(SmallVec<[Weak<dyn Number>; 1]>);

impl Series {
    fn is_alive(&self) -> bool {
        self.0.iter().any(|weak| weak.strong_count() > 0)
    }

    fn live(&self) -> Option<Arc<dyn Number>> {
        self.0.iter().rev().find_map(Weak::upgrade)
    }

    fn push(&mut self, number: Weak<dyn Number>) {
        self.0.retain(|weak| weak.strong_count() > 0);
        self.0.push(number);
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
    fn batch(&mut self, last: &mut Option<Labels>) -> Option<Vec<(Labels, Arc<dyn Number>)>> {
        let start = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.series.range::<Labels, _>((start, Bound::Unbounded));
        let (mut live, mut dead, mut end) = (Vec::new(), Vec::new(), None);
        for (labels, series) in next.take(BATCH) {
            match series.live() {
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

/// Declares handles with the same label values, which it may keep. Behind the name of a family, the
/// value of its last label if only this handle has that.
macro_rules! handle_set {
    ($(#[$meta:meta])* $name:ident($($label:ident),*) $(keeps { $($(#[$what:meta])* $kept:ident,)* })? {
        $($(#[$doc:meta])* $vis:vis $field:ident: $type:ty = $kind:ident($family:literal $(, $last:literal)?),)*
    }) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $name {
            $($($(#[$what])* pub $kept: std::sync::Arc<str>,)*)?
            $($(#[$doc])* $vis $field: $type,)*
        }

        impl $name {
            /// Makes the handles: their series are there from the start.
            pub fn new(registry: &$crate::telemetry::registry::Registry $(, $label: &str)*) -> Self {
                let labels: &[&str] = &[$($label),*];
                Self {
                    $($($kept: $kept.into(),)*)?
                    $($field: registry.$kind($family, &[labels, &[$($last)?]].concat()),)*
                }
            }
        }
    };
}
pub(crate) use handle_set;

/// Declares an enum of the values of a label: its variants in snake case.
macro_rules! label_values {
    ($(#[$doc:meta])* $name:ident { $($(#[$meta:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            strum::EnumMessage, strum::IntoStaticStr, strum::VariantArray,
        )]
        #[strum(serialize_all = "snake_case")]
        pub enum $name {
            $($(#[$meta])* $variant,)*
        }

        impl $name {
            /// Returns the label's value.
            pub fn as_str(self) -> &'static str {
                self.into()
            }
        }

        impl $crate::telemetry::registry::LabelValue for $name {
            type Counts = [std::sync::atomic::AtomicU64; <Self as strum::VariantArray>::VARIANTS.len()];

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
pub(crate) use label_values;

/// All families and their live series. Cheap to clone; clones are one registry.
#[derive(Clone, Default, derive_more::Debug)]
pub struct Registry {
    #[debug(skip)]
    tables: Arc<Mutex<BTreeMap<&'static str, Table>>>,
}

impl Registry {
    /// Returns the counter with these label values: the live one, or a new one at 0.
    pub fn counter(&self, family: impl Into<&'static Family>, labels: &[&str]) -> Counter {
        Counter(self.number(family.into(), Kind::Counter, labels, 0))
    }

    /// Returns the counters with these values of all labels but the last: the live ones, or new
    /// ones at 0.
    pub fn counters<L: LabelValue>(
        &self,
        family: impl Into<&'static Family>,
        labels: &[&str],
    ) -> Counters<L> {
        Counters(self.number(family.into(), Kind::Counter, labels, 1))
    }

    /// Returns the gauge with these label values: the live one, or a new one at 0.
    pub fn gauge(&self, family: impl Into<&'static Family>, labels: &[&str]) -> Gauge {
        Gauge(self.number(family.into(), Kind::Gauge, labels, 0))
    }

    /// Returns the histogram with these label values: the live one, or a new empty one.
    pub fn histogram(&self, family: impl Into<&'static Family>, labels: &[&str]) -> Histogram {
        Histogram(self.number(family.into(), Kind::Histogram, labels, 0))
    }

    /// Adds a series whose number is computed at each scrape, for as long as the observer is kept.
    pub fn observe(
        &self,
        family: impl Into<&'static Family>,
        labels: &[&str],
        function: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Observer {
        let family = family.into();
        debug_assert_ne!(family.kind, Kind::Histogram);
        debug_assert_eq!(family.labels.len(), labels.len());
        let function = Arc::new(ObservedFn(Box::new(function)));
        let weak = Arc::downgrade(&function);
        self.with_series(family, labels, |series| series.push(weak));
        Observer {
            _function: function,
        }
    }

    /// The number, or the numbers that differ in so many `last` labels.
    fn number<T: Number + Default>(
        &self,
        family: &'static Family,
        kind: Kind,
        labels: &[&str],
        last: usize,
    ) -> Arc<T> {
        debug_assert_eq!(family.kind, kind);
        debug_assert_eq!(family.labels.len(), labels.len() + last);
        self.with_series(family, labels, |series| {
            let live: Option<Arc<dyn Any + Send + Sync>> = series.live().map(|live| live as _);
            if let Some(Ok(live)) = live.map(Arc::downcast) {
                return live;
            }
            let new = Arc::<T>::default();
            let weak = Arc::downgrade(&new);
            series.push(weak);
            new
        })
    }

    fn with_series<T>(
        &self,
        family: &'static Family,
        labels: &[&str],
        get: impl FnOnce(&mut Series) -> T,
    ) -> T {
        let key: Labels = labels.iter().map(|&value| value.into()).collect();
        let mut tables = self.tables.lock();
        let table = tables
            .entry(family.name)
            .or_insert_with(|| Table::new(family));
        if table.series.len() >= table.sweep_at {
            table.sweep();
        }
        get(table.series.entry(key).or_default())
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

    /// Returns true if counters of the family that have not counted are left out.
    fn hides_zeros(&self, family: &Family) -> bool {
        let tables = self.tables.lock();
        let table = tables.get(family.name);
        family.is_large && table.is_some_and(Table::is_crowded)
    }

    fn render_family(&self, family: &'static Family, out: &mut String) {
        let mut is_begun = false;
        let hides_zeros = self.hides_zeros(family);
        self.for_each(family, |labels, number| {
            if hides_zeros && number.is_zero() {
                return;
            }
            if !is_begun {
                render::head(out, family);
                is_begun = true;
            }
            number.write(&mut Line::new(family, labels, hides_zeros, out));
        });
    }

    /// Calls `read` with the labels and the number of each live series of a family of counters.
    pub(super) fn read_counters(
        &self,
        family: impl Into<&'static Family>,
        mut read: impl FnMut(&[&str], u64),
    ) {
        self.for_each(family.into(), |labels, number| {
            let mut labels: Vec<&str> = labels.iter().map(|label| &**label).collect();
            let own = labels.len();
            number.counts(&mut |last, count| {
                labels.extend(last);
                read(&labels, count);
                labels.truncate(own);
            });
        });
    }

    /// Calls `read` with each live series of a family, without holding the lock.
    fn for_each(&self, family: &Family, mut read: impl FnMut(&[Box<str>], &dyn Number)) {
        let mut last = None;
        let batch = |last: &mut Option<Labels>| {
            let mut tables = self.tables.lock();
            tables.get_mut(family.name)?.batch(last)
        };
        while let Some(batch) = batch(&mut last) {
            for (labels, number) in batch {
                read(&labels, &*number);
            }
        }
    }
}

#[cfg(test)]
mod tests;
