//! Ejection: a host that fails is left out for a while, longer each time in a row. Here are the
//! rules, and the standing of one host, at instants that the caller gives.
//!
//! Not here: what counts as a failure (`attempt`), and the floor below which nobody is ejected
//! (`availability`), which looks at all hosts of an upstream.

use std::time::Duration;

use tokio::time::Instant;

/// The whole share of a host: all the requests that its weight gives it.
pub(super) const FULL: u32 = 256;

/// The least share of a host that returns: it must get requests to show that it works.
const LEAST: u32 = FULL / 10;

/// The rules of ejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectionSpec {
    /// Failures in a row that eject a host.
    pub consecutive_failures: u32,
    /// The percentage of failed requests that ejects a host, if any does.
    pub failure_rate: Option<u32>,
    /// The length of the first ejection; each further one in a row is longer by this.
    pub base: Duration,
    /// The length of the longest ejection.
    pub max: Duration,
    /// The percentage of hosts that may be ejected at once.
    pub max_ejected: u32,
}

impl EjectionSpec {
    /// How many of `hosts` may be ejected at once: at least one of two, and never all.
    pub(super) fn most_ejected(&self, hosts: usize) -> usize {
        let share = hosts * self.max_ejected as usize / 100;
        share.max(1).min(hosts.saturating_sub(1))
    }

    /// The length of the ejection with this number in a row, from 1.
    fn length(&self, number: u32) -> Duration {
        self.base.saturating_mul(number).min(self.max)
    }
}

/// The standing of a host.
#[derive(Debug)]
pub(super) struct Standing {
    phase: Phase,
    /// Ejections in a row; each `EjectionSpec::base` of good standing takes one off.
    ejections: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In use. Its slow start began at this instant, if it had one.
    Good(Option<Instant>),
    Ejected {
        until: Instant,
    },
    /// Back from an ejection, and without a good answer so far.
    Probation(Instant),
}

impl Standing {
    /// A host that is there from the start of the upstream.
    pub(super) fn new() -> Self {
        Standing {
            phase: Phase::Good(None),
            ejections: 0,
        }
    }

