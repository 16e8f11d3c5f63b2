//! How far a file has been read, on a terminal: one line of stderr that is written over.

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::clock::{Clock, Timestamp};

/// How often the line is written.
const INTERVAL: Duration = Duration::from_millis(100);
/// Returns to the beginning of the line, and clears it.
const CLEAR: &str = "\r\x1b[K";

/// A reader that shows how far it has come. The line is gone when it is dropped.
pub(super) struct Progress<R> {
    input: R,
    read: u64,
    /// In bytes, where it is known.
    size: Option<u64>,
    shown: Option<Shown>,
}

struct Shown {
    clock: Clock,
    next: Timestamp,
}

impl<R> Progress<R> {
    /// Shows how much of `size` bytes has been read from `input`.
    pub(super) fn shown(input: R, size: Option<u64>) -> Self {
        let clock = Clock::system();
        let next = clock.now().saturating_add(INTERVAL);
        Progress {
            shown: Some(Shown { clock, next }),
            ..Self::hidden(input, size)
        }
    }

    /// Shows nothing.
    pub(super) fn hidden(input: R, size: Option<u64>) -> Self {
        Progress {
            input,
            read: 0,
            size,
            shown: None,
        }
    }
}

impl<R: Read> Read for Progress<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(buffer)?;
        self.read += length as u64;
        if let Some(shown) = &mut self.shown
            && shown.is_due()
        {
            // Nobody misses a line that a terminal does not take.
            _ = write!(io::stderr(), "{CLEAR}{}", text(self.read, self.size));
        }
        Ok(length)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        _ = write!(io::stderr(), "{CLEAR}");
    }
}

impl Shown {
    fn is_due(&mut self) -> bool {
        let now = self.clock.now();
        let is_due = now >= self.next;
        if is_due {
            self.next = now.saturating_add(INTERVAL);
        }
        is_due
    }
}

/// A bar where the size is known, else how much was read.
fn text(read: u64, size: Option<u64>) -> String {
    const WIDTH: u64 = 40;
    let megabytes = read / 1_000_000;
    match size.filter(|size| *size > 0) {
        None => format!("{megabytes} MB"),
        Some(size) => {
            let share =
                |of: u64| (u128::from(read.min(size)) * u128::from(of) / u128::from(size)) as usize;
            let bar = "#".repeat(share(WIDTH));
            let width = WIDTH as usize;
            format!("[{bar:<width$}] {:>3} %, {megabytes} MB", share(100))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_grows_with_what_is_read() {
        let bar = |read| text(read, Some(2_000_000));
        assert_eq!(bar(0), format!("[{}]   0 %, 0 MB", " ".repeat(40)));
        assert_eq!(
            bar(1_000_000),
            format!("[{:<40}]  50 %, 1 MB", "#".repeat(20))
        );
        // A log that grows meanwhile.
        assert_eq!(bar(9_000_000), format!("[{}] 100 %, 9 MB", "#".repeat(40)));
        assert_eq!(text(7_900_000, None), "7 MB");
    }
}
