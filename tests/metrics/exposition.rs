//! Prometheus's text format, and the tables of docs/metrics.md, read for comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A metric: its kind, its meaning, and the values of each label.
#[derive(Debug, Default)]
pub(crate) struct Metric {
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) labels: BTreeMap<String, BTreeSet<String>>,
}

/// The metrics of a scrape, by name.
pub(crate) fn scraped(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a name and a text");
            metrics.entry(name.to_owned()).or_default().help = help.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a kind");
            metrics.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else if !line.is_empty() {
            let series = series(line);
            let mut suffixes = ["_bucket", "_sum", "_count"].iter();
            let base = suffixes.find_map(|suffix| series.name.strip_suffix(suffix));
            let base = base.filter(|base| metrics.contains_key(*base));
            let metric = metrics.get_mut(base.unwrap_or(&series.name));
            let metric = metric.expect("its head stands above");
            let labels = series.labels.into_iter().filter(|(name, _)| name != "le");
            for (name, value) in labels {
                metric.labels.entry(name).or_default().insert(value);
            }
        }
    }
    metrics
}

/// One line of the text format.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

/// Reads a line with a sample.
pub(crate) fn series(line: &str) -> Series {
    let (series, value) = line.rsplit_once(' ').expect("a series and a number");
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.strip_suffix('}').expect("a closing brace");
    let mut pairs = Vec::new();
    let mut rest = labels;
    while let Some((name, after)) = rest.split_once("=\"") {
        let ends = after.char_indices().scan(false, |is_escaped, (at, c)| {
            let is_end = c == '"' && !*is_escaped;
            *is_escaped = c == '\\' && !*is_escaped;
            Some((at, is_end))
        });
        let end = ends.into_iter().find(|(_, is_end)| *is_end);
        let (end, _) = end.expect("a closing quote");
        pairs.push((
            name.trim_start_matches(',').to_owned(),
            after[..end].to_owned(),
        ));
        rest = &after[end + 1..];
    }
    Series {
        name: name.to_owned(),
        labels: pairs,
        value: value.parse().expect("a number"),
    }
}

/// The text of a file of the repository.
pub(crate) fn repository_file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of all rows of the tables with this head.
fn table(text: &str, head: &str) -> Vec<Vec<String>> {
    let mut lines = text.lines();
    let mut rows = Vec::new();
    while let Some(line) = lines.next() {
        if line != head {
            continue;
        }
        lines.next().expect("a line of dashes");
        let body = lines.by_ref().take_while(|line| line.starts_with("| "));
        rows.extend(body.map(|row| {
            let row = row.strip_prefix("| ").and_then(|row| row.strip_suffix('|'));
            let cells = row.expect("a row").split(" | ");
            cells.map(|cell| cell.trim().to_owned()).collect()
        }));
    }
    assert!(!rows.is_empty(), "no table {head}");
    rows
}

/// The texts in code quotes.
fn codes(cell: &str) -> BTreeSet<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The documented metrics, by name; label values are those of closed sets, and empty for others.
pub(crate) fn documented() -> BTreeMap<String, Metric> {
    let text = repository_file("docs/metrics.md");
    let closed = table(&text, "| label | of | values |");
    let open = table(&text, "| label | value |");
    let open: BTreeSet<_> = open.iter().flat_map(|row| codes(&row[0])).collect();
    let mut unused: BTreeSet<_> = closed
        .iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    let mut used_open = BTreeSet::new();
    let metrics = table(&text, "| name | kind | labels | |");
    let metrics: BTreeMap<_, _> = metrics
        .into_iter()
        .map(|row| {
            let [name, kind, labels, help] = row.try_into().expect("four cells");
            let values = |label: &String| {
                let of = (format!("`{label}`"), name.clone());
                let row = closed.iter().find(|row| row[0] == of.0 && row[1] == of.1);
                if row.is_none() {
                    assert!(open.contains(label), "{name}: `{label}` is not documented");
                    used_open.insert(label.clone());
                }
                unused.remove(&of);
                row.map(|row| codes(&row[2])).unwrap_or_default()
            };
            let labels = codes(&labels).into_iter();
            let mut values = values;
            let labels = labels
                .map(|label| (label.clone(), values(&label)))
                .collect();
            (
                name.trim_matches('`').to_owned(),
                Metric { kind, help, labels },
            )
        })
        .collect();
    assert!(unused.is_empty(), "labels of no metric: {unused:?}");
    assert_eq!(used_open, open, "labels of no metric");
    metrics
}
