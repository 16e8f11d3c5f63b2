//! Stalled hosts: one that takes requests and sends no response to anybody, while the others of the
//! upstream do. Found long before its requests time out, from counts that are compared a few times
//! a second.
//!
//! The test: let the others send `n` responses while this host is silent, and let its share of the
//! requests be `p` for each of theirs. A host that works, and gets the same kinds of requests, is
//! silent by chance with a probability of at most `e^-np` (Poisson). [`EXPECTED`] bounds `np`. Slow
//! requests on all hosts, such as long polls, make no host send responses, and none is found.

use std::time::Duration;

use tokio::time::Instant;

/// The fewest requests that wait at a stalled host.
const WAITING: u64 = 5;

/// The shortest silence of a stalled host.
const SILENCE: Duration = Duration::from_millis(500);

/// The responses that the host would have sent meanwhile: silence by chance has a probability of
/// `e^-10`, 1 in 22,000.
const EXPECTED: f64 = 10.0;

/// The counts of a host, or the sums of several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Heads of responses since the start.
    pub heads: u64,
    /// Requests that wait for a head.
    pub waiting: u64,
    /// The share of the requests that it gets: weight by slow start.
    pub share: u64,
}

impl Load {
    /// The sum of several.
    pub(super) fn sum(loads: &[Load]) -> Self {
        loads.iter().fold(Load::default(), |all, one| Load {
            heads: all.heads + one.heads,
            waiting: all.waiting + one.waiting,
            share: all.share + one.share,
        })
    }

    /// This sum without one of its parts.
    pub(super) fn without(&self, part: &Load) -> Self {
        Load {
            heads: self.heads - part.heads,
            waiting: self.waiting - part.waiting,
            share: self.share - part.share,
        }
    }
}

/// The silence of a host.
#[derive(Debug)]
pub(super) struct Silence {
    /// The last instant at which it answered, or had no request.
    since: Instant,
    /// Its responses at the last observation.
    heads: u64,
    /// Responses of the others since.
    others: u64,
    /// Responses that were expected of it since.
    expected: f64,
}

impl Silence {
    pub(super) fn new(now: Instant) -> Self {
        Silence {
            since: now,
            heads: 0,
            others: 0,
            expected: 0.0,
        }
    }

    /// The responses since the last observation.
    pub(super) fn new_heads(&self, load: &Load) -> u64 {
        load.heads.saturating_sub(self.heads)
    }

    /// Notes the host's load, and the responses of all others since the last observation.
    pub(super) fn observe(&mut self, load: &Load, others: &Load, other_heads: u64, now: Instant) {
        let is_silent = load.waiting > 0 && load.heads == self.heads;
        self.heads = load.heads;
        if !is_silent {
            (self.since, self.others, self.expected) = (now, 0, 0.0);
            return;
        }
        self.others += other_heads;
        if others.share > 0 {
            self.expected += other_heads as f64 * load.share as f64 / others.share as f64;
        }
    }

    /// Returns true if the host is stalled.
    ///
    /// The expectation by shares holds for hosts that are picked at random. A host with more
    /// requests in flight may be picked less: then as many responses are expected of it as of the
    /// same number of requests at the others.
    pub(super) fn is_stall(&self, load: &Load, others: &Load, now: Instant) -> bool {
        let all = self.others + others.waiting;
        let answered = match all {
            0 => 0.0,
            all => load.waiting as f64 * self.others as f64 / all as f64,
        };
        load.waiting >= WAITING
            && now.saturating_duration_since(self.since) >= SILENCE
            && self.expected.min(answered) >= EXPECTED
    }

    /// Returns true if a host on probation is stalled, which gets one request at a time.
    pub(super) fn is_stall_on_probation(&self, load: &Load, now: Instant) -> bool {
        load.waiting > 0
            && now.saturating_duration_since(self.since) >= SILENCE
            && self.others as f64 >= EXPECTED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);

    /// A host of three with equal shares.
    fn load(heads: u64, waiting: u64) -> Load {
        Load {
            heads,
            waiting,
            share: 256,
        }
    }

    fn others(waiting: u64) -> Load {
        Load {
            share: 512,
            ..load(0, waiting)
        }
    }

    /// The tick at which the host is found stalled, if it has `waiting(tick)` requests, sends
    /// `heads(tick)` responses in all, and the others send `other_heads` a tick.
    fn found(
        waiting: impl Fn(u64) -> u64,
        heads: impl Fn(u64) -> u64,
        other_heads: u64,
        others_waiting: u64,
    ) -> Option<u64> {
        let mut now = Instant::now();
        let mut silence = Silence::new(now);
        (1..300).find(|&tick| {
            now += TICK;
            let (load, others) = (load(heads(tick), waiting(tick)), others(others_waiting));
            silence.observe(&load, &others, other_heads, now);
            silence.is_stall(&load, &others, now)
        })
    }

    #[test]
    fn a_host_that_hangs_under_load_is_found_after_half_a_second() {
        let at = found(|tick| 7 * tick, |_| 0, 14, 2);
        assert_eq!(at, Some(5));
    }

    #[test]
    fn a_host_that_hangs_after_it_worked_is_found() {
        let at = found(
            |tick| 7 * tick.saturating_sub(49),
            |tick| 7 * tick.min(50),
            14,
            2,
        );
        assert_eq!(at, Some(55));
    }

    #[test]
    fn a_host_that_answers_now_and_then_is_not_stalled() {
        assert_eq!(found(|_| 100, |tick| tick / 4, 1_000, 2), None);
    }

    #[test]
    fn long_polls_on_all_hosts_are_no_stall() {
        assert_eq!(found(|tick| 10 * tick, |_| 0, 0, 1_000), None);
        // One in a hundred is answered on the others: too few to expect ten of forty.
        assert_eq!(found(|_| 40, |_| 0, 1, 10_000), None);
    }

    #[test]
    fn few_requests_are_no_stall() {
        assert_eq!(found(|_| 4, |_| 0, 1_000, 0), None);
        assert_eq!(found(|_| 9, |_| 0, 1_000, 0), None);
        assert_eq!(found(|_| 10, |_| 0, 1_000, 0), Some(5));
    }

    #[test]
    fn silence_without_requests_does_not_count() {
        let at = found(|tick| if tick < 200 { 0 } else { 20 }, |_| 0, 100, 0);
        assert_eq!(at, Some(204));
    }

    #[test]
    fn a_host_on_probation_is_found_by_its_only_request() {
        let mut now = Instant::now();
        let mut silence = Silence::new(now);
        let (one, rest) = (load(0, 1), others(0));
        let found = (1..10).find(|_| {
            now += TICK;
            silence.observe(&one, &rest, 5, now);
            silence.is_stall_on_probation(&one, now)
        });
        assert_eq!(found, Some(5));
    }
}
