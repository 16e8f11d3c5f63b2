//! The lines of the process's own log, until a thread has written them.
//!
//! A caller adds a line and goes on. A queue that is full because the log's reader has stalled
//! drops the line and counts it; the reader is told how many lines it missed once it takes lines
//! again.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use std::{mem, thread};

use parking_lot::{Condvar, Mutex};

/// Bytes that the queue takes. A single line may be longer.
const CAPACITY: usize = 1024 * 1024;
/// Bytes of an empty queue that are kept for the lines to come.
const KEPT_CAPACITY: usize = 16 * 1024;

/// The process's own log. Clones are one log.
#[derive(Clone, Debug)]
pub struct ProcessLog(Arc<SharedLog>);

#[derive(Debug, Default)]
struct SharedLog {
    queue: Mutex<Queue>,
    is_filled: Condvar,
    is_written: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    /// Lines that were taken are being written.
    is_writing: bool,
    dropped: u64,
    /// Dropped lines of which the reader knows.
    reported: u64,
}

impl ProcessLog {
    /// Starts the thread that writes to `sink`. It lives as long as the process.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn start(mut sink: impl Write + Send + 'static) -> io::Result<Self> {
        let log = Self(Arc::default());
        let shared = Arc::clone(&log.0);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                let mut lines = Vec::new();
                loop {
                    shared.take(&mut lines);
                    let written = write_whole(&mut sink, &lines);
                    shared.wrote(&lines[written..]);
                }
            })?;
        Ok(log)
    }

    /// Adds whole lines, or drops them if there is no room. Never waits for the writer.
    pub fn push(&self, lines: &[u8]) {
        let mut queue = self.0.queue.lock();
        let is_full = queue.lines.len() + lines.len() > CAPACITY && !queue.lines.is_empty();
        if is_full {
            queue.dropped += count(lines)
        } else {
            queue.lines.extend_from_slice(lines)
        }
        drop(queue);
        self.0.is_filled.notify_one();
    }

    /// Waits at most `deadline` for the lines so far to be written. Returns false if they are not.
    pub fn flush(&self, deadline: Duration) -> bool {
        let mut queue = self.0.queue.lock();
        let waits = |queue: &mut Queue| queue.is_writing || !queue.lines.is_empty();
        let waited = self
            .0
            .is_written
            .wait_while_for(&mut queue, waits, deadline);
        !waited.timed_out()
    }

    /// Lines that were lost: the queue was full, or they could not be written.
    pub fn dropped_lines(&self) -> u64 {
        self.0.queue.lock().dropped
    }
}

/// Receives the lines of the subscriber.
impl Write for ProcessLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SharedLog {
    /// Waits for lines, and exchanges them for `written`, which is cleared.
    fn take(&self, written: &mut Vec<u8>) {
        written.clear();
        written.shrink_to(KEPT_CAPACITY);
        let mut queue = self.queue.lock();
        self.is_filled
            .wait_while(&mut queue, |queue| queue.lines.is_empty());
        mem::swap(&mut queue.lines, written);
        queue.is_writing = true;
    }

    /// Notes that lines were written, but for those that are `lost`; tells the reader of dropped
    /// lines if it takes lines.
    fn wrote(&self, lost: &[u8]) {
        let mut queue = self.queue.lock();
        queue.is_writing = false;
        queue.dropped += count(lost);
        let untold = queue.dropped - queue.reported;
        if lost.is_empty() && untold > 0 {
            queue.reported = queue.dropped;
            let line = format!("sluicegate: {untold} lines of this log were dropped\n");
            queue.lines.extend_from_slice(line.as_bytes());
        }
        drop(queue);
        self.is_written.notify_all();
    }
}

fn count(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

/// Writes what can be written; returns how many bytes that is.
fn write_whole(sink: &mut impl Write, lines: &[u8]) -> usize {
    let mut written = 0;
    while written < lines.len() {
        match sink.write(&lines[written..]) {
            Ok(0) => break,
            Ok(length) => written += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    /// A reader that takes a line when the test does; one that has gone away is an error.
    struct Pipe(SyncSender<String>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
            let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let sent = self.0.send(line);
            sent.map(|()| end)
                .map_err(|_| io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log() -> (ProcessLog, Receiver<String>) {
        let (sender, receiver) = sync_channel(0);
        (ProcessLog::start(Pipe(sender)).expect("a thread"), receiver)
    }

    fn next(reader: &Receiver<String>) -> String {
        reader.recv_timeout(DEADLINE).expect("a line")
    }

    #[test]
    fn lines_are_written_in_order_and_a_flush_waits_for_them() {
        let (log, reader) = log();
        log.push(b"one\ntwo\n");
        log.push(b"three\n");
        assert!(!log.flush(Duration::from_millis(1)), "nobody reads");
        for line in ["one\n", "two\n", "three\n"] {
            assert_eq!(next(&reader), line);
        }
        assert!(log.flush(DEADLINE));
        assert_eq!(log.dropped_lines(), 0);
    }

    #[test]
    fn a_stalled_reader_loses_what_is_beyond_the_capacity_and_is_told() {
        let (log, reader) = log();
        let long = [vec![b'a'; CAPACITY - 1], vec![b'\n']].concat();
        log.push(b"first\n");
        // The writer holds it now, and the queue is empty.
        while !log.0.queue.lock().is_writing {
            thread::yield_now();
        }
        log.push(&long);
        log.push(b"lost\nlost\n");
        assert_eq!(log.dropped_lines(), 2);
        assert_eq!(next(&reader), "first\n");
        assert_eq!(next(&reader).len(), CAPACITY);
        let told = "sluicegate: 2 lines of this log were dropped\n";
        assert_eq!(next(&reader), told);
        log.push(b"last\n");
        assert_eq!(next(&reader), "last\n");
        assert!(log.flush(DEADLINE));
    }

    #[test]
    fn lines_for_a_reader_that_has_gone_are_counted() {
        let (log, reader) = log();
        drop(reader);
        log.push(b"one\ntwo\n");
        assert!(log.flush(DEADLINE));
        assert_eq!(log.dropped_lines(), 2);
    }
}
