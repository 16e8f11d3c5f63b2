//! Reads clients from their files, and from the configuration.

use ::csv::StringRecord;

use super::Clients;
use super::csv::{CsvError, CsvFile};
use crate::config::sections::prelude::*;
use crate::proxy::ruleset::ClientsSpec;
use crate::rules::{self, ClientTable, KeyDigest, RowError, TableBuilder};

/// The column with the key, or its digest.
pub(crate) const KEY: &str = "key";
/// The column with the client's name.
pub(crate) const NAME: &str = "name";
/// The largest file, in bytes. Texts of a table have 4 GiB.
const MAX_FILE: u64 = 512 << 20;
/// The longest key, in bytes.
const MAX_KEY: usize = 4096;
/// The longest name and value, in bytes.
const MAX_VALUE: usize = 256;
/// The most columns besides the key and the name.
const MAX_COLUMNS: usize = 32;
/// The most values of a column that is a label.
const MAX_LABELS: usize = 20;
/// Begins the digest of a key.
const DIGEST: &str = "sha256:";
/// Stands for `list` among the files of a place.
const IN_PLACE: u16 = u16::MAX;

/// A value that a row can't have: its column, and why.
type WrongValue = (&'static str, String);

/// Reads a key, or its digest. The error never has its text.
fn read_key(text: &str) -> Result<KeyDigest, String> {
    match text.strip_prefix(DIGEST) {
        Some(digits) => KeyDigest::from_hex(digits)
            .ok_or_else(|| "expected 64 hexadecimal digits after `sha256:`".to_owned()),
        None if text.is_empty() => Err("the key is empty".to_owned()),
        None if text.len() > MAX_KEY => Err(format!("a key has at most {MAX_KEY} bytes")),
        None => Ok(KeyDigest::of(text.as_bytes())),
    }
}

/// The reason why a text is no name, and no value of a column.
fn wrong_text(text: &str) -> Option<String> {
    if text.len() > MAX_VALUE {
        return Some(format!("it has more than {MAX_VALUE} bytes"));
    }
    text.contains(char::is_control)
        .then(|| "it has a control character".to_owned())
}

fn is_column(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    !name.is_empty() && name.len() <= 64 && name.chars().all(is_allowed)
}

/// Adds a client. The values are those of all columns of the table.
fn add<'v>(
    table: &mut TableBuilder,
    key: &str,
    name: &str,
    values: impl Iterator<Item = &'v str> + Clone,
    place: rules::Place,
) -> Result<Result<(), RowError>, WrongValue> {
    let digest = read_key(key).map_err(|why| (KEY, why))?;
    if name.is_empty() {
        return Err((NAME, "the name is empty".to_owned()));
    }
    if let Some(why) = wrong_text(name) {
        return Err((NAME, why));
    }
    if let Some(why) = values.clone().find_map(wrong_text) {
        return Err(("", why));
    }
    Ok(table.add(digest, name, values, place))
}

/// The files of one table, in order, and what the configuration lists.
struct Sources<'a> {
    files: Vec<(String, NodeId, CsvFile<'a>)>,
    list: &'a List<Table<Text, Hidden<Text>>>,
}

