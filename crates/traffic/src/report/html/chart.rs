//! Bars over time, as inline SVG. Scripts are not needed: a bar's title tells its numbers.

use std::fmt::{self, Display, Formatter};

use super::escape::{Text, count};
use super::table::table;
use crate::report::timeline::TimelineReport;
use readable::time::rfc_3339;

/// The width of a part and its bar, and the height of a chart, in units of the drawing.
const PART: usize = 6;
const BAR: usize = 5;
const HEIGHT: u64 = 100;
/// The fewest parts in the width of a chart, so that bars stay narrow.
const MIN_PARTS: usize = 24;

/// Bars that stand on each other, one pile for each part of time.
pub(super) struct Bars<'a> {
    label: &'a str,
    /// From the lowest to the highest: the name of the colour and of what is counted, and the counts.
    series: Vec<(&'static str, Vec<u64>)>,
    timeline: &'a TimelineReport,
    /// A small chart.
    is_low: bool,
}

/// The words for what is counted.
fn word(class: &str) -> &str {
    match class {
        "unlimited" => "without a limit",
        "shadowed" => "in shadow",
        class => class,
    }
}

impl<'a> Bars<'a> {
    /// Charts these counts, without those that are 0 all the time.
    pub(super) fn new<const N: usize>(
        label: &'a str,
        timeline: &'a TimelineReport,
        is_low: bool,
        series: [(&'static str, Vec<u64>); N],
    ) -> Self {
        let mut series = Vec::from(series);
        series.retain(|(_, values)| values.iter().any(|value| *value > 0));
        Self {
            label,
            series,
            timeline,
            is_low,
        }
    }

    /// The colours that the chart has, and their words.
    pub(super) fn legend(&self) -> String {
        let items = self.series.iter().map(|(class, _)| {
            let word = word(class);
            format!("<span><span class=\"mark {class}\"></span>{word}</span>")
        });
        items.collect()
    }

    /// The numbers, for those who can't see the chart or want to read them.
    pub(super) fn numbers_table(&self) -> String {
        let words = self.series.iter().map(|(class, _)| word(class));
        let heads: Vec<_> = ["From (UTC)"].into_iter().chain(words).collect();
        let rows = (0..self.parts()).map(|place| {
            let counts = self.counts(place).map(|(_, value)| count(value));
            [self.time(place)].into_iter().chain(counts).collect()
        });
        let label = format!("{}, in numbers", Text(self.label));
        let table = table(&label, &heads, 1, rows);
        format!("<details><summary>The numbers</summary>{table}</details>\n")
    }

    fn parts(&self) -> usize {
        let lengths = self.series.iter().map(|(_, values)| values.len());
        lengths.max().unwrap_or_default()
    }

    /// The counts of a part.
    fn counts(&self, place: usize) -> impl Iterator<Item = (&'static str, u64)> {
        let count = move |values: &Vec<u64>| values.get(place).copied().unwrap_or_default();
        self.series
            .iter()
            .map(move |(class, values)| (*class, count(values)))
    }

    fn time(&self, place: usize) -> String {
        let (start, step) = (self.timeline.start, self.timeline.step_ms.0);
        let time = start.saturating_add_micros(place as u64 * step);
        let text = rfc_3339(time);
        text.replacen('T', " ", 1).replace('Z', "")
    }

    /// The bars of a part; `most` is the highest pile of the chart.
    fn pile(&self, place: usize, most: u64) -> String {
        let counted: Vec<_> = self.counts(place).filter(|(_, value)| *value > 0).collect();
        if counted.is_empty() {
            return String::new();
        }
        let words = counted
            .iter()
            .map(|(class, value)| format!("{} {}", count(*value), word(class)));
        let words = words.collect::<Vec<_>>().join(", ");
        let mut below = 0;
        let bars = counted.into_iter().map(|(class, value)| {
            let scaled = |sum: u64| sum as f64 / most as f64 * HEIGHT as f64;
            let (low, high) = (scaled(below), scaled(below + value));
            below += value;
            // What is there can be seen.
            let height = (high - low).max(0.8);
            let (x, y) = (place * PART, (HEIGHT as f64 - low - height).max(0.0));
            format!(
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y:.2}\" width=\"{BAR}\" height=\"{height:.2}\"/>"
            )
        });
        let (time, bars) = (self.time(place), bars.collect::<String>());
        format!("<g><title>{time}: {words}</title>{bars}</g>")
    }
}

impl Display for Bars<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parts = self.parts();
        let totals = (0..parts).map(|place| self.counts(place).map(|(_, value)| value).sum());
        let most: u64 = totals.max().unwrap_or_default();
        let width = parts.max(MIN_PARTS) * PART;
        let sums = self.series.iter().map(|(class, values)| {
            let sum: u64 = values.iter().sum();
            format!("{sum} {}", word(class))
        });
        let sums = sums.collect::<Vec<_>>().join(", ");
        let label = Text(self.label);
        let low = if self.is_low { " low" } else { "" };
        let piles = (0..parts).map(|place| self.pile(place, most.max(1)));
        let (begin, end) = (self.time(0), self.time(parts));
        let end = if parts >= MIN_PARTS {
            format!("<span>{end}</span>")
        } else {
            String::new()
        };
        writeln!(
            f,
            "<figure class=\"time{low}\"><svg class=\"chart\" viewBox=\"0 0 {width} {HEIGHT}\" preserveAspectRatio=\"none\" \
             role=\"img\" aria-label=\"{label}: {sums}\">\
             <path class=\"line\" d=\"M0 0H{width}\"/><path class=\"line\" d=\"M0 {}H{width}\"/>{}\
             <path class=\"base\" d=\"M0 {HEIGHT}H{width}\"/></svg>\
             <figcaption class=\"small soft\"><span class=\"most\">{}</span><span>{begin}</span>{end}</figcaption></figure>",
            HEIGHT / 2,
            piles.collect::<String>(),
            count(most)
        )
    }
}
