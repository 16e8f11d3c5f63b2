//! Reads clients from their files, and from the configuration.

use ::csv::StringRecord;
use siphasher::sip::SipHasher13;

use super::csv::{CsvError, CsvFile, write_row};
use crate::config::sections::prelude::*;
use crate::proxy::ruleset::ClientsSpec;
use crate::rules::{self, ClientTable, KeyDigest, Place, RowError, TableBuilder};

/// The column with the key, or its digest.
pub(crate) const KEY: &str = "key";
/// The column with the client's name.
pub(crate) const NAME: &str = "name";
/// The largest file, in bytes. Texts of a table have 4 GiB.
pub(crate) const MAX_FILE: u64 = 512 << 20;
/// The longest key, in bytes.
const MAX_KEY: usize = 4096;
/// The longest name and value, in bytes.
const MAX_VALUE: usize = 256;
/// The most columns besides the key and the name.
const MAX_COLUMNS: usize = 32;
/// The most values of a column that is a label.
const MAX_LABELS: usize = 20;
/// Begins the digest of a key.
pub(super) const DIGEST: &str = "sha256:";

/// The path of a file, its node, and what it holds. The list of the configuration has no path.
pub(super) type Content = (Option<String>, NodeId, Vec<u8>);

/// A file whose header is read.
struct Source<'a> {
    path: &'a Option<String>,
    node: NodeId,
    file: CsvFile<'a>,
}

impl Source<'_> {
    /// The row that begins at this byte, for errors.
    fn row(&self, at: u64) -> String {
        match (self.path, self.file.line(at)) {
            (Some(path), line) => format!("{path}: line {line}"),
            (None, line) => format!("item {} of `list`", line - 1),
        }
    }

    /// The error of a row, and of a column unless it is empty. `why` has no value: it may be a key.
    fn wrong(&self, at: u64, column: &str, why: impl AsRef<str>) -> Finding {
        let column = match column {
            "" => String::new(),
            column => format!(", column `{column}`"),
        };
        invalid(
            self.node,
            format!("{}{column}: {}", self.row(at), why.as_ref()),
        )
    }
}

/// Reads a key, or its digest.
fn read_key(text: &str) -> Result<KeyDigest, &'static str> {
    match text.strip_prefix(DIGEST) {
        Some(digits) => {
            KeyDigest::from_hex(digits).ok_or("expected 64 hexadecimal digits after `sha256:`")
        }
        None if text.is_empty() => Err("the key is empty"),
        None if text.len() > MAX_KEY => Err("it has more than 4096 bytes"),
        None => Ok(KeyDigest::of(text.as_bytes())),
    }
}

/// The reason why a text is no name, and no value of a column.
fn wrong_text(text: &str) -> Option<&'static str> {
    if text.len() > MAX_VALUE {
        return Some("it has more than 256 bytes");
    }
    let is_wrong = text.contains(char::is_control);
    is_wrong.then_some("it has a control character")
}

/// Reads a table, and its columns, from these contents.
pub(super) fn read(contents: &[Content]) -> Result<(Vec<String>, ClientTable), Finding> {
    let mut sources = Vec::new();
    for (path, node, content) in contents {
        let wrong = |error: CsvError| {
            let path = path.as_deref().unwrap_or_default();
            invalid(*node, format!("{path}: line 1: {}", error.message))
        };
        let (file, node) = (CsvFile::new(content).map_err(wrong)?, *node);
        sources.push(Source { path, node, file });
    }
    let columns = columns(&sources)?;
    let mut table = TableBuilder::new(columns.iter().map(String::as_str));
    for number in 0..sources.len() {
        read_rows(&mut sources, number, &columns, &mut table)?;
    }
    let table = table.build();
    let table = table.map_err(|(place, error)| describe(&sources, place, &error))?;
    Ok((columns, table))
}

