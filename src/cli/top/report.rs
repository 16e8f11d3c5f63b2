//! An answer of `/v1/top` as rows of text.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Order, Window};
use crate::clock::text::Span;
use crate::visible;

/// The number of columns.
pub(super) const COLUMNS: usize = 7;
/// The number of the columns of texts, which come first.
pub(super) const TEXTS: usize = 2;
/// The widest text, in characters.
const MAX_TEXT: usize = 48;

/// The fields of an answer that are shown.
#[derive(Debug, Deserialize)]
pub(super) struct TopAnswer {
    by: Order,
    window: Window,
    counted_s: f64,
    items: Vec<TopItem>,
}

#[derive(Debug, Deserialize)]
struct TopItem {
    policy: String,
    key_id: String,
    /// Null unless texts are allowed.
    #[serde(default)]
    key: Value,
    limited: Option<u64>,
    requests: Option<u64>,
    units: Option<u64>,
    error_bound: u64,
}

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

impl TopAnswer {
    /// Takes the keys from the answer as the proxy sent it.
    pub(super) fn take_keys(&mut self, answer: &Value) {
        for (place, item) in self.items.iter_mut().enumerate() {
            item.key = answer["items"][place]["key"].clone();
        }
    }

    /// The time over which keys were counted, in whole milliseconds.
    pub(super) fn counted(&self) -> Duration {
        let counted = Duration::try_from_secs_f64(self.counted_s);
        let counted = counted.unwrap_or(Duration::MAX).as_millis();
        Duration::from_millis(u64::try_from(counted).unwrap_or(u64::MAX))
    }
}

impl Report {
    pub(super) fn new(answer: &TopAnswer) -> Self {
        let counted = answer.counted();
        let number = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        let row = |item: &TopItem| {
            let count = match answer.by {
                Order::Limited => item.limited,
                Order::Busiest => item.requests,
                Order::Units => item.units,
            };
            let rate = match count {
                Some(count) if !counted.is_zero() => {
                    format!("{:.1}", count as f64 / counted.as_secs_f64())
                }
                _ => "-".to_owned(),
            };
            [
                shortened(key(item)),
                shortened(item.policy.clone()),
                number(item.limited),
                number(item.requests),
                number(item.units),
                item.error_bound.to_string(),
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
                Order::Limited => {
                    "no key was limited; a policy in shadow limits none: --by busiest shows its keys"
                }
                Order::Busiest | Order::Units => "no key was counted so far",
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
        let widths = self.widths();
        let head = self.columns.map(str::to_owned);
        for row in [&head].into_iter().chain(&self.rows) {
            let cells = row.iter().zip(widths).enumerate();
            let cells = cells.map(|(column, (text, width))| match column < TEXTS {
                true => format!("{text:<width$}"),
                false => format!("{text:>width$}"),
            });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  "))?;
        }
        Ok(())
    }
}

/// The names of the columns. The last one is the count that orders keys, a second.
fn columns(by: Order) -> [&'static str; COLUMNS] {
    let rate = match by {
        Order::Limited => "LIMITED/S",
        Order::Busiest => "REQUESTS/S",
        Order::Units => "UNITS/S",
    };
    ["KEY", "POLICY", "LIMITED", "REQUESTS", "UNITS", "+-", rate]
}

/// The text of a key, or its name.
fn key(item: &TopItem) -> String {
    let part = |part: &Value| match part {
        Value::String(text) => visible::key(text),
        Value::Null => "(missing)".to_owned(),
        Value::Object(parts) => {
            let texts = parts.iter().map(|(name, value)| {
                let value = visible::key(value.as_str().unwrap_or_default());
                format!("{}={value}", visible::text(name))
            });
            texts.collect::<Vec<_>>().join(" ")
        }
        other => visible::text(&other.to_string()),
    };
    match &item.key {
        Value::Null => item.key_id.clone(),
        Value::Array(parts) => parts.iter().map(part).collect::<Vec<_>>().join(", "),
        one => part(one),
    }
}

/// A text, cut to its bound.
fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        None => text,
        Some((end, _)) => format!("{}..", &text[..end]),
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
        let none = json!({ "by": "units", "window": "5m", "counted_s": 0, "items": [] });
        let text = report(none).to_string();
        assert!(text.contains("no key was counted so far"), "{text}");
        let none = json!({ "by": "limited", "window": "5m", "counted_s": 0, "items": [] });
        let text = report(none).to_string();
        assert!(text.contains("--by busiest"), "{text}");
    }

    #[test]
    fn numbers_beyond_reason_take_little_room() {
        for counted in [1e308, 1e-308, -1.0] {
            let item =
                json!({ "policy": "p", "key_id": "k", "limited": u64::MAX, "error_bound": 0 });
            let answer =
                json!({ "by": "limited", "window": "1m", "counted_s": counted, "items": [item] });
            let text = report(answer).to_string();
            assert!(text.lines().all(|line| line.len() < 120), "{text}");
        }
    }
}
