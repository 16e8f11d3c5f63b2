//! One worker's lines, until the writer takes them.
//!
//! They are written out where they arise: a request's texts are in the cache then, and are copied
//! once. To hand over what a line is made of costs more than to make it.

use super::{AccessLogSpec, Record, format::Formatter};

/// How much is written at once, and for how much the writer is woken, in bytes: what fits into a
/// fast cache with what else a worker needs.
pub(super) const BATCH: usize = 64 * 1024;

/// Bytes of lines that one queue takes.
const CAPACITY: usize = 2 * 1024 * 1024;

/// Lines that wait to be written.
#[derive(Debug)]
pub(super) struct Queue {
    formatter: Formatter,
    lines: LineBatch,
}

/// Lines, each with the newline that ends it and no other.
#[derive(Debug, Default)]
pub(super) struct LineBatch(pub(super) Vec<u8>);

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
            lines: LineBatch::default(),
        }
    }

    /// Adds a line.
    pub(super) fn push(&mut self, record: &Record<'_>) -> PushResult {
        let LineBatch(text) = &mut self.lines;
        let before = text.len();
        if before >= CAPACITY {
            return PushResult::Dropped;
        }
        self.formatter.write(text, record);
        if before < BATCH && text.len() >= BATCH {
            PushResult::BatchReady
        } else {
            PushResult::Queued
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Takes the lines, and leaves `room` for those to come.
    pub(super) fn take(&mut self, room: LineBatch) -> LineBatch {
        std::mem::replace(&mut self.lines, room)
    }
}

impl LineBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lines in parts of about [`BATCH`] bytes.
    pub(super) fn batches(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let from = BATCH.min(rest.len()).checked_sub(1)?;
            let end = memchr::memchr(b'\n', &rest[from..]).map_or(rest.len(), |at| from + at + 1);
            let (batch, after) = rest.split_at(end);
            rest = after;
            Some(batch)
        })
    }

    /// Forgets the lines, and gives back what room a burst of them took.
    pub(super) fn clear(&mut self) {
        let were_few = self.0.len() < BATCH;
        self.0.clear();
        if were_few {
            self.0.shrink_to(2 * BATCH);
        }
    }
}
