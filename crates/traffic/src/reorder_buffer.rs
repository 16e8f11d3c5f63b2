//! The order in which requests came. Servers write a line when its response ends, so that a long
//! request stands behind shorter ones that came after it.
//!
//! Lines wait here, and leave by their times. The buffer is bounded: a line that comes behind more
//! lines than fit is decided late.

use std::collections::BTreeMap;
use std::io::Read;

use limiter::Timestamp;

use crate::log::{LogEntry, LogLine, LogReader, ReadError};

/// The most lines that wait.
const MAX_LINES: usize = 1 << 16;
/// The most bytes of the lines that wait.
const MAX_BYTES: usize = 32 << 20;

/// The lines of a log by the times of their entries; see [`LogReader::by_time`].
#[derive(Debug)]
pub struct ByTime<R> {
    lines: LogReader<R>,
    waiting: ReorderBuffer<LogEntry>,
    /// The end of the log, and why it came early.
    end: Option<Option<ReadError>>,
}

impl<R: Read> ByTime<R> {
    pub(crate) const fn new(lines: LogReader<R>) -> Self {
        Self {
            lines,
            waiting: ReorderBuffer::new(),
            end: None,
        }
    }

    /// The earliest line, if it need not wait any more.
    fn pop(&mut self) -> Option<LogLine> {
        let (number, entry) = match self.end {
            Some(_) => self.waiting.pop(),
            None => self.waiting.pop_excess(),
        }?;
        let entry = Ok(entry);
        Some(LogLine { number, entry })
    }
}

impl<R: Read> Iterator for ByTime<R> {
    type Item = Result<LogLine, ReadError>;

    /// The next line. What was read before an error comes before it.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(line) = self.pop() {
                return Some(Ok(line));
            }
            if let Some(end) = &mut self.end {
                return end.take().map(Err);
            }
            match self.lines.next_with_length() {
                Ok(Some((LogLine { number, entry }, bytes))) => match entry {
                    Ok(entry) => self.waiting.push((entry.time, number), bytes, entry),
                    Err(_) => return Some(Ok(LogLine { number, entry })),
                },
                Ok(None) => self.end = Some(None),
                Err(error) => self.end = Some(Some(error)),
            }
        }
    }
}

/// Lines that wait for earlier ones, by time and then by number.
#[derive(Debug)]
struct ReorderBuffer<T> {
    waiting: BTreeMap<(Timestamp, u64), WaitingLine<T>>,
    /// The sum of the lines' bytes.
    bytes: usize,
}

#[derive(Debug)]
struct WaitingLine<T> {
    entry: T,
    /// Bytes of the line in the log.
    bytes: usize,
}

impl<T> ReorderBuffer<T> {
    const fn new() -> Self {
        ReorderBuffer {
            waiting: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Adds the line with this number and this many bytes.
    fn push(&mut self, (time, number): (Timestamp, u64), bytes: usize, entry: T) {
        self.bytes += bytes;
        let line = WaitingLine { entry, bytes };
        self.waiting.insert((time, number), line);
    }

    /// Takes the earliest line if more lines wait than fit.
    fn pop_excess(&mut self) -> Option<(u64, T)> {
        let is_full = self.waiting.len() > MAX_LINES || self.bytes > MAX_BYTES;
        is_full.then(|| self.pop()).flatten()
    }

    /// Takes the earliest line; of equal times, the line that stands first in the log.
    fn pop(&mut self) -> Option<(u64, T)> {
        let ((_, number), line) = self.waiting.pop_first()?;
        self.bytes -= line.bytes;
        Some((number, line.entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers in the order in which lines of these times and bytes leave the buffer.
    fn order(lines: impl IntoIterator<Item = (u64, usize)>) -> Vec<u64> {
        let mut buffer = ReorderBuffer::new();
        let mut order = Vec::new();
        for ((time, bytes), number) in lines.into_iter().zip(1..) {
            buffer.push((Timestamp::from_micros(time), number), bytes, ());
            while let Some((number, ())) = buffer.pop_excess() {
                order.push(number);
            }
            assert!(buffer.waiting.len() <= MAX_LINES && buffer.bytes <= MAX_BYTES);
        }
        order.extend(std::iter::from_fn(|| buffer.pop()).map(|(number, ())| number));
        assert_eq!(buffer.bytes, 0);
        order
    }

    #[test]
    fn lines_leave_by_time_and_equal_times_as_they_stand() {
        assert_eq!(order([(5, 1), (9, 1), (4, 1), (5, 1)]), [3, 1, 4, 2]);
        assert_eq!(order([]), [0; 0]);
    }

    #[test]
    fn a_line_overtakes_as_many_lines_and_bytes_as_fit() {
        let late = |before: usize, bytes: usize| {
            let others = std::iter::repeat_n((9, bytes), before);
            let order = order(others.chain([(1, bytes)]));
            order.iter().position(|number| *number == before as u64 + 1)
        };
        assert_eq!(late(MAX_LINES, 1), Some(0));
        assert_eq!(late(MAX_LINES + 3, 1), Some(3));
        assert_eq!(late(32, 1 << 20), Some(0));
        assert_eq!(late(35, 1 << 20), Some(3));
        // One line may be larger than all that may wait.
        assert_eq!(order([(2, MAX_BYTES + 1), (1, 1)]), [1, 2]);
    }
}
