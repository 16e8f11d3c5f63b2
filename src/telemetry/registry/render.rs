//! Prometheus's text format, version 0.0.4, as `metrics-exporter-prometheus` writes it.

use std::any::Any;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};

use metrics::{Key, Label};
use metrics_exporter_prometheus::{LabelSet, formatting};

use super::handles::{CounterSet, HistogramBuckets, LabelValue, ObservedFn};
use super::{BOUNDS, Family};

/// Writes what a family is.
pub(super) fn head(out: &mut String, family: &Family) {
    let (name, kind) = (family.name, family.kind.into());
    formatting::write_help_line(out, name, None, None, family.help);
    formatting::write_type_line(out, name, None, None, kind);
}

/// The number of a series, or the numbers of several that differ in their last label.
pub(super) trait Number: Any + Send + Sync {
    /// Calls `read` with each number that only grows, and its last label if the set has one for each.
    fn counts(&self, read: &mut dyn FnMut(Option<&'static str>, u64));

    /// Writes the samples.
    fn write(&self, line: &mut Line<'_>);

    /// Returns true if it has counted nothing so far.
    fn is_zero(&self) -> bool {
        let mut is_zero = true;
        self.counts(&mut |_, count| is_zero &= count == 0);
        is_zero
    }
}

impl Number for AtomicU64 {
    fn counts(&self, read: &mut dyn FnMut(Option<&'static str>, u64)) {
        read(None, self.load(Relaxed));
    }

    fn write(&self, line: &mut Line<'_>) {
        line.write(None, None, self.load(Relaxed));
    }
}

impl<L: LabelValue> Number for CounterSet<L> {
    fn counts(&self, read: &mut dyn FnMut(Option<&'static str>, u64)) {
        for (&label, count) in L::VARIANTS.iter().zip(self.0.as_ref()) {
            read(Some(label.into()), count.load(Relaxed));
        }
    }

    fn write(&self, line: &mut Line<'_>) {
        self.counts(&mut |label, count| {
            if count > 0 || !line.hides_zeros {
                line.set_last_label(label);
                line.write(None, None, count);
            }
        });
    }
}

impl Number for AtomicI64 {
    fn counts(&self, _read: &mut dyn FnMut(Option<&'static str>, u64)) {}

    fn write(&self, line: &mut Line<'_>) {
        line.write(None, None, self.load(Relaxed));
    }

    fn is_zero(&self) -> bool {
        false
    }
}

impl Number for HistogramBuckets {
    fn counts(&self, read: &mut dyn FnMut(Option<&'static str>, u64)) {
        for count in &self.counts {
            read(None, count.load(Relaxed));
        }
    }

    fn write(&self, line: &mut Line<'_>) {
        let bounds = BOUNDS.iter().map(|&(_, seconds)| seconds).chain(["+Inf"]);
        let mut total = 0;
        for (bound, count) in bounds.zip(&self.counts) {
            total += count.load(Relaxed);
            line.write(Some("bucket"), Some(bound), total);
        }
        let nanos = self.nanos.load(Relaxed);
        let (whole, part) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        line.write(Some("sum"), None, format_args!("{whole}.{part:09}"));
        line.write(Some("count"), None, total);
    }
}

impl Number for ObservedFn {
    fn counts(&self, read: &mut dyn FnMut(Option<&'static str>, u64)) {
        read(None, (self.0)() as u64);
    }

    fn write(&self, line: &mut Line<'_>) {
        line.write(None, None, (self.0)());
    }

    fn is_zero(&self) -> bool {
        false
    }
}

/// Where the samples of one series are written.
pub(super) struct Line<'a> {
    family: &'static Family,
    values: &'a [Box<str>],
    labels: LabelSet,
    /// Counters that have not counted are left out.
    hides_zeros: bool,
    out: &'a mut String,
}

impl<'a> Line<'a> {
    /// A series of a family with these label values, to be written to `out`.
    pub(super) fn new(
        family: &'static Family,
        values: &'a [Box<str>],
        hides_zeros: bool,
        out: &'a mut String,
    ) -> Self {
        Self {
            family,
            values,
            labels: label_set(family, values, None),
            hides_zeros,
            out,
        }
    }

    fn set_last_label(&mut self, value: Option<&'static str>) {
        self.labels = label_set(self.family, self.values, value);
    }

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
            self.family.name,
            suffix,
            &self.labels,
            bound,
            value,
            None,
        );
    }
}

/// Pairs the names of a family's labels with `values`, and the name after these with `last`.
fn label_set(family: &Family, values: &[Box<str>], last: Option<&'static str>) -> LabelSet {
    let values = values.iter().map(|value| String::from(&**value));
    let values = values.chain(last.map(String::from));
    let labels = family.labels.iter().zip(values);
    let labels = labels.map(|(name, value)| Label::new(*name, value));
    let key = Key::from_parts(family.name, labels.collect::<Vec<_>>());
    LabelSet::from_key_and_global(&key, &Default::default())
}
