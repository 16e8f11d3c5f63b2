//! Counts of a host's requests. Those of a request that meets no fault cost two locked
//! instructions; all others are derived.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::upstream::stall::Progress;

/// The evidence of an attempt about its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum HostEvidence {
    /// It works.
    Good,
    /// It failed.
    Failed,
    /// It took no connection.
    NoConnection,
    /// Nothing: the client, this machine or the time for the whole request ended the attempt.
    Excused,
}

/// Counts of a host's requests since the start.
#[derive(Debug, Default)]
pub(in crate::upstream) struct HostCounts {
    started: AtomicU64,
    /// Requests of which the client has not sent all.
    owed: AtomicU64,
    /// Requests that got the head of a response.
    heads: AtomicU64,
    /// Requests that ended without one.
    headless: AtomicU64,
    /// Requests without a head that are not the host's fault.
    excused: AtomicU64,
    /// Excused requests that ended before the client had sent all.
    abandoned: AtomicU64,
    /// Failures of the host.
    failures: AtomicU64,
    /// Failures since the last good answer.
    in_a_row: AtomicU32,
    /// Responses that broke off since the last whole one.
    broken_bodies: AtomicU32,
}

/// A request that waits for the head of a response. Dropped early, its client has left.
#[derive(Debug)]
pub(in crate::upstream) struct Waiting<'a> {
    counts: &'a HostCounts,
    is_owed: bool,
}

impl HostCounts {
    /// Counts a request that waits from now on.
    pub(in crate::upstream) fn begin(&self) -> Waiting<'_> {
        self.started.fetch_add(1, Relaxed);
        Waiting {
            counts: self,
            is_owed: false,
        }
    }

    /// The counts that tell if the host is stalled.
    pub(in crate::upstream) fn progress(&self) -> Progress {
        let (waiting, heads) = (self.waiting(), self.heads());
        Progress {
            requests: (heads + waiting + self.excused.load(Relaxed))
                .saturating_sub(self.abandoned.load(Relaxed)),
            heads,
        }
    }

    /// Responses since the start.
    pub(super) fn heads(&self) -> u64 {
        self.heads.load(Relaxed)
    }

    /// Requests that wait for the head of a response, and no longer for their client.
    pub(super) fn waiting(&self) -> u64 {
        // Ends are read first: no request ends before it starts.
        let ended = self.heads.load(Relaxed) + self.headless.load(Relaxed);
        let waiting = self.started.load(Relaxed).saturating_sub(ended);
        waiting.saturating_sub(self.owed.load(Relaxed))
    }

    /// Requests that tell how the host is, and those of them that it failed.
    pub(super) fn judged(&self) -> (u64, u64) {
        let headless = self.headless.load(Relaxed);
        let judged = self.heads.load(Relaxed) + headless.saturating_sub(self.excused.load(Relaxed));
        (judged, self.failures.load(Relaxed))
    }

    pub(super) fn failures_in_a_row(&self) -> u32 {
        self.in_a_row.load(Relaxed)
    }

    pub(super) fn broken_bodies_in_a_row(&self) -> u32 {
        self.broken_bodies.load(Relaxed)
    }

    /// Forgets the failures in a row, at the start of an ejection.
    pub(super) fn forgive(&self) {
        self.in_a_row.store(0, Relaxed);
        self.broken_bodies.store(0, Relaxed);
    }

    /// Counts a response that broke off.
    pub(in crate::upstream) fn record_broken_body(&self) {
        self.failures.fetch_add(1, Relaxed);
        self.broken_bodies.fetch_add(1, Relaxed);
    }

    /// Counts a response that ended well.
    pub(in crate::upstream) fn record_whole_body(&self) {
        if self.broken_bodies.load(Relaxed) != 0 {
            self.broken_bodies.store(0, Relaxed);
        }
    }

    fn record(&self, evidence: HostEvidence, has_head: bool) {
        if has_head {
            self.heads.fetch_add(1, Relaxed)
        } else {
            self.headless.fetch_add(1, Relaxed)
        };
        match evidence {
            HostEvidence::Good if self.in_a_row.load(Relaxed) != 0 => {
                self.in_a_row.store(0, Relaxed)
            }
            HostEvidence::Good => {}
            HostEvidence::Failed | HostEvidence::NoConnection => {
                self.failures.fetch_add(1, Relaxed);
                self.in_a_row.fetch_add(1, Relaxed);
            }
            HostEvidence::Excused => {
                self.excused.fetch_add(u64::from(!has_head), Relaxed);
            }
        }
    }
}

impl Waiting<'_> {
    /// Notes if the client has to send more of the request.
    pub(in crate::upstream) fn set_owed(&mut self, is_owed: bool) {
        if self.is_owed == is_owed {
            return;
        }
        self.is_owed = is_owed;
        if is_owed {
            self.counts.owed.fetch_add(1, Relaxed);
        } else {
            self.counts.owed.fetch_sub(1, Relaxed);
        }
    }

    /// Counts the end of the wait.
    pub(in crate::upstream) fn end(mut self, evidence: HostEvidence, has_head: bool) {
        self.finish(evidence, has_head);
        std::mem::forget(self);
    }

    fn finish(&mut self, evidence: HostEvidence, has_head: bool) {
        let was_owed = self.is_owed;
        self.set_owed(false);
        self.counts.record(evidence, has_head);
        if was_owed && evidence == HostEvidence::Excused && !has_head {
            self.counts.abandoned.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.finish(HostEvidence::Excused, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_good_answer_ends_a_row_of_failures() {
        let counts = HostCounts::default();
        let verdicts = [
            HostEvidence::Failed,
            HostEvidence::Failed,
            HostEvidence::Good,
            HostEvidence::Failed,
        ];
        let rows = verdicts.map(|evidence| {
            counts.begin().end(evidence, true);
            counts.failures_in_a_row()
        });
        assert_eq!(rows, [1, 2, 0, 1]);
        assert_eq!(counts.judged(), (4, 3));
    }

    #[test]
    fn a_client_that_leaves_counts_as_nothing() {
        let counts = HostCounts::default();
        counts.begin().end(HostEvidence::NoConnection, false);
        let waiting = counts.begin();
        assert_eq!((counts.waiting(), counts.heads()), (1, 0));
        drop(waiting);
        assert_eq!((counts.waiting(), counts.judged()), (0, (1, 1)));
        assert_eq!(counts.failures_in_a_row(), 1);
    }

    #[test]
    fn a_request_that_its_client_owes_does_not_wait() {
        let counts = HostCounts::default();
        let (mut slow, whole) = (counts.begin(), counts.begin());
        slow.set_owed(true);
        assert_eq!((counts.waiting(), counts.progress().requests), (1, 1));
        whole.end(HostEvidence::Good, true);
        assert_eq!((counts.waiting(), counts.progress().requests), (0, 1));
        slow.set_owed(false);
        assert_eq!((counts.waiting(), counts.progress().requests), (1, 2));
        slow.set_owed(true);
        drop(slow);
        assert_eq!((counts.waiting(), counts.owed.load(Relaxed)), (0, 0));
        assert_eq!((counts.progress().requests, counts.judged()), (1, (1, 0)));
    }

    #[test]
    fn responses_that_break_off_have_a_row_of_their_own() {
        let counts = HostCounts::default();
        for row in 1..3 {
            counts.begin().end(HostEvidence::Good, true);
            counts.record_broken_body();
            assert_eq!(counts.broken_bodies_in_a_row(), row);
        }
        counts.record_whole_body();
        assert_eq!(counts.broken_bodies_in_a_row(), 0);
    }
}
