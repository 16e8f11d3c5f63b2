//! The circuit breaker of a server, and the pauses between probes: pure arithmetic on instants.
//!
//! No I/O, no clock and no lock: `node` has those.

use std::time::Duration;

use tokio::time::Instant;

/// The time-outs in a row that open the breaker: with the default deadline, 300 ms of silence. A
/// single one is a lost packet or a fork.
const TIME_OUTS: u32 = 3;

/// The longest pause between probes. With the deadline of connecting it stays below a second, the
/// bound for recovery.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The pause after the first probe that fails; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The time without failure after which a server's pauses begin anew.
const STEADY_AFTER: Duration = Duration::from_secs(5);

/// The circuit breaker of a server. A new one is open until a first probe succeeds.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    state: State,
    /// Probes failed in a row.
    failures: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Closed {
        /// The instant of closing. Calls begun earlier no longer count.
        since: Instant,
        time_outs: u32,
        /// The instant of the last counted time-out. Calls under way at that instant waited for the
        /// same silence.
        counted: Instant,
    },
}

impl Breaker {
    /// True if no call may be sent.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// True if a time-out counts against the server.
    pub fn is_suspect(&self) -> bool {
        matches!(self.state, State::Closed { time_outs: 1.., .. })
    }

    /// Records a successful probe.
    pub fn close(&mut self, now: Instant) {
        self.state = State::Closed {
            since: now,
            time_outs: 0,
            counted: now,
        };
    }

    /// Records an answer.
    pub fn answered(&mut self) {
        if let State::Closed { time_outs, .. } = &mut self.state {
            *time_outs = 0;
        }
    }

    /// Records that a call begun at `started` timed out; returns true if that opens the breaker.
    ///
    /// Time-outs of calls that waited at once count as one.
    pub fn timed_out(&mut self, started: Instant, now: Instant) -> bool {
        let State::Closed {
            time_outs, counted, ..
        } = &mut self.state
        else {
            return false;
        };
        if started < *counted {
            return false;
        }
        *time_outs += 1;
        *counted = now;
        *time_outs >= TIME_OUTS && self.open(now)
    }

    /// Records that a call begun at `started` showed the server out of use; returns true if that
    /// opens the breaker.
    pub fn failed(&mut self, started: Instant, now: Instant) -> bool {
        match self.state {
            State::Closed { since, .. } if started >= since => self.open(now),
            _ => false,
        }
    }

    /// Records a failed probe; returns true if that opens the breaker.
    pub fn probe_failed(&mut self, now: Instant) -> bool {
        let opened = !self.is_open() && self.open(now);
        self.failures = self.failures.saturating_add(1);
        opened
    }

    /// The pause before the next probe. The first probe comes at once. `random` spreads the others
    /// over the second half of their pause, so that machines do not return together.
    pub fn pause(&self, random: u64) -> Duration {
        let Some(doublings) = self.failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let pause = FIRST_PAUSE.saturating_mul(1 << doublings.min(10));
        let half = pause.min(LONGEST_PAUSE) / 2;
        let spread = (half.as_micros() * u128::from(random)) >> 64;
        half + Duration::from_micros(spread as u64)
    }