/// The columns of all sources, besides the key and the name.
fn columns(sources: &[Source<'_>]) -> Result<Vec<String>, Finding> {
    let mut all: Vec<String> = Vec::new();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    for source in sources {
        let columns: Vec<_> = source.file.columns.iter().collect();
        let wrong = |message: String| {
            let help = "the first line names the columns, as in `key,name,plan`";
            source.wrong(0, "", message).help(help)
        };
        for needed in [KEY, NAME] {
            if !columns.contains(&needed) {
                return Err(wrong(format!("there is no column `{needed}`")));
            }
        }
        for (column, number) in columns.iter().zip(1..) {
            // Without its text: a file without a header begins with a key.
            if column.is_empty() || column.len() > 64 || !column.chars().all(is_allowed) {
                let message = "expected a name of up to 64 letters, digits and `_.-`";
                return Err(wrong(format!("column {number}: {message}")));
            }
            if columns[..number - 1].contains(column) {
                return Err(wrong(format!("column {number}: this name stands twice")));
            }
            if ![KEY, NAME].contains(column) && !all.iter().any(|known| known == column) {
                all.push((*column).to_owned());
            }
        }
        if all.len() > MAX_COLUMNS {
            return Err(wrong(format!(
                "more than {MAX_COLUMNS} columns besides key and name"
            )));
        }
    }
    Ok(all)
}

fn read_rows(
    sources: &mut [Source<'_>],
    number: usize,
    columns: &[String],
    table: &mut TableBuilder,
) -> Result<(), Finding> {
    let header = sources[number].file.columns.clone();
    let at = |wanted: &str| header.iter().position(|column| column == wanted);
    let places: Vec<_> = columns.iter().map(|column| at(column)).collect();
    let mut row = StringRecord::new();
    loop {
        let begin = match sources[number].file.read(&mut row) {
            Ok(Some(begin)) => begin,
            Ok(None) => return Ok(()),
            Err(error) => return Err(sources[number].wrong(error.at, "", error.message)),
        };
        let wrong = |column: &str, why: &str| sources[number].wrong(begin, column, why);
        let value = |place: Option<usize>| place.and_then(|at| row.get(at)).unwrap_or("");
        let (key, name) = (value(at(KEY)), value(at(NAME)));
        let digest = read_key(key).map_err(|why| wrong(KEY, why))?;
        if name.is_empty() {
            return Err(wrong(NAME, "the name is empty"));
        }
        let values = places.iter().map(|place| value(*place));
        let texts = columns.iter().map(String::as_str).zip(values.clone());
        let mut texts = texts.chain([(NAME, name)]);
        if let Some((column, why)) = texts.find_map(|(name, text)| Some((name, wrong_text(text)?)))
        {
            return Err(wrong(column, why));
        }
        let place = (number as u16, begin as u32);
        let added = table.add(digest, name, values, place);
        added.map_err(|error| describe(sources, place, &error))?;
    }
}

/// Describes an error of a row without its values.
fn describe(sources: &[Source<'_>], (number, at): Place, error: &RowError) -> Finding {
    let source = &sources[usize::from(number)];
    let row = |(number, at): &Place| sources[usize::from(*number)].row((*at).into());
    match error {
        RowError::SameKey { first } => {
            let why = format!("the key stands in {} too", row(first));
            let finding = source.wrong(at.into(), "", why);
            finding.help("remove one: a key is of one client")
        }
        RowError::Differs { column, first } => {
            let why = format!("the same client has another value in {}", row(first));
            let finding = source.wrong(at.into(), column, why);
            finding.help("give all keys of a client the same values, or another name")
        }
        RowError::TooMany => source.wrong(at.into(), "", "too many clients"),
    }
}

/// The clients in place, as a file has them.
fn listed(list: &List<Table<Text, Hidden<Text>>>) -> Vec<u8> {
    let mut columns: Vec<&str> = Vec::new();
    for (column, _) in list.iter().flat_map(|client| client.iter()) {
        if !columns.contains(&column.as_str()) {
            columns.push(column.as_str());
        }
    }
    let mut text = write_row(&columns, false);
    for client in list.iter() {
        let value = |wanted: &&str| {
            let mut all = client.iter();
            let found = all.find(|(column, _)| column.as_str() == *wanted);
            found.map_or("", |(_, value)| value.reveal().as_str())
        };
        let row: Vec<_> = columns.iter().map(value).collect();
        text.append(&mut write_row(&row, false));
    }
    text
}

impl Compiler<'_> {
    /// Reads the clients.
    pub(crate) fn clients(&mut self, config: &Config) -> Option<ClientsSpec> {
        let clients = config.clients.as_ref()?;
        if self.key_files == KeyFiles::Unread {
            return None;
        }
        let mut contents = Vec::new();
        for file in clients.files.iter() {
            // They decide about requests, also if nothing is forwarded.
            let (path, content) = self.read_as(file, MAX_FILE, KeyFiles::Needed)?;
            let lines = memchr::memchr_iter(b'\n', &content).count();
            let hash = SipHasher13::new().hash(&content);
            contents.push((Some(path.display().to_string()), file.node, content));
            self.lists.insert(path, (lines.saturating_sub(1), hash));
        }
        if !clients.list.is_empty() {
            contents.push((None, clients.list.node, listed(&clients.list)));
        }
        let read = read(&contents).and_then(|(columns, table)| {
            let label = clients.metric_label.as_ref();
            check_columns(config, label, &columns, &table)?;
            Ok(table)
        });
        Some(ClientsSpec {
            clients: rules::Clients {
                identify_by: clients.identify_by.credentials(),
                table: self.found(read)?,
            },
            metric_label: clients.metric_label.as_ref().map(ToString::to_string),
        })
    }
}

/// Checks that there are the columns that the configuration names, and that the label has few values.
fn check_columns(
    config: &Config,
    label: Option<&Located<Text>>,
    columns: &[String],
    table: &ClientTable,
) -> Result<(), Finding> {
    let used = config.used_parts().filter_map(|(part, node)| match part {
        KeyPart::ClientColumn(name) => Some((name, node)),
        _ => None,
    });
    for (name, node) in used.chain(label.map(|label| (label.to_string(), label.node))) {
        if !columns.contains(&name) {
            let message = format!("the clients have no column `{name}`");
            let known: Vec<_> = columns.iter().map(String::as_str).collect();
            let help = nearest::phrase(nearest::nearest(&name, &known), &known, "columns");
            return Err(Finding::error(node, Code::UnknownName, message).help(help));
        }
    }
    let Some(label) = label else { return Ok(()) };
    let column = table.column(label);
    let count = column.map_or(0, |column| table.distinct(column).count());
    if count > MAX_LABELS {
        let message = format!("`{label}` has {count} values; {MAX_LABELS} can be labels");
        let help = "name a column with fewer: each value is a series of every limit";
        return Err(invalid(label.node, message).help(help));
    }
    Ok(())
}

/// The number of keys in clear text in this file.
pub(crate) fn clear_text_keys(content: &[u8]) -> usize {
    let Ok(mut file) = CsvFile::new(content) else {
        return 0;
    };
    let key = file.columns.iter().position(|column| column == KEY);
    let (mut row, mut count) = (StringRecord::new(), 0);
    while let Ok(Some(_)) = file.read(&mut row) {
        let key = key.and_then(|key| row.get(key));
        count += usize::from(key.is_some_and(|key| !key.starts_with(DIGEST)));
    }
    count
}
