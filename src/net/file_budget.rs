//! The open files that connections to upstreams may take. The rest of what the system lets the
//! process open is for clients, the admin listener, Redis and logs: no traffic can take it.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use tokio::time::{Instant, timeout};

use super::permits::Permits;

/// The files of this process for connections to upstreams. Without a limit until [`limit`].
///
/// [`limit`]: FileBudget::limit
pub static UPSTREAMS: FileBudget = FileBudget::new();

/// How long a connection waits for a file: idle connections give way several times a second.
const WAIT: Duration = Duration::from_millis(250);

/// How long operators see a shortage after the last time that it was noticed: scrapes are rare.
const SHORTAGE_SHOWN: Duration = Duration::from_secs(60);

const ALL_IN_USE: &str = "connections to upstreams use all of their files";

/// A file for one connection, until dropped.
#[derive(Debug)]
pub(crate) struct FilePermit(&'static Permits);

impl Drop for FilePermit {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A number of open files.
#[derive(Debug)]
pub struct FileBudget {
    permits: Permits,
    /// When the system last refused a file, or another thing that a connection needs, and its error;
    /// none if all files of upstreams were in use.
    shortage: Mutex<Option<(Instant, Option<Errno>)>>,
}

impl FileBudget {
    const fn new() -> Self {
        Self {
            permits: Permits::new(Permits::MAX),
            shortage: Mutex::new(None),
        }
    }

    /// Allows at most this many files. Those in use stay.
    pub fn limit(&self, files: usize) {
        self.permits.resize(files.min(Permits::MAX));
    }

    /// A file for a connection. Waits a moment for one if all are in use.
    ///
    /// # Errors
    /// When no idle connection has given way.
    pub(crate) async fn take(&'static self) -> io::Result<FilePermit> {
        if !self.permits.try_acquire() && timeout(WAIT, self.permits.acquire()).await.is_err() {
            let error = io::Error::other(ALL_IN_USE);
            self.note_shortage(&error);
            return Err(error);
        }
        Ok(FilePermit(&self.permits))
    }

    /// Returns true while idle connections have to give way.
    pub(crate) fn is_scarce(&self) -> bool {
        self.permits.available() <= self.permits.max() / 8
    }

    /// Notes that a connection failed for the lack of something on this machine.
    pub(crate) fn note_shortage(&self, error: &io::Error) {
        *self.shortage.lock() = Some((Instant::now(), Errno::from_io_error(error)));
    }

    /// Returns what this machine lacked when a connection lately failed, with what to do.
    pub fn shortage(&self) -> Option<String> {
        let (at, errno) = (*self.shortage.lock())?;
        (at.elapsed() < SHORTAGE_SHOWN).then(|| shortage_text(errno))
    }
}

fn shortage_text(errno: Option<Errno>) -> String {
    let own = || {
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.map_or_else(|| "unlimited".to_owned(), |files| files.to_string());
        format!("raise the limit of open files (ulimit -n, LimitNOFILE=), now {limit}")
    };
    match errno {
        None => format!("{ALL_IN_USE}; {}", own()),
        Some(Errno::MFILE) => format!("the process has no file left; {}", own()),
        Some(Errno::NFILE) => "the machine has no file left; raise fs.file-max".to_owned(),
        Some(Errno::ADDRNOTAVAIL) => {
            "no local port is free; widen net.ipv4.ip_local_port_range".to_owned()
        }
        Some(Errno::NOBUFS | Errno::NOMEM) => "the kernel has no memory for sockets".to_owned(),
        Some(other) => other.to_string(),
    }
}

/// Returns true if a call failed for the lack of something on this machine: files, memory, ports.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    static FILES: FileBudget = FileBudget::new();

    #[tokio::test(start_paused = true)]
    async fn connections_beyond_the_limit_wait_for_one_that_gives_way() {
        FILES.limit(8);
        let mut permits = Vec::new();
        for left in (0..8).rev() {
            permits.push(FILES.take().await.expect("one is free"));
            assert_eq!(FILES.is_scarce(), left <= 1, "{left}");
        }
        let begun = Instant::now();
        assert!(FILES.take().await.is_err());
        assert_eq!(begun.elapsed(), WAIT);
        let idle = permits.pop();
        let gives_way = async {
            tokio::time::sleep(WAIT / 2).await;
            drop(idle);
        };
        assert!(tokio::join!(FILES.take(), gives_way).0.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_shortage_is_shown_for_a_while() {
        let files = FileBudget::new();
        assert_eq!(files.shortage(), None);
        for (error, expected) in [
            (
                Errno::MFILE.into(),
                "the process has no file left; raise the limit of open files",
            ),
            (Errno::ADDRNOTAVAIL.into(), "no local port is free"),
            (io::Error::other(ALL_IN_USE), ALL_IN_USE),
        ] {
            files.note_shortage(&error);
            let shown = files.shortage().expect("it was noted");
            assert!(shown.starts_with(expected), "{shown}");
        }
        tokio::time::advance(SHORTAGE_SHOWN).await;
        assert_eq!(files.shortage(), None);
    }

    #[test]
    fn only_what_this_machine_lacks_is_a_shortage() {
        for (errno, expected) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::ADDRNOTAVAIL, true),
            (Errno::CONNREFUSED, false),
            (Errno::HOSTUNREACH, false),
        ] {
            assert_eq!(is_shortage(&errno.into()), expected, "{errno}");
        }
    }
}
