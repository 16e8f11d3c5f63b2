//! Files that are opened without waiting for another process: opening a pipe waits until somebody opens its other end.

use std::ffi::OsString;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::bytes::Regex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

/// How long reading waits for somebody to open a pipe.
const WRITER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long reading waits for the next bytes of a pipe.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// The metadata that change when a file is written or replaced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl FileVersion {
    /// The version of the file at `path` now, or of a link to nothing; `None` where there is none.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).or_else(|_| fs::symlink_metadata(path));
        let metadata = metadata.ok()?;
        Some(FileVersion {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// A file, or all files of a [`list`], in the versions before they were read: any later version is a
/// change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionedFile {
    /// The place of the file, or a pattern.
    pub path: PathBuf,
    /// The files that are there, with their places.
    pub versions: Vec<(PathBuf, FileVersion)>,
}

impl VersionedFile {
    /// The file at `path`, which is about to be read.
    pub fn new(path: PathBuf) -> Self {
        let found = list(&path).unwrap_or_default();
        Self::found(path, found)
    }

    /// The files `found` for `path`, which are about to be read.
    pub fn found(path: PathBuf, found: Vec<PathBuf>) -> Self {
        let found = found.into_iter();
        let versions = found.filter_map(|path| Some((FileVersion::of(&path)?, path)));
        let versions = versions.map(|(version, path)| (path, version)).collect();
        VersionedFile { path, versions }
    }
}

/// Returns the file that a path names, which need not exist; or, if there is a `*` (any letters) or
/// a `?` (any one) in its last part, the files that match, by name. Directories, and names that begin
/// with a dot, match nothing.
///
/// # Errors
/// When the directory can't be read.
pub fn list(pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    if !name.contains(['*', '?']) {
        return Ok(vec![pattern.to_owned()]);
    }
    let letters = regex::escape(&name).replace(r"\*", ".*");
    let letters = format!("^(?s:{})$", letters.replace(r"\?", "."));
    let letters = Regex::new(&letters).map_err(io::Error::other)?;
    let directory = pattern.parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for entry in fs::read_dir(Path::new(".").join(directory))? {
        let name = entry?.file_name();
        let path = directory.join(&name);
        let is_hidden = name.as_bytes().starts_with(b".");
        if !is_hidden && letters.is_match(name.as_bytes()) && !path.is_dir() {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The byte order mark of UTF-8, which some editors write.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads a whole file, which may be a pipe that somebody writes to, such as `<(command)` of a shell.
/// A byte order mark at its start is left out.
///
/// # Errors
/// The system's error; [`ErrorKind::FileTooLarge`] beyond `most` bytes; [`ErrorKind::TimedOut`] for
/// a pipe without bytes for 30 s; anything but files, pipes with a writer and character devices.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, kind) = open(OpenOptions::new().read(true), path)?;
    let mut bytes = if kind.is_fifo() {
        read_pipe(&file, most, SILENCE_TIMEOUT)?
    } else {
        fcntl_setfl(&file, OFlags::empty())?;
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes)?;
        bytes
    };
    if bytes.len() as u64 > most {
        return Err(ErrorKind::FileTooLarge.into());
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

/// Opens a file to write at its end; it is made if there is none.
///
/// # Errors
/// The system's error; anything but files, pipes with a reader and character devices.
pub fn append(path: &Path) -> io::Result<File> {
    let (file, _) = open(OpenOptions::new().append(true).create(true), path)?;
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

/// Checks that what is at `path`, if anything, is a file: another kind must not be read as one, nor replaced.
///
/// # Errors
/// The system's error; the kind of what is there instead.
pub fn replaceable(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(()),
        Ok(found) => Err(wrong_kind(found.file_type())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Replaces the file at `path`, or the link there, by what `write` writes, as a whole or not at all.
/// Only the owner can read it.
///
/// # Errors
/// The system's error. The previous file stays, and the unfinished one is removed.
pub fn replace(path: &Path, write: impl FnOnce(File) -> io::Result<File>) -> io::Result<()> {
    replaceable(path)?;
    let new = unfinished(path);
    let saved = create(&new)
        .and_then(|file| write(file)?.sync_all())
        .and_then(|()| fs::rename(&new, path));
    if let Err(error) = saved {
        // The file may not exist, and missing disk space may be the reason.
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// The file in which [`replace`] begins.
pub fn unfinished(path: &Path) -> PathBuf {
    beside(path, ".new")
}

/// A new file that only the owner can read.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// The path with this behind it.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Opens a file that does not block, of a kind that can be read or written like a file.
fn open(options: &mut OpenOptions, path: &Path) -> io::Result<(File, FileType)> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.custom_flags(flags).open(path).map_err(|error| {
        // ENXIO: a pipe that nobody reads, or a socket (open(2)).
        match fs::metadata(path) {
            _ if error.raw_os_error() != Some(Errno::NXIO.raw_os_error()) => error,
            Ok(found) if !found.file_type().is_fifo() => wrong_kind(found.file_type()),
            _ => other("it is a pipe without a reader; start the reader first, or name a file"),
        }
    })?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_fifo() || kind.is_char_device() {
        Ok((file, kind))
    } else {
        Err(wrong_kind(kind))
    }
}

fn wrong_kind(kind: FileType) -> io::Error {
    if kind.is_dir() {
        return ErrorKind::IsADirectory.into();
    }
    other(match () {
        () if kind.is_fifo() => "it is a pipe; name a file",
        () if kind.is_socket() => "it is a socket; name a file",
        () => "it is a device; name a file",
    })
}

/// Reads a pipe that does not block to its end, or to the first byte beyond `most`.
fn read_pipe(pipe: &File, most: u64, silent: Duration) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut has_waited = false;
    loop {
        let room = (most + 1).saturating_sub(bytes.len() as u64);
        match pipe.take(room).read_to_end(&mut bytes) {
            Ok(_) if !bytes.is_empty() => return Ok(bytes),
            // Nobody has it open, or not yet.
            Ok(_) if has_waited => {
                return Err(other("it is a pipe without a writer; name a file"));
            }
            Ok(_) => {
                has_waited = true;
                wait(pipe, WRITER_TIMEOUT)?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !wait(pipe, silent)? {
                    let what =
                        format!("it is a pipe, and nothing was written to it for {silent:?}");
                    return Err(io::Error::new(ErrorKind::TimedOut, what));
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Waits until a pipe has bytes or has ended; returns false at the deadline.
fn wait(pipe: &impl AsFd, deadline: Duration) -> io::Result<bool> {
    let deadline = Timespec::try_from(deadline).map_err(io::Error::other)?;
    let mut asked = [PollFd::new(pipe, PollFlags::IN)];
    match poll(&mut asked, Some(&deadline)) {
        Err(Errno::INTR) => Ok(true),
        ready => Ok(ready? > 0),
    }
}

fn other(message: &'static str) -> io::Error {
    io::Error::other(message)
}

#[cfg(test)]
mod tests;
