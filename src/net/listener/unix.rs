//! Listening Unix sockets, and their files.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{Mode, OFlags, fstat, lstat};
use socket2::{Domain, SockAddr, Socket, Type};

/// The file of a listening socket, removed when dropped unless another socket has replaced it, or it
/// is another process's.
#[derive(Debug)]
pub(crate) struct SocketFile {
    is_own: Arc<AtomicBool>,
    path: PathBuf,
    /// Open, so that no other file gets its number.
    file: OwnedFd,
}

impl SocketFile {
    /// The file at `path`, to be removed if `is_own` is true at the end.
    pub(super) fn open(path: &Path, is_own: Arc<AtomicBool>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self {
            is_own,
            path: path.to_owned(),
            file: rustix::fs::open(path, flags, Mode::empty())?,
        })
    }

    /// Leaves the file to another process.
    pub(crate) fn leave(mut self) {
        // Others may share the flag, and be removed by this process.
        self.is_own = Arc::default();
    }

    /// Returns true if the path leads to this file.
    fn is_in_place(&self) -> io::Result<bool> {
        let (own, found) = (fstat(&self.file)?, lstat(&self.path)?);
        Ok((own.st_dev, own.st_ino) == (found.st_dev, found.st_ino))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_own.load(Relaxed) && self.is_in_place().unwrap_or(false) {
            // A file that stays is removed at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens a socket at `path`, and `count` handles to it: SO_REUSEPORT does not spread connections over
/// Unix sockets. The file's mode follows the umask. The file of a process that was killed is removed.
///
/// # Errors
/// [`ErrorKind::AddrInUse`] if a process listens there, [`ErrorKind::AlreadyExists`] if the file is no
/// socket, or the system's error.
pub(super) fn bind(path: &Path, count: usize) -> io::Result<(Vec<Socket>, SocketFile)> {
    let first = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            remove_stale(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    let file = SocketFile::open(path, Arc::new(true.into()))?;
    let first = Socket::from(first);
    first.set_nonblocking(true)?;
    let more = (1..count).map(|_| first.try_clone());
    let mut sockets = more.collect::<io::Result<Vec<_>>>()?;
    sockets.push(first);
    Ok((sockets, file))
}

/// Removes the file of a socket that no process listens on.
fn remove_stale(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A process whose queue is full must not delay the start.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => Err(ErrorKind::AddrInUse.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn workers_share_one_socket() {
        let directory = directory();
        let path = directory.path().join("s");
        let (sockets, file) = bind(&path, 3).expect("a free path");
        for socket in &sockets {
            let client = UnixStream::connect(&path).expect("listening");
            socket.accept().expect("any worker may accept it");
            drop(client);
        }
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn the_file_of_a_process_that_was_killed_is_replaced() {
        let directory = directory();
        let path = directory.path().join("s");
        let (sockets, file) = bind(&path, 2).expect("a free path");
        std::mem::forget(file);
        let live = bind(&path, 1).expect_err("a process listens");
        assert_eq!(live.kind(), ErrorKind::AddrInUse);
        drop(sockets);
        assert!(path.exists());
        bind(&path, 1).expect("nobody listens");
    }

    #[test]
    fn other_files_stay() {
        let directory = directory();
        let path = directory.path().join("file");
        fs::write(&path, "text").expect("a file");
        let error = bind(&path, 1).expect_err("no socket");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).expect("it stays"), b"text");
        let datagrams = directory.path().join("datagrams");
        let _socket = UnixDatagram::bind(&datagrams).expect("a free path");
        let error = bind(&datagrams, 1).expect_err("another kind of socket");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn the_file_of_a_successor_stays() {
        let directory = directory();
        let path = directory.path().join("s");
        let (sockets, first) = bind(&path, 1).expect("a free path");
        drop(sockets);
        let (_sockets, second) = bind(&path, 1).expect("nobody listens");
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