impl Sources<'_> {
    /// The columns of all files and of the list, besides the key and the name.
    fn columns(&self) -> Result<Vec<String>, Finding> {
        let mut all: Vec<String> = Vec::new();
        let mut add = |column: &str| {
            if ![KEY, NAME].contains(&column) && !all.iter().any(|known| known == column) {
                all.push(column.to_owned());
            }
        };
        for (path, node, file) in &self.files {
            let columns: Vec<_> = file.columns.iter().collect();
            let wrong = |message: String| {
                let help = "the first line names the columns, as in `key,name,plan`";
                invalid(*node, format!("{path}: line {}: {message}", file.line(0))).help(help)
            };
            for needed in [KEY, NAME] {
                if !columns.contains(&needed) {
                    return Err(wrong(format!("there is no column `{needed}`")));
                }
            }
            for (place, column) in columns.iter().enumerate() {
                // Without its text: a file without a header begins with a key.
                if !is_column(column) {
                    let message = "expected letters, digits and `_.-` only";
                    return Err(wrong(format!("column {}: {message}", place + 1)));
                }
                if columns[..place].contains(column) {
                    return Err(wrong(format!(
                        "column {}: this name stands twice",
                        place + 1
                    )));
                }
                add(column);
            }
        }
        for (column, value) in self.list.iter().flat_map(|client| client.iter()) {
            if !is_column(column) {
                let finding = invalid(value.node, "a column has letters, digits and `_.-` only");
                return Err(finding.at_key().help("choose another name"));
            }
            add(column);
        }
        if all.len() > MAX_COLUMNS {
            let node = self
                .files
                .first()
                .map_or(self.list.node, |(_, node, _)| *node);
            let message = format!(
                "expected {MAX_COLUMNS} columns at most, found {}",
                all.len()
            );
            return Err(invalid(node, message).help("remove those that nothing uses"));
        }
        Ok(all)
    }

    fn table(&mut self, columns: &[String]) -> Result<ClientTable, Finding> {
        let columns: Vec<_> = columns.iter().map(String::as_str).collect();
        let mut table = TableBuilder::new(&columns);
        for number in 0..self.files.len() {
            self.read_file(number, &columns, &mut table)?;
        }
        for (client, number) in self.list.iter().zip(0..) {
            let value = |wanted: &str| {
                let mut all = client.iter();
                let found = all.find(|(column, _)| column.as_str() == wanted);
                found.map_or("", |(_, value)| value.reveal().as_str())
            };
            let values = columns.iter().map(|column| value(column));
            let place = (IN_PLACE, number);
            match add(&mut table, value(KEY), value(NAME), values, place) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(self.describe(place, &error)),
                Err((column, why)) => {
                    let which = if column.is_empty() { "a value" } else { column };
                    return Err(invalid(client.node, format!("{which}: {why}")));
                }
            }
        }
        table
            .build()
            .map_err(|(place, error)| self.describe(place, &error))
    }

    fn read_file(
        &mut self,
        number: usize,
        columns: &[&str],
        table: &mut TableBuilder,
    ) -> Result<(), Finding> {
        let (path, node, file) = &mut self.files[number];
        let wrong = |file: &CsvFile<'_>, error: CsvError| {
            let line = file.line(error.at);
            let column = error.column.filter(|column| !column.is_empty());
            let column = column.map_or(String::new(), |column| format!(", column `{column}`"));
            invalid(
                *node,
                format!("{path}: line {line}{column}: {}", error.message),
            )
        };
        let at = |wanted: &str| file.columns.iter().position(|column| column == wanted);
        let (key, name) = (at(KEY).unwrap_or_default(), at(NAME).unwrap_or_default());
        let places: Vec<_> = columns.iter().map(|column| at(column)).collect();
        let mut row = StringRecord::new();
        loop {
            let begin = match file.read(&mut row) {
                Ok(Some(begin)) => begin,
                Ok(None) => return Ok(()),
                Err(error) => return Err(wrong(file, error)),
            };
            let value = |place: &Option<usize>| place.and_then(|at| row.get(at)).unwrap_or("");
            let (key, name) = (value(&Some(key)), value(&Some(name)));
            let place = (number as u16, begin as u32);
            match add(table, key, name, places.iter().map(value), place) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(self.describe(place, &error)),
                Err((column, message)) => {
                    let mut values = columns.iter().zip(&places);
                    let wrong_value = values.find(|(_, place)| wrong_text(value(place)).is_some());
                    let column = match wrong_value {
                        Some((name, _)) if column.is_empty() => (*name).to_owned(),
                        _ => column.to_owned(),
                    };
                    let error = CsvError {
                        at: begin,
                        column: Some(column),
                        message,
                    };
                    return Err(wrong(file, error));
                }
            }
        }
    }

    /// Describes an error of a row without its values.
    fn describe(&self, place: rules::Place, error: &RowError) -> Finding {
        let line = |(number, at): rules::Place| match self.files.get(usize::from(number)) {
            Some((path, node, file)) => {
                let line = file.line(at.into());
                (*node, format!("{path}: line {line}"))
            }
            None => {
                let item = self
                    .list
                    .get(at as usize)
                    .map_or(self.list.node, |one| one.node);
                (item, format!("item {} of `list`", at + 1))
            }
        };
        let (node, place) = line(place);
        match error {
            RowError::SameKey { first } => {
                let message = format!("{place}: the key stands in {} too", line(*first).1);
                invalid(node, message).help("remove one: a key is of one client")
            }
            RowError::Differs { column, first } => {
                let message = format!(
                    "{place}, column `{column}`: the same client has another value in {}",
                    line(*first).1
                );
                invalid(node, message)
                    .help("give all keys of a client the same values, or another name")
            }
            RowError::TooMany => invalid(node, format!("{place}: too many clients")),
        }
    }
}

