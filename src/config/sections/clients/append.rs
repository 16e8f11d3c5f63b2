//! A new key of a client, at the end of its file.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use aws_lc_rs::rand;
use csv::StringRecord;
use rustix::fs::{FlockOperation, flock};

use super::csv::{CsvFile, write_row};
use super::read::{DIGEST, KEY, MAX_FILE, NAME, read};
use crate::config::NodeId;
use crate::files;
use crate::rules::KeyDigest;

/// Begins every new key, so that scanners for secrets find it.
const PREFIX: &str = "sgk_";
/// The letters and digits behind that: 190 bits.
const LENGTH: usize = 32;

/// Makes a key of random letters and digits.
fn new_key() -> String {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut key = PREFIX.to_owned();
    while key.len() < PREFIX.len() + LENGTH {
        let mut bytes = [0; LENGTH];
        rand::fill(&mut bytes).expect("the system has random bytes");
        // 248 is the largest multiple of 62 in a byte: each letter is as likely as another.
        let letters = bytes.iter().filter(|&&byte| byte < 248);
        key.extend(letters.map(|byte| char::from(LETTERS[usize::from(byte % 62)])));
    }
    key.truncate(PREFIX.len() + LENGTH);
    key
}

/// The digest of a key, as files have it.
pub fn hashed_key(key: &[u8]) -> String {
    format!("{DIGEST}{}", KeyDigest::of(key).to_hex())
}

/// Adds a new key of a client to the file at `path`, which is replaced as a whole, and returns it. A
/// known client keeps its values; `values` are those of a new one, by column.
///
/// # Errors
/// The file can't be read, used or written: it stays as it is.
pub fn add_client(path: &Path, name: &str, values: &[(String, String)]) -> Result<String, String> {
    let shown = path.display().to_string();
    let system = |error: io::Error| format!("{shown}: {error}");
    // The file behind a link is replaced, not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    let directory = File::open(directory.unwrap_or(Path::new("."))).map_err(system)?;
    // Another such command waits for this one.
    flock(&directory, FlockOperation::LockExclusive).map_err(|error| system(error.into()))?;
    let mut content = match files::read(path, MAX_FILE) {
        Ok(content) => content,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let columns = values.iter().map(|(column, _)| column.as_str());
            let columns: Vec<_> = [KEY, NAME].into_iter().chain(columns).collect();
            write_row(&columns, false)
        }
        Err(error) => return Err(system(error)),
    };
    let key = new_key();
    let row = new_row(&content, &hashed_key(key.as_bytes()), name, values)?;
    if !content.ends_with(b"\n") {
        content.push(b'\n');
    }
    let row: Vec<_> = row.iter().map(String::as_str).collect();
    let has_returns = content.ends_with(b"\r\n");
    content.append(&mut write_row(&row, has_returns));
    let contents = [(Some(shown.clone()), NodeId::ROOT, content)];
    read(&contents).map_err(|finding| finding.message)?;
    let before = fs::metadata(path).ok();
    let written = files::replace(path, |mut file| {
        if let Some(before) = before {
            // Only root may give a file away.
            _ = fchown(&file, Some(before.uid()), Some(before.gid()));
            file.set_permissions(before.permissions())?;
        }
        file.write_all(&contents[0].2).map(|()| file)
    });
    written.map(|()| key).map_err(system)
}

/// The values of the new row, in the order of the file's columns.
fn new_row(
    content: &[u8],
    key: &str,
    name: &str,
    values: &[(String, String)],
) -> Result<Vec<String>, String> {
    let mut file = CsvFile::new(content).map_err(|error| error.message)?;
    let columns = file.columns.clone();
    for (column, _) in values {
        if !columns.iter().any(|known| known == column) {
            let known: Vec<_> = columns.iter().collect();
            return Err(format!(
                "there is no column `{column}`, only {}",
                known.join(", ")
            ));
        }
    }
    let at = columns.iter().position(|column| column == NAME);
    let (mut row, mut known) = (StringRecord::new(), None);
    while let Ok(Some(_)) = file.read(&mut row) {
        if at.and_then(|at| row.get(at)) == Some(name) {
            known = Some(row.clone());
            break;
        }
    }
    let value = |(place, column): (usize, &str)| match column {
        KEY => key.to_owned(),
        NAME => name.to_owned(),
        _ => {
            let mut given = values.iter();
            let given = given.find(|(known, _)| known == column);
            let known = || known.as_ref().and_then(|row| row.get(place));
            let value = given.map(|(_, value)| value.as_str()).or_else(known);
            value.unwrap_or_default().to_owned()
        }
    };
    Ok(columns.iter().enumerate().map(value).collect())
}
