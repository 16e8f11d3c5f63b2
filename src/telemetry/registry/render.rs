//! Prometheus's text format, version 0.0.4, as `metrics-exporter-prometheus` writes it.

use std::{fmt, sync::atomic::Ordering::Relaxed};

use metrics::{Key, Label};
use metrics_exporter_prometheus::{LabelSet, formatting};

use super::{BOUNDS, Family, LiveSeries, handles::HistogramBuckets};

/// Writes what a family is.
pub(super) fn head(out: &mut String, family: &Family) {
    let (name, kind) = (family.name, family.kind.as_str());
    formatting::write_help_line(out, name, None, None, family.help);
    formatting::write_type_line(out, name, None, None, kind);
}

/// The treatment of counters that have not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zeros {
    Shown,
    Hidden,
}

/// Writes one series of a family, or each of a set.
pub(super) fn series(
    out: &mut String,
    family: &Family,
    values: &[Box<str>],
    number: &LiveSeries,
    zeros: Zeros,
) {
    let mut line = Line {
        name: family.name,
        labels: label_set(family, values, None),
        out,
    };
    match number {
        LiveSeries::Counter(value) => line.write(None, None, value.load(Relaxed)),
        LiveSeries::CounterSet(counts, value_of) => {
            for (index, count) in counts.iter().enumerate() {
                let count = count.load(Relaxed);
                if count > 0 || zeros == Zeros::Shown {
                    line.labels = label_set(family, values, Some(value_of(index)));
                    line.write(None, None, count);
                }
            }
        }
        LiveSeries::Gauge(value) => line.write(None, None, value.load(Relaxed)),
        LiveSeries::Histogram(buckets) => histogram(&mut line, buckets),
        LiveSeries::Observed(function) => line.write(None, None, function()),
    }
}

fn histogram(line: &mut Line<'_>, buckets: &HistogramBuckets) {
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

/// Pairs the names of a family's labels with `values`, and the name after these with `last`.
fn label_set(family: &Family, values: &[Box<str>], last: Option<&'static str>) -> LabelSet {
    let values = values.iter().map(|value| String::from(&**value));
    let values = values.chain(last.map(String::from));
    let labels = family.labels.iter().zip(values);
    let labels = labels.map(|(name, value)| Label::new(*name, value));
    let key = Key::from_parts(family.name, labels.collect::<Vec<_>>());
    LabelSet::from_key_and_global(&key, &Default::default())
}
