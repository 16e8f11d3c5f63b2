//! One worker's lines, until the writer takes them.
//!
//! They are written out where they arise: a request's texts are in the cache then, and are copied
//! once. To hand over what a line is made of costs more than to make it.

use super::format::Formatter;
use super::{AccessLogSpec, Record};

/// How much is written at once, and for how much the writer is woken, in bytes: what fits into a
/// fast cache with what else a worker needs.
pub(super) const BATCH: usize = 64 * 1024;

/// Bytes of lines that one queue takes.
const CAPACITY: usize = 2 * 1024 * 1024;

/// Lines that wait to be written.
#[derive(Debug)]
pub(super) struct Queue {
    formatter: Formatter,
    /// Each ends with a newline, and has no other.
    lines: Vec<u8>,
}

/// The outcome of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushResult {
    /// It waits.
    Queued,
    /// It waits, and with it there is enough to be written.
    BatchReady,
    /// There was no room for it.
    Dropped,
}

impl Queue {
    pub(super) fn new(spec: &AccessLogSpec) -> Self {
        Queue {
            formatter: Formatter::new(spec),
            lines: Vec::new(),
        }
    }

    /// Adds a line.
    pub(super) fn push(&mut self, record: &Record<'_>) -> PushResult {
        let before = self.lines.len();
        if before >= CAPACITY {
            return PushResult::Dropped;
        }
        self.formatter.write(&mut self.lines, record);
        if before < BATCH && self.lines.len() >= BATCH {
            PushResult::BatchReady
        } else {
            PushResult::Queued
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Takes the lines, and leaves `room` for those to come.
    pub(super) fn take(&mut self, room: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.lines, room)
    }
}

/// The lines in parts of about [`BATCH`] bytes.
pub(super) fn batches(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = lines;
    std::iter::from_fn(move || {
        let from = BATCH.min(rest.len()).checked_sub(1)?;
        let end = memchr::memchr(b'\n', &rest[from..]).map_or(rest.len(), |at| from + at + 1);
        let (batch, after) = rest.split_at(end);
        rest = after;
        Some(batch)
    })
}

/// Forgets the lines, and gives back what room a burst of them took.
pub(super) fn clear(lines: &mut Vec<u8>) {
    let were_few = lines.len() < BATCH;
    lines.clear();
    if were_few {
        lines.shrink_to(2 * BATCH);
    }
}