impl Compiler<'_> {
    /// Reads the clients.
    pub(crate) fn clients(&mut self, config: &Config) -> Option<ClientsSpec> {
        let clients = config.clients.as_ref()?;
        if self.key_files == KeyFiles::Unread {
            return None;
        }
        // They decide about requests, also if nothing is forwarded.
        let contents = clients.files.iter().filter_map(|file| {
            let (path, content) = self.read_as(file, MAX_FILE, KeyFiles::Needed)?;
            Some((path.display().to_string(), file.node, content))
        });
        let contents: Vec<_> = contents.collect();
        if contents.len() < clients.files.len() {
            return None;
        }
        let read = read(clients, &contents).and_then(|(columns, table)| {
            check_columns(config, clients, &columns, &table)?;
            Ok(table)
        });
        let table = self.found(read)?;
        Some(ClientsSpec {
            clients: rules::Clients {
                identify_by: clients.identify_by.credentials(),
                table,
            },
            metric_label: clients.metric_label.as_ref().map(ToString::to_string),
        })
    }
}

fn read(
    clients: &Clients,
    contents: &[(String, NodeId, Vec<u8>)],
) -> Result<(Vec<String>, ClientTable), Finding> {
    let files = contents.iter().map(|(path, node, content)| {
        let file = CsvFile::new(content);
        let wrong = |error: CsvError| {
            let message = format!("{path}: line 1: {}", error.message);
            invalid(*node, message)
        };
        Ok((path.clone(), *node, file.map_err(wrong)?))
    });
    let mut sources = Sources {
        files: files.collect::<Result<_, _>>()?,
        list: &clients.list,
    };
    let columns = sources.columns()?;
    let table = sources.table(&columns)?;
    Ok((columns, table))
}

/// Checks that there are the columns that the configuration names.
fn check_columns(
    config: &Config,
    clients: &Clients,
    columns: &[String],
    table: &ClientTable,
) -> Result<(), Finding> {
    let used = config.used_parts().filter_map(|(part, node)| match part {
        KeyPart::ClientColumn(name) => Some((name, node)),
        _ => None,
    });
    let label = clients.metric_label.as_ref();
    let label = label.map(|label| (label.to_string(), label.node));
    for (name, node) in used.chain(label.clone()) {
        if !columns.contains(&name) {
            let message = format!("the clients have no column `{name}`");
            let known: Vec<_> = columns.iter().map(String::as_str).collect();
            let help = nearest::phrase(nearest::nearest(&name, &known), &known, "columns");
            return Err(Finding::error(node, Code::UnknownName, message).help(help));
        }
    }
    if let Some((name, node)) = label {
        let count = table.distinct(&name).count();
        if count > MAX_LABELS {
            let message = format!("`{name}` has {count} values; {MAX_LABELS} can be labels");
            let help = "name a column with fewer: each value is a series of every limit";
            return Err(invalid(node, message).help(help));
        }
    }
    Ok(())
}

/// The number of keys in clear text in this file.
pub(crate) fn clear_text_keys(content: &[u8]) -> usize {
    let Ok(mut file) = CsvFile::new(content) else {
        return 0;
    };
    let Some(key) = file.columns.iter().position(|column| column == KEY) else {
        return 0;
    };
    let (mut row, mut count) = (StringRecord::new(), 0);
    while let Ok(Some(_)) = file.read(&mut row) {
        count += usize::from(row.get(key).is_some_and(|key| !key.starts_with(DIGEST)));
    }
    count
}
