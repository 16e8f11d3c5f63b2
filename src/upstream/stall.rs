//! Stalled hosts: one that takes requests and sends no response to anybody, while the others of the
//! upstream do. Found long before its requests time out, from counts that are compared a few times
//! a second.
//!
//! The test is Fisher's exact test, of one side. If the host works, and gets the same kinds of
//! requests as the others, then it is chance which of all requests are the slow ones. [`chance`] is
//! the probability that all requests of the silent host are among them. Slow requests on all hosts,
//! such as long polls, make it large, and no host is found.

use std::time::Duration;

use tokio::time::Instant;

/// The fewest requests without a response at a stalled host.
const UNANSWERED: u64 = 3;

/// The shortest silence of a stalled host.
const SILENCE: Duration = Duration::from_millis(500);

/// The largest probability of silence by chance: 1 in 3,000.
const CHANCE: f64 = 1.0 / 3000.0;

/// The responses of others meanwhile that show a host on probation to be stalled.
const PROBATION: u64 = 10;

/// The most requests of the silent host that are looked at: more would only be less likely.
const SAMPLE: u64 = 100;

/// Requests and heads of responses: of a host since the start, or in a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Without those that failed.
    pub requests: u64,
    pub heads: u64,
}

impl Progress {
    /// The sum of both.
    pub(super) fn and(self, other: Progress) -> Progress {
        Progress {
            requests: self.requests + other.requests,
            heads: self.heads + other.heads,
        }
    }

    /// This sum without one of its parts.
    pub(super) fn without(self, part: Progress) -> Progress {
        Progress {
            requests: self.requests.saturating_sub(part.requests),
            heads: self.heads.saturating_sub(part.heads),
        }
    }
}

/// The silence of a host.
#[derive(Debug)]
pub(super) struct Silence {
    /// The last instant at which it answered, or had been sent no request since.
    since: Instant,
    /// Its counts at the last observation.
    last: Progress,
    /// Its requests since, none of which has a response.
    unanswered: u64,
    /// The requests of the others since.
    others: Progress,
    /// How long the silence had lasted when it could no longer be chance.
    telling: Option<Duration>,
}

impl Silence {
    /// A silence that begins now, of a host with these counts.
    pub(super) fn new(counts: Progress, now: Instant) -> Self {
        Silence {
            since: now,
            last: counts,
            unanswered: 0,
            others: Progress::default(),
            telling: None,
        }
    }

    /// The progress since the last observation.
    pub(super) fn progress(&self, counts: Progress) -> Progress {
        counts.without(self.last)
    }

    /// Notes the host's counts, and the progress of all others since the last observation.
    pub(super) fn observe(&mut self, counts: Progress, others: Progress, now: Instant) {
        let own = self.progress(counts);
        let unanswered = self.unanswered + own.requests;
        if own.heads > 0 || unanswered == 0 {
            *self = Silence {
                // Those that have come since, at most.
                unanswered: own.requests.saturating_sub(own.heads),
                ..Silence::new(counts, now)
            };
            return;
        }
        self.last = counts;
        self.unanswered = unanswered;
        self.others = self.others.and(others);
        if self.telling.is_none() && chance(self.unanswered, self.others) <= CHANCE {
            self.telling = Some(now.saturating_duration_since(self.since));
        }
    }

    /// Returns true if the host, at which requests wait, is stalled.
    ///
    /// A host that is only somewhat slower than the others answers soon after them: so the silence
    /// must last twice as long as it took to tell.
    pub(super) fn is_stall(&self, now: Instant) -> bool {
        let lasted = now.saturating_duration_since(self.since);
        self.unanswered >= UNANSWERED
            && lasted >= SILENCE
            && self.telling.is_some_and(|telling| lasted >= 2 * telling)
    }

    /// Returns true if a host on probation is stalled, whose one request waits.
    pub(super) fn is_stall_on_probation(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= SILENCE && self.others.heads >= PROBATION
    }
}

