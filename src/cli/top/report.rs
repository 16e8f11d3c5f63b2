//! An answer of `/v1/top` as rows of text.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::admin::keys::key_input::Key;
use crate::admin::top::{Top, TopItem};
use crate::cli::table::table;
use crate::clock::text::Span;
use crate::proxy::activity::Measure;
use crate::rules::PartText;
use crate::visible;

/// The number of columns.
pub(super) const COLUMNS: usize = 7;
/// The number of the columns of texts, which come first.
pub(super) const TEXTS: usize = 2;
/// The widest text, in characters.
const MAX_TEXT: usize = 48;

/// Rows of text, and a line about them.
#[derive(Debug)]
pub(super) struct Report {
    /// The measure of the counts.
    pub(super) title: String,
    /// The names of the columns.
    pub(super) columns: [&'static str; COLUMNS],
    /// A text for each column.
    pub(super) rows: Vec<[String; COLUMNS]>,
    /// The sentence in place of rows.
    empty: &'static str,
}

/// Takes the keys from the answer as the proxy sent it.
pub(super) fn take_keys(top: &mut Top, answer: &Value) {
    for (place, item) in top.items.iter_mut().enumerate() {
        item.key = Deserialize::deserialize(&answer["items"][place]["key"]).unwrap_or_default();
    }
}

/// The time over which keys were counted, in whole milliseconds.
pub(super) fn counted(top: &Top) -> Duration {
    let counted = Duration::try_from_secs_f64(top.counted_s);
    let counted = counted.unwrap_or(Duration::MAX).as_millis();
    Duration::from_millis(u64::try_from(counted).unwrap_or(u64::MAX))
}

impl Report {
    pub(super) fn new(answer: &Top) -> Self {
        let counted = counted(answer);
        let number = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        let row = |item: &TopItem| {
            let count = match answer.by {
                Measure::Limited => item.counts.limited,
                Measure::Busiest => item.counts.requests,
                Measure::Units => item.counts.units,
            };
            let rate = match count {
                Some(count) if !counted.is_zero() => {
                    format!("{:.1}", count as f64 / counted.as_secs_f64())
                }
                _ => "-".to_owned(),
            };
            [
                visible::cut(&key(item), MAX_TEXT).into_owned(),
                visible::cut(&item.policy, MAX_TEXT).into_owned(),
                number(item.counts.limited),
                number(item.counts.requests),
                number(item.counts.units),
                item.counts.error_bound.to_string(),
                rate,
            ]
        };
        let (by, window): (&str, &str) = (answer.by.into(), answer.window.into());
        Self {
            title: format!(
                "by {by}, last {window} in slices of 10s, counted for {}",
                Span(counted)
            ),
            columns: columns(answer.by),
            empty: match answer.by {
                Measure::Limited => {
                    "no key was limited; a policy in shadow limits none: --by busiest shows its keys"
                }
                Measure::Busiest | Measure::Units => "no key was counted so far",
            },
            rows: answer.items.iter().map(row).collect(),
        }
    }

    /// The width of each column.
    pub(super) fn widths(&self) -> [usize; COLUMNS] {
        std::array::from_fn(|column| {
            let texts = self.rows.iter().map(|row| row[column].chars().count());
            texts
                .chain([self.columns[column].len()])
                .max()
                .unwrap_or_default()
        })
    }
}

/// As a table.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        if self.rows.is_empty() {
            return writeln!(f, "{}", self.empty);
        }
        let rows = self.rows.clone();
        f.write_str(&table(self.columns, rows, TEXTS..COLUMNS))
    }
}

/// The names of the columns. The last one is the count that orders keys, a second.
fn columns(by: Measure) -> [&'static str; COLUMNS] {
    let rate = match by {
        Measure::Limited => "LIMITED/S",
        Measure::Busiest => "REQUESTS/S",
        Measure::Units => "UNITS/S",
    };
    ["KEY", "POLICY", "LIMITED", "REQUESTS", "UNITS", "+-", rate]
}

/// The text of a key, or its name.
fn key(item: &TopItem) -> String {
    let part = |part: &PartText| match part {
        PartText::Value(text) => visible::key(text),
        PartText::Missing(()) => "(missing)".to_owned(),
        PartText::StandIn(parts) => {
            let texts = parts.iter();
            let texts = texts
                .map(|(name, value)| format!("{}={}", visible::text(name), visible::key(value)));
            texts.collect::<Vec<_>>().join(" ")
        }
    };
    match &item.key {
        None | Some(Key::None | Key::Client { .. }) => item.key_id.clone(),
        Some(Key::One(text)) => visible::key(text),
        Some(Key::Parts(parts)) => parts.iter().map(part).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(answer: Value) -> Report {
        Report::new(&serde_json::from_value(answer).expect("an answer"))
    }

    #[test]
    fn a_table_has_a_row_for_each_key() {
        let answer = json!({
            "by": "limited", "window": "1m", "counted_s": 60.0, "keys": "readable",
            "items": [
                { "rank": 1, "policy": "per-key", "key_id": "k_1", "key": "alice",
                  "limited": 120, "requests": null, "units": null, "error_bound": 3 },
                { "rank": 2, "policy": "pairs", "key_id": "k_2",
                  "key": ["192.0.2.1", { "client_ip": "::/64" }, null],
                  "limited": 6, "requests": 7, "units": 1, "error_bound": 3 },
                { "rank": 3, "policy": "login", "key_id": "k_3", "key": null,
                  "limited": 1, "requests": 1, "units": 1, "error_bound": 3 },
            ],
        });
        let text = report(answer).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[0],
            "by limited, last 1m in slices of 10s, counted for 1m"
        );
        assert!(lines[1].ends_with("+-  LIMITED/S"), "{text}");
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            words(lines[2]),
            ["alice", "per-key", "120", "-", "-", "3", "2.0"]
        );
        assert!(
            lines[3].starts_with("192.0.2.1, client_ip=::/64, (missing)  pairs"),
            "{text}"
        );
        assert!(lines[4].starts_with("k_3 "), "{text}");
        let none =
            json!({ "by": "units", "window": "5m", "counted_s": 0, "keys": "hashed", "items": [] });
        let text = report(none).to_string();
        assert!(text.contains("no key was counted so far"), "{text}");
        let none = json!({ "by": "limited", "window": "5m", "counted_s": 0, "keys": "hashed", "items": [] });
        let text = report(none).to_string();
        assert!(text.contains("--by busiest"), "{text}");
    }

    #[test]
    fn numbers_beyond_reason_take_little_room() {
        for counted in [1e308, 1e-308, -1.0] {
            let item = json!({
                "rank": 1, "policy": "p", "key_id": "k", "key": null, "limited": u64::MAX,
                "requests": null, "units": null, "error_bound": 0,
            });
            let answer = json!({
                "by": "limited", "window": "1m", "counted_s": counted, "keys": "hashed",
                "items": [item],
            });
            let text = report(answer).to_string();
            assert!(text.lines().all(|line| line.len() < 120), "{text}");
        }
    }
}
