//! The writer's thread: takes what is queued, writes it, sleeps.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use tracing::{error, info};

use crate::files;

use super::{AccessLogSpec, LogTarget, SharedQueues, queue};

/// How long lines wait to be written together, unless they are enough before.
const INTERVAL: Duration = Duration::from_millis(10);

/// Owns the file, and everything that is only the writer's.
pub(super) struct LogWriter {
    shared: Arc<SharedQueues>,
    /// Swapped with those of each queue in turn, so that workers wait for a swap only.
    taken: Vec<u8>,
    target: LogTarget,
    sink: Box<dyn Write + Send>,
    /// True if the last write failed, so that a full disk is reported once.
    failing: bool,
    /// True if the file may end in half a line.
    ends_in_partial_line: bool,
}

impl LogWriter {
    pub(super) fn open(spec: &AccessLogSpec, shared: Arc<SharedQueues>) -> io::Result<Self> {
        Ok(Self {
            shared,
            taken: Vec::new(),
            target: spec.target.clone(),
            sink: open(&spec.target)?,
            failing: false,
            ends_in_partial_line: false,
        })
    }

    /// Writes until the log is closed.
    pub(super) fn run(mut self) {
        loop {
            if self.shared.reopen.swap(false, Relaxed) {
                self.reopen();
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
        let mut taken = std::mem::take(&mut self.taken);
        for index in 0..self.shared.queues.len() {
            taken = self.shared.queues[index].lock().take(taken);
            for lines in queue::batches(&taken) {
                if !self.write(lines) {
                    let lost = memchr::memchr_iter(b'\n', lines).count();
                    self.shared.dropped.add(lost as u64);
                }
            }
            any |= !taken.is_empty();
            queue::clear(&mut taken);
        }
        self.taken = taken;
        any
    }

    /// Writes whole lines; returns whether they were taken.
    fn write(&mut self, lines: &[u8]) -> bool {
        let torn: &[u8] = if self.ends_in_partial_line {
            b"\n"
        } else {
            b""
        };
        let written = self.sink.write_all(torn);
        let written = written.and_then(|()| self.sink.write_all(lines));
        let result = written.and_then(|()| self.sink.flush());
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
        let LogTarget::File(path) = &self.target else {
            return;
        };
        match open(&self.target) {
            Ok(new) => {
                self.sink = new;
                self.ends_in_partial_line = false;
                info!("access log {} reopened", path.display());
            }
            Err(error) => {
                error!("cannot reopen the access log {}: {error}", path.display());
            }
        }
    }
}

fn open(target: &LogTarget) -> io::Result<Box<dyn Write + Send>> {
    Ok(match target {
        LogTarget::Stdout => Box::new(io::stdout()),
        LogTarget::File(path) => Box::new(files::append(path)?),
    })
}