/// The probability that chance alone leaves all `silent` requests of one host without a response, if
/// the others' requests had as many responses as they had: the hypergeometric distribution.
fn chance(silent: u64, others: Progress) -> f64 {
    let answered = others.heads.min(others.requests);
    let all = silent + others.requests;
    let unanswered = all - answered;
    let each = (0..silent.min(SAMPLE)).map(|one| (unanswered - one) as f64 / (all - one) as f64);
    each.product()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);

    /// The tick at which a host is found stalled, if it has been sent `requests(tick)` in all, has
    /// answered `heads(tick)` of them, and the others make this progress in each tick.
    fn found(
        requests: impl Fn(u64) -> u64,
        heads: impl Fn(u64) -> u64,
        others: impl Fn(u64) -> Progress,
    ) -> Option<u64> {
        let mut now = Instant::now();
        let mut silence = Silence::new(Progress::default(), now);
        (1..300).find(|&tick| {
            now += TICK;
            let (requests, heads) = (requests(tick), heads(tick));
            silence.observe(Progress { requests, heads }, others(tick), now);
            requests > heads && silence.is_stall(now)
        })
    }

    /// All requests of the others have a response.
    fn answered(requests: u64) -> Progress {
        Progress {
            requests,
            heads: requests,
        }
    }

    #[test]
    fn the_chance_is_that_of_the_hypergeometric_distribution() {
        let close = |chance: f64, odds: f64| (chance * odds - 1.0).abs() < 1e-9;
        assert!(close(chance(5, answered(10)), 3003.0));
        assert!(close(chance(7, answered(7)), 3432.0));
        // Two of ten requests of the others are slow as well: C(5, 3) of C(13, 3).
        let others = Progress {
            requests: 10,
            heads: 8,
        };
        assert!(close(chance(3, others), 28.6));
        // Responses to requests from before.
        let late = Progress {
            requests: 0,
            heads: 50,
        };
        assert_eq!(chance(3, late), 1.0);
        assert!(chance(1_000_000, answered(1_000_000)) < CHANCE);
    }

    #[test]
    fn a_host_that_hangs_under_load_is_found_after_half_a_second() {
        let at = found(|tick| 7 * tick, |_| 0, |_| answered(14));
        assert_eq!(at, Some(5));
    }

    #[test]
    fn a_host_that_hangs_after_it_worked_is_found() {
        let at = found(|tick| 7 * tick, |tick| 7 * tick.min(50), |_| answered(14));
        assert_eq!(at, Some(55));
    }

    /// Each client waits at the host in the end. The host is the first in turn: of as few responses
    /// as possible.
    #[test]
    fn few_clients_suffice() {
        let clients = |clients: u64, hosts: u64| {
            let others = (clients - 1) * (hosts - 1);
            let once = move |tick| answered(if tick == 1 { others } else { 0 });
            found(|_| clients, |_| 0, once)
        };
        for (hosts, fewest) in [(2, 8), (3, 6), (5, 5), (10, 4), (100, 3)] {
            assert_eq!(clients(fewest, hosts), Some(5), "{hosts} hosts");
            assert_eq!(clients(fewest - 1, hosts), None, "{hosts} hosts");
        }
    }

    /// Clients give up after two seconds, and come back.
    #[test]
    fn requests_that_clients_gave_up_count() {
        let rounds = |tick: u64| tick.div_ceil(20);
        let others = |tick| answered(if tick % 20 == 1 { 4 } else { 0 });
        assert_eq!(found(|tick| 2 * rounds(tick), |_| 0, others), Some(82));
    }

    #[test]
    fn a_host_that_is_somewhat_slower_is_not_stalled() {
        // All are asked at once. The others answer after two seconds, the host after three.
        let others = |tick| match tick {
            1 => Progress {
                requests: 40,
                heads: 0,
            },
            20 => Progress {
                requests: 0,
                heads: 40,
            },
            _ => answered(0),
        };
        let heads = |tick| if tick < 30 { 0 } else { 20 };
        assert_eq!(found(|_| 20, heads, others), None);
        assert_eq!(found(|_| 20, |_| 0, others), Some(40));
    }

    #[test]
    fn a_host_that_answers_now_and_then_is_not_stalled() {
        let at = found(|tick| 100 + 7 * tick, |tick| tick / 4, |_| answered(1_000));
        assert_eq!(at, None);
    }

    #[test]
    fn long_polls_on_all_hosts_are_no_stall() {
        let polls = |heads| Progress {
            requests: 20,
            heads,
        };
        assert_eq!(found(|tick| 10 * tick, |_| 0, |_| polls(0)), None);
        // Some of the others' are answered.
        let polls_at_first = |tick| match tick {
            1 => Progress {
                requests: 100,
                heads: 0,
            },
            _ => answered(1),
        };
        assert_eq!(found(|_| 3, |_| 0, polls_at_first), None);
    }

    #[test]
    fn silence_without_requests_does_not_count() {
        let at = found(
            |tick| if tick < 200 { 0 } else { 20 },
            |_| 0,
            |_| answered(100),
        );
        assert_eq!(at, Some(204));
    }

    #[test]
    fn a_host_on_probation_is_found_by_its_only_request() {
        let mut now = Instant::now();
        let mut silence = Silence::new(Progress::default(), now);
        let one = Progress {
            requests: 1,
            heads: 0,
        };
        let found = (1..10).find(|_| {
            now += TICK;
            silence.observe(one, answered(5), now);
            silence.is_stall_on_probation(now)
        });
        assert_eq!(found, Some(5));
    }
}
