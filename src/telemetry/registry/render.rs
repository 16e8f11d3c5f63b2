//! Prometheus's text format, version 0.0.4, as `metrics-exporter-prometheus` writes it.

use std::{
    fmt,
    sync::{Weak, atomic::Ordering::Relaxed},
};

use metrics::{Key, Label};
use metrics_exporter_prometheus::{LabelSet, formatting};

use super::{BOUNDS, Family, Series, Table, handles::Buckets};

/// Renders the living series of a family.
pub(super) fn table(out: &mut String, table: &Table) {
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
                    .for_each(|buckets| histogram(&mut line, buckets));
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

fn histogram(line: &mut Line<'_>, buckets: &Buckets) {
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
