//! The file of a snapshot: replaced as a whole or not at all, and renamed if it is unusable.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{PolicyKeyRules, ReadError, Reader, SnapshotWriter};
use crate::clock::Timestamp;
use crate::files;
use crate::limiter::Secret;
use crate::store::Table;

/// The right to replace a snapshot, which one process has at a time; it ends with this value.
#[derive(Debug)]
pub struct SnapshotLock(#[expect(dead_code, reason = "open, it is locked")] File);

/// Locks the snapshot at `path`, by a file beside it that stays there (`.lock`). Returns `None` if
/// another process has the lock.
///
/// # Errors
/// The system's error: some file systems have no locks.
pub fn lock(path: &Path) -> io::Result<Option<SnapshotLock>> {
    files::replaceable(path)?;
    let beside = files::beside(path, ".lock");
    files::replaceable(&beside)?;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(beside)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(SnapshotLock(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Writes a snapshot of these tables, each with its policy's key, and of these keys to `file`, as
/// [`files::replace`] takes it.
///
/// # Errors
/// The system's error.
pub fn write<'a>(
    file: File,
    secret: &Secret,
    now: Timestamp,
    tables: impl IntoIterator<Item = (&'a str, &'a Table)>,
    keys: impl IntoIterator<Item = PolicyKeyRules<'a>>,
) -> io::Result<File> {
    let mut writer = SnapshotWriter::new(file, secret, now)?;
    for (key, table) in tables {
        writer.table(key, table, now)?;
    }
    writer.finish(keys)
}

/// Opens and checks the snapshot at `path`; `None` if there is none.
///
/// # Errors
/// The reason why the file is not read.
pub fn open(path: &Path, now: Timestamp) -> Result<Option<Reader<File>>, ReadError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
            return Ok(None);
        }
        // Opening a pipe would wait for its writer.
        _ => files::replaceable(path)?,
    };
    Reader::new(File::open(path)?, now).map(Some)
}

/// Renames the file or link at `path`, so that the next snapshot does not replace it, and returns its
/// new path.
///
/// # Errors
/// The system's error.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    files::replaceable(path)?;
    let aside = files::beside(path, ".unusable");
    fs::rename(path, &aside)?;
    Ok(aside)
}