    /// Begins a slow start: the host is new, or was left out for another reason.
    pub(super) fn start_slowly(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Good(since) => *since = Some(now),
            Phase::Probation(since) => *since = now,
            Phase::Ejected { .. } => {}
        }
    }

    pub(super) fn is_ejected(&self) -> bool {
        matches!(self.phase, Phase::Ejected { .. })
    }

    /// The end of the ejection, if the host is ejected.
    pub(super) fn ejected_until(&self) -> Option<Instant> {
        match self.phase {
            Phase::Ejected { until } => Some(until),
            Phase::Good(_) | Phase::Probation(_) => None,
        }
    }

    pub(super) fn is_on_probation(&self) -> bool {
        matches!(self.phase, Phase::Probation(_))
    }

    /// Ejects the host. Returns for how long, or `None` if it is ejected already.
    pub(super) fn eject(&mut self, spec: &EjectionSpec, now: Instant) -> Option<Duration> {
        let good_for = match self.phase {
            Phase::Ejected { .. } => return None,
            Phase::Probation(_) => Duration::ZERO,
            Phase::Good(None) => Duration::MAX,
            Phase::Good(Some(since)) => now.saturating_duration_since(since),
        };
        let forgiven = good_for.as_millis() / spec.base.as_millis().max(1);
        let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
        self.ejections = self.ejections.saturating_sub(forgiven).saturating_add(1);
        let length = spec.length(self.ejections);
        self.phase = Phase::Ejected {
            until: now + length,
        };
        Some(length)
    }

    /// Puts the host on probation once its ejection is over. Returns true if it is over now.
    pub(super) fn end_ejection(&mut self, now: Instant) -> bool {
        let is_over = matches!(self.phase, Phase::Ejected { until } if until <= now);
        if is_over {
            self.phase = Phase::Probation(now);
        }
        is_over
    }

    /// Puts an ejected host on probation before its time. Returns true if it was ejected.
    pub(super) fn pardon(&mut self, now: Instant) -> bool {
        let is_ejected = self.is_ejected();
        if is_ejected {
            self.phase = Phase::Probation(now);
        }
        is_ejected
    }

    /// Ends the probation, after a good answer. Returns true if it was on probation.
    pub(super) fn pass(&mut self) -> bool {
        match self.phase {
            Phase::Probation(since) => {
                self.phase = Phase::Good(Some(since));
                true
            }
            Phase::Good(_) | Phase::Ejected { .. } => false,
        }
    }

    /// The share of its requests that the host gets, from 0 to [`FULL`]: linear in time since its
    /// return.
    pub(super) fn share(&self, slow_start: Duration, now: Instant) -> u32 {
        let since = match self.phase {
            Phase::Ejected { .. } => return 0,
            Phase::Good(None) => return FULL,
            Phase::Good(Some(since)) | Phase::Probation(since) => since,
        };
        let elapsed = now.saturating_duration_since(since);
        if elapsed >= slow_start {
            return FULL;
        }
        let part = elapsed.as_millis() * u128::from(FULL) / slow_start.as_millis().max(1);
        u32::try_from(part).unwrap_or(FULL).clamp(LEAST, FULL)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const SPEC: EjectionSpec = EjectionSpec {
        consecutive_failures: 5,
        failure_rate: None,
        base: Duration::from_secs(10),
        max: Duration::from_secs(35),
        max_ejected: 50,
    };

    /// Ejects the host again as soon as it is back. Returns the lengths in seconds.
    fn eject_in_a_row(standing: &mut Standing, now: &mut Instant, times: u32) -> Vec<u64> {
        let mut eject = || {
            let length = standing.eject(&SPEC, *now)?;
            *now += length;
            standing.end_ejection(*now).then_some(length.as_secs())
        };
        (0..times).map_while(|_| eject()).collect()
    }

    #[test]
    fn each_ejection_in_a_row_is_longer_up_to_the_longest() {
        let (mut standing, mut now) = (Standing::new(), Instant::now());
        let lengths = eject_in_a_row(&mut standing, &mut now, 5);
        assert_eq!(lengths, [10, 20, 30, 35, 35]);
    }

    #[test]
    fn good_standing_makes_the_next_ejection_shorter() {
        let (mut standing, mut now) = (Standing::new(), Instant::now());
        eject_in_a_row(&mut standing, &mut now, 3);
        assert!(standing.pass());
        now += 21 * SECOND;
        assert_eq!(standing.eject(&SPEC, now), Some(20 * SECOND));
        now += 20 * SECOND;
        assert!(standing.end_ejection(now) && standing.pass());
        assert_eq!(
            standing.eject(&SPEC, now + 3_600 * SECOND),
            Some(10 * SECOND)
        );
    }

    #[test]
    fn an_ejection_lasts_as_long_as_it_says_and_is_not_prolonged() {
        let (mut standing, now) = (Standing::new(), Instant::now());
        assert_eq!(standing.eject(&SPEC, now), Some(10 * SECOND));
        assert_eq!(standing.eject(&SPEC, now + 9 * SECOND), None);
        assert!(!standing.end_ejection(now + 9 * SECOND));
        assert_eq!(standing.share(Duration::ZERO, now + 9 * SECOND), 0);
        assert!(standing.end_ejection(now + 10 * SECOND));
        assert!(standing.is_on_probation());
        assert_eq!(standing.share(Duration::ZERO, now + 10 * SECOND), FULL);
    }

    #[test]
    fn the_share_grows_from_a_tenth_over_the_slow_start() {
        let (mut standing, start) = (Standing::new(), Instant::now());
        let share =
            |standing: &Standing, seconds| standing.share(30 * SECOND, start + seconds * SECOND);
        assert_eq!(
            share(&standing, 0),
            FULL,
            "hosts of the start are in use at once"
        );
        standing.start_slowly(start);
        let shares = [0, 1, 6, 15, 29, 30, 3_600].map(|seconds| share(&standing, seconds));
        assert_eq!(shares, [25, 25, 51, 128, 247, FULL, FULL]);
    }

    #[test]
    fn half_of_the_hosts_may_be_ejected_and_never_the_last() {
        let most = [0, 1, 2, 3, 4, 5, 10].map(|hosts| SPEC.most_ejected(hosts));
        assert_eq!(most, [0, 0, 1, 1, 2, 2, 5]);
        let all = EjectionSpec {
            max_ejected: 100,
            ..SPEC
        };
        assert_eq!([1, 2, 3].map(|hosts| all.most_ejected(hosts)), [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn an_ejection_is_never_shorter_than_the_first_nor_longer_than_the_longest(
            pauses in prop::collection::vec((0..100_u64, any::<bool>()), 1..50),
        ) {
            let (mut standing, mut now) = (Standing::new(), Instant::now());
            for (pause, is_good) in pauses {
                if is_good {
                    standing.pass();
                }
                now += Duration::from_secs(pause);
                let length = standing.eject(&SPEC, now).expect("it is in use");
                prop_assert!((SPEC.base..=SPEC.max).contains(&length));
                now += length;
                prop_assert!(standing.end_ejection(now));
            }
        }
    }
}
