//! The writer's thread: takes what is queued, writes it, sleeps.

use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use tracing::{error, info};

use crate::files;

use super::{AccessLogSpec, LogTarget, SharedQueues, queue::LineBatch};

/// How long lines wait to be written together, unless they are enough before.
const INTERVAL: Duration = Duration::from_millis(10);

/// Owns the file, and everything that is only the writer's.
pub(super) struct LogWriter {
    shared: Arc<SharedQueues>,
    output: Output,
    /// Swapped with those of each queue in turn, so that workers wait for a swap only.
    taken: LineBatch,
}

impl LogWriter {
    pub(super) fn open(spec: &AccessLogSpec, shared: Arc<SharedQueues>) -> io::Result<Self> {
        Ok(Self {
            shared,
            output: Output::open(&spec.target)?,
            taken: LineBatch::default(),
        })
    }

    /// Writes until the log is closed.
    pub(super) fn run(mut self) {
        loop {
            if self.shared.reopen.swap(false, Relaxed) {
                self.output.reopen();
            }
            // Read first, so that what was queued before the log was closed is written.
            let stop = self.shared.stop.load(Relaxed);
            let wrote = self.write_queues();
            if stop {
                break;
            }
            if wrote {
                thread::park_timeout(INTERVAL)
            } else {
                self.park()
            }
        }
        *self.shared.stopped.lock() = true;
        self.shared.at_stop.notify_all();
    }

    /// Sleeps until there is something to do.
    fn park(&self) {
        let shared = &self.shared;
        // A worker that queues after this look at its queue has seen the flag: its lock comes after ours.
        shared.parked.store(true, Relaxed);
        let idle = shared.queues.iter().all(|queue| queue.lock().is_empty());
        if idle && !shared.stop.load(Relaxed) && !shared.reopen.load(Relaxed) {
            thread::park();
        }
        shared.parked.store(false, Relaxed);
    }

    /// Writes all that is queued; returns whether there was anything.
    fn write_queues(&mut self) -> bool {
        let mut any = false;
        for queue in &self.shared.queues {
            let room = std::mem::take(&mut self.taken);
            self.taken = queue.lock().take(room);
            for lines in self.taken.batches() {
                if !self.output.write(lines) {
                    let lost = memchr::memchr_iter(b'\n', lines).count();
                    self.shared.dropped.add(lost as u64);
                }
            }
            any |= !self.taken.is_empty();
            self.taken.clear();
        }
        any
    }
}

/// Where lines go, and whether that works.
struct Output {
    sink: OpenTarget,
    /// True if the last write failed, so that a full disk is reported once.
    failing: bool,
    /// True if the file may end in half a line.
    ends_in_partial_line: bool,
}

enum OpenTarget {
    Stdout,
    File { file: File, path: PathBuf },
}

impl Output {
    fn open(target: &LogTarget) -> io::Result<Self> {
        let sink = match target {
            LogTarget::Stdout => OpenTarget::Stdout,
            LogTarget::File(path) => OpenTarget::File {
                file: files::append(path)?,
                path: path.clone(),
            },
        };
        Ok(Self {
            sink,
            failing: false,
            ends_in_partial_line: false,
        })
    }

    /// Writes whole lines; returns whether they were taken.
    fn write(&mut self, lines: &[u8]) -> bool {
        let result = match &mut self.sink {
            OpenTarget::Stdout => {
                write_all(&mut io::stdout().lock(), lines, self.ends_in_partial_line)
            }
            OpenTarget::File { file, .. } => write_all(file, lines, self.ends_in_partial_line),
        };
        self.ends_in_partial_line = result.is_err();
        match &result {
            Err(error) if !self.failing => {
                error!(
                    "cannot write the access log, lines are dropped until it can be written: {error}"
                );
            }
            Ok(()) if self.failing => info!("the access log can be written again"),
            _ => {}
        }
        self.failing = result.is_err();
        result.is_ok()
    }

    /// Opens the file anew by its name; keeps the one that is open if that fails.
    fn reopen(&mut self) {
        let OpenTarget::File { file, path } = &mut self.sink else {
            return;
        };
        match files::append(path) {
            Ok(new) => {
                *file = new;
                self.ends_in_partial_line = false;
                info!("access log {} reopened", path.display());
            }
            Err(error) => {
                error!("cannot reopen the access log {}: {error}", path.display());
            }
        }
    }
}

fn write_all(sink: &mut impl Write, lines: &[u8], torn: bool) -> io::Result<()> {
    if torn {
        sink.write_all(b"\n")?;
    }
    sink.write_all(lines)?;
    sink.flush()
}
