//! One worker's lines, until the writer takes them.
//!
//! They are written out where they arise: a request's texts are in the cache then, and are copied once. To hand over
//! what a line is made of costs more than to make it (docs/performance.md).

use super::{Format, Record, format::Formatter};

/// How much is written at once, in bytes: what fits into a fast cache with what else a worker needs.
pub(super) const BATCH: usize = 64 * 1024;

/// Bytes of lines that one queue takes.
const MOST: usize = 2 * 1024 * 1024;

/// Lines that wait to be written.
#[derive(Debug)]
pub(super) struct Queue {
    formatter: Formatter,
    lines: Lines,
}

/// Lines, each with its newline.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) text: Vec<u8>,
    /// How many they are.
    pub(super) count: u64,
}

/// What has become of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It waits.
    Waits,
    /// It waits, and with it there is enough to be written.
    IsDue,
    /// There was no room for it.
    Dropped,
}

impl Queue {
    pub(super) fn new(format: Format) -> Self {
        Queue {
            formatter: Formatter::new(format),
            lines: Lines::default(),
        }
    }

    /// Adds a line.
    pub(super) fn push(&mut self, record: &Record<'_>) -> Pushed {
        let lines = &mut self.lines;
        let before = lines.text.len();
        if before >= MOST {
            return Pushed::Dropped;
        }
        self.formatter.write(&mut lines.text, record);
        lines.count += 1;
        match before < BATCH && lines.text.len() >= BATCH {
            true => Pushed::IsDue,
            false => Pushed::Waits,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.count == 0
    }

    /// Takes the lines, and leaves `room` for those to come.
    pub(super) fn take(&mut self, room: Lines) -> Lines {
        std::mem::replace(&mut self.lines, room)
    }
}

impl Lines {
    /// Forgets the lines, and gives back what room a burst of them took.
    pub(super) fn clear(&mut self) {
        if self.text.len() < BATCH {
            self.text.shrink_to(2 * BATCH);
        }
        self.text.clear();
        self.count = 0;
    }
}
