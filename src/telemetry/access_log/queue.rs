//! One worker's lines until the writer takes them: fixed parts in one list, texts in one run of bytes.
//!
//! Copying the texts is cheaper than keeping clones of header values: those would pin what
//! each head was read into.

use std::{net::IpAddr, time::Duration};

use http::Version;

use super::Record;
use crate::clock::Timestamp;

/// Lines, and bytes of texts, that one queue holds: about 4 MiB at most.
const LINES: usize = 16 * 1024;
const BYTES: usize = 2 * 1024 * 1024;

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub(super) struct Queue {
    lines: Vec<Line>,
    texts: Vec<u8>,
}

#[derive(Debug)]
struct Line {
    time: Timestamp,
    client_ip: IpAddr,
    version: Version,
    status: u16,
    bytes: u64,
    duration: Duration,
    delay: Option<Duration>,
    upstream: Option<Duration>,
    decision: &'static str,
    /// Lengths of the texts, in the order of [`texts`].
    lengths: [u32; TEXTS],
}

const TEXTS: usize = 8;

fn texts<'a>(record: &Record<'a>) -> [&'a [u8]; TEXTS] {
    [
        record.method,
        record.host,
        record.path,
        record.route,
        record.policy,
        record.referer,
        record.user_agent,
        record.request_id,
    ]
}

impl Queue {
    /// Adds a line; returns whether there was room.
    pub(super) fn push(&mut self, record: &Record<'_>) -> bool {
        let texts = texts(record);
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        if self.lines.len() >= LINES || self.texts.len() + bytes > BYTES {
            return false;
        }
        // Each is at most `BYTES`.
        let lengths = texts.map(|text| text.len() as u32);
        texts
            .iter()
            .for_each(|text| self.texts.extend_from_slice(text));
        self.lines.push(Line {
            time: record.time,
            client_ip: record.client_ip,
            version: record.version,
            status: record.status,
            bytes: record.bytes,
            duration: record.duration,
            delay: record.delay,
            upstream: record.upstream,
            decision: record.decision,
            lengths,
        });
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Calls `each` with every line, oldest first, and forgets them.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&Record<'_>)) {
        let mut rest = &self.texts[..];
        for line in &self.lines {
            let [
                method,
                host,
                path,
                route,
                policy,
                referer,
                user_agent,
                request_id,
            ] = line.lengths.map(|length| {
                let (text, after) = rest.split_at(length as usize);
                rest = after;
                text
            });
            each(&Record {
                time: line.time,
                client_ip: line.client_ip,
                method,
                host,
                path,
                version: line.version,
                status: line.status,
                bytes: line.bytes,
                duration: line.duration,
                delay: line.delay,
                upstream: line.upstream,
                route,
                policy,
                decision: line.decision,
                referer,
                user_agent,
                request_id,
            });
        }
        self.lines.clear();
        self.texts.clear();
    }
}