    fn open(&mut self, now: Instant) -> bool {
        if let State::Closed { since, .. } = self.state
            && now - since >= STEADY_AFTER
        {
            self.failures = 0;
        }
        self.state = State::Open;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Instant {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        *START + Duration::from_millis(millis)
    }

    fn closed(millis: u64) -> Breaker {
        let mut breaker = Breaker::default();
        breaker.close(at(millis));
        breaker
    }

    #[test]
    fn nothing_is_sent_before_a_probe_has_succeeded() {
        let mut breaker = Breaker::default();
        assert!(breaker.is_open());
        breaker.answered();
        assert!(breaker.is_open());
        breaker.close(at(1));
        assert!(!breaker.is_open());
    }

    #[test]
    fn three_time_outs_in_a_row_open_the_breaker() {
        let mut breaker = closed(0);
        assert!(!breaker.timed_out(at(10), at(30)));
        assert!(breaker.is_suspect());
        assert!(!breaker.timed_out(at(30), at(50)));
        assert!(breaker.timed_out(at(50), at(70)));
        assert!(breaker.is_open());
        assert!(!breaker.timed_out(at(70), at(90)), "it is open already");
    }

    #[test]
    fn calls_that_waited_at_the_same_time_count_once() {
        let mut breaker = closed(0);
        for call in 0..1_000 {
            assert!(!breaker.timed_out(at(10), at(30 + call / 100)));
        }
        assert!(!breaker.is_open());
    }

    #[test]
    fn an_answer_resets_the_time_outs() {
        let mut breaker = closed(0);
        for round in 0..100 {
            assert!(!breaker.timed_out(at(round * 50), at(round * 50 + 20)));
            assert!(!breaker.timed_out(at(round * 50 + 20), at(round * 50 + 40)));
            breaker.answered();
        }
        assert!(!breaker.is_open());
    }

    #[test]
    fn calls_from_before_the_closing_do_not_open_the_breaker() {
        let mut breaker = closed(100);
        assert!(!breaker.failed(at(99), at(120)));
        for late in 0..10 {
            assert!(!breaker.timed_out(at(99), at(120 + late)));
        }
        assert!(!breaker.is_open());
        assert!(breaker.failed(at(100), at(120)));
    }

    #[test]
    fn the_first_probe_comes_at_once_and_a_flapping_server_keeps_its_pause() {
        let mut breaker = closed(0);
        assert!(breaker.failed(at(1), at(2)));
        assert_eq!(breaker.pause(u64::MAX), Duration::ZERO);
        for _ in 0..20 {
            breaker.probe_failed(at(3));
        }
        assert!(breaker.pause(0) >= LONGEST_PAUSE / 2);
        breaker.close(at(10));
        assert!(breaker.failed(at(11), at(12)));
        assert!(breaker.pause(0) >= LONGEST_PAUSE / 2, "it flaps");
        breaker.close(at(20));
        assert!(breaker.failed(at(6_000), at(6_000)));
        assert_eq!(breaker.pause(0), Duration::ZERO, "it was well for long");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Answer,
        TimeOut,
        Fail,
        Probe(bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::TimeOut),
            2 => Just(Step::Answer),
            1 => Just(Step::Fail),
            2 => any::<bool>().prop_map(Step::Probe),
        ]
    }

    proptest! {
        /// The breaker is open exactly from a failure, or the third time-out in a row, to the next
        /// successful probe.
        #[test]
        fn the_breaker_is_open_from_a_failure_to_a_successful_probe(steps in prop::collection::vec((step(), 0..1_000_u64), 0..200)) {
            let mut breaker = Breaker::default();
            let (mut open, mut row, mut now) = (true, 0, 0);
            for (step, waited) in steps {
                let started = now;
                now += waited + 1;
                match step {
                    Step::Answer => { breaker.answered(); row = 0; }
                    Step::TimeOut => {
                        row += 1;
                        let opened = breaker.timed_out(at(started), at(now));
                        prop_assert_eq!(opened, !open && row == TIME_OUTS);
                        open |= opened;
                    }
                    Step::Fail => {
                        prop_assert_eq!(breaker.failed(at(started), at(now)), !open);
                        open = true;
                    }
                    Step::Probe(true) => { breaker.close(at(now)); open = false; row = 0; }
                    Step::Probe(false) => {
                        prop_assert_eq!(breaker.probe_failed(at(now)), !open);
                        open = true;
                    }
                }
                if open { row = 0; }
                prop_assert_eq!(breaker.is_open(), open);
            }
        }

        #[test]
        fn no_pause_is_longer_than_the_longest(failures in 0..200_u32, random: u64) {
            let breaker = Breaker { failures, ..Breaker::default() };
            prop_assert!(breaker.pause(random) <= LONGEST_PAUSE);
        }
    }
}
