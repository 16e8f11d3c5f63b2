//! The file of a snapshot: replaced as a whole or not at all, and put aside where it cannot be used.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{PolicyBans, ReadError, Reader, Writer};
use crate::clock::Timestamp;
use crate::files;
use crate::limiter::Secret;
use crate::store::Table;

/// Replaces the snapshot at `path` by one of these tables, each with the key of its policy, and these bans. Only the
/// owner can read it.
///
/// # Errors
/// What the system says. Then the snapshot before is what it was, and what was written of this one is
/// gone.
pub fn save<'a>(
    path: &Path,
    secret: &Secret,
    now: Timestamp,
    tables: impl IntoIterator<Item = (&'a str, &'a Table)>,
    bans: impl IntoIterator<Item = PolicyBans<'a>>,
) -> io::Result<()> {
    files::replaceable(path)?;
    let new = beside(path, ".new");
    let saved = write(&new, secret, now, tables, bans).and_then(|()| fs::rename(&new, path));
    if let Err(error) = saved {
        // There may be none, and room for it is what may be missing.
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn write<'a>(
    path: &Path,
    secret: &Secret,
    now: Timestamp,
    tables: impl IntoIterator<Item = (&'a str, &'a Table)>,
    bans: impl IntoIterator<Item = PolicyBans<'a>>,
) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut writer = Writer::new(file, secret, bans, now)?;
    for (key, table) in tables {
        writer.table(key, table, now)?;
    }
    writer.finish()?.sync_all()
}

/// Opens the snapshot at `path`, and checks it; `None` if there is none.
///
/// # Errors
/// Why it is not to be read.
pub fn open(path: &Path, now: Timestamp) -> Result<Option<Reader<File>>, ReadError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // Opening a pipe would wait for somebody to write to it.
        _ => files::replaceable(path)?,
    };
    Reader::new(File::open(path)?, now).map(Some)
}

/// Gives what is at `path` another name, and says which, so that the next snapshot does not replace it.
///
/// # Errors
/// What the system says.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = beside(path, ".unusable");
    fs::rename(path, &aside)?;
    Ok(aside)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
