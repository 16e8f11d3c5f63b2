//! An answer of `/v1/top` as rows of text.

use std::fmt;

use serde_json::Value;

use crate::cli::printable;

/// The names of the columns.
pub(super) const COLUMNS: [&str; 7] = [
    "KEY", "POLICY", "LIMITED", "REQUESTS", "UNITS", "+-", "PER S",
];
/// The number of the columns of texts, which come first.
pub(super) const TEXTS: usize = 2;
/// The widest text, in characters.
const MAX_TEXT: usize = 48;

/// Rows of text, and a line about them.
#[derive(Debug)]
pub(super) struct Report {
    /// The measure of the counts.
    pub(super) title: String,
    /// A text for each column.
    pub(super) rows: Vec<[String; COLUMNS.len()]>,
}

impl Report {
    pub(super) fn new(answer: &Value) -> Self {
        let word = |field: &str| answer[field].as_str().unwrap_or_default();
        let counted = answer["counted_s"].as_f64().unwrap_or_default();
        let items = answer["items"].as_array().map_or(&[][..], Vec::as_slice);
        let measure = match word("by") {
            "busiest" => "requests",
            other => other,
        };
        let row = |item: &Value| {
            let number = |field: &str| match item[field].as_u64() {
                Some(number) => number.to_string(),
                None => "-".to_owned(),
            };
            let rate = match item[measure].as_u64() {
                Some(count) if counted > 0.0 => format!("{:.1}", count as f64 / counted),
                _ => "-".to_owned(),
            };
            [
                shortened(&key(item)),
                shortened(item["policy"].as_str().unwrap_or_default()),
                number("limited"),
                number("requests"),
                number("units"),
                number("error_bound"),
                rate,
            ]
        };
        let (by, window) = (printable(word("by")), printable(word("window")));
        Self {
            title: format!("by {by}, last {window}, counted for {counted:.0} s"),
            rows: items.iter().map(row).collect(),
        }
    }

    /// The width of each column.
    pub(super) fn widths(&self) -> [usize; COLUMNS.len()] {
        std::array::from_fn(|column| {
            let texts = self.rows.iter().map(|row| row[column].chars().count());
            texts
                .chain([COLUMNS[column].len()])
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
            return writeln!(f, "no key so far");
        }
        let widths = self.widths();
        let head = COLUMNS.map(str::to_owned);
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

/// The text of a key, or its name.
fn key(item: &Value) -> String {
    let part = |part: &Value| match part {
        Value::String(text) => text.clone(),
        Value::Null => "(missing)".to_owned(),
        Value::Object(parts) => {
            let texts = parts
                .iter()
                .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
            texts.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    };
    match &item["key"] {
        Value::Null => item["key_id"].as_str().unwrap_or_default().to_owned(),
        Value::Array(parts) => parts.iter().map(part).collect::<Vec<_>>().join(", "),
        one => part(one),
    }
}

/// A text without control characters, cut to its bound.
fn shortened(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(MAX_TEXT) {
        None => text,
        Some((end, _)) => format!("{}..", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_has_a_row_for_each_key() {
        let answer = json!({
            "by": "limited", "window": "1m", "counted_s": 60.0, "keys": "readable",
            "items": [
                { "rank": 1, "policy": "per-key", "key_id": "k_1", "key": "al\u{1b}ice",
                  "limited": 120, "requests": null, "units": null, "error_bound": 3 },
                { "rank": 2, "policy": "pairs", "key_id": "k_2",
                  "key": ["192.0.2.1", { "client_ip": "::/64" }, null],
                  "limited": 6, "requests": 7, "units": 1, "error_bound": 3 },
                { "rank": 3, "policy": "login", "key_id": "k_3", "key": null,
                  "limited": 1, "requests": 1, "units": 1, "error_bound": 3 },
            ],
        });
        let text = Report::new(&answer).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "by limited, last 1m, counted for 60 s");
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            words(lines[2]),
            ["al\u{fffd}ice", "per-key", "120", "-", "-", "3", "2.0"]
        );
        assert!(
            lines[3].starts_with("192.0.2.1, client_ip=::/64, (missing)  pairs"),
            "{text}"
        );
        assert!(lines[4].starts_with("k_3 "), "{text}");
        let none = json!({ "by": "units", "window": "5m", "counted_s": 0, "items": [] });
        assert!(Report::new(&none).to_string().contains("no key so far"));
    }
}
