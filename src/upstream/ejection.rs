//! Ejection: a host that fails is left out for a while, longer each time in a row. Here is
//! the standing of one host, at instants that the caller gives.
//!
//! Not here: what counts as a failure (`attempt`), and the floor below which nobody is ejected
//! (`outliers`), which looks at all hosts of an upstream.

use std::time::Duration;

use strum::EnumIs;
use tokio::time::Instant;

use super::spec::EjectionSpec;

/// The whole share of a host: all the requests that its weight gives it.
pub(super) const FULL: u32 = 256;

/// The least share of a host that returns: it must get requests to show that it works.
const LEAST: u32 = FULL / 10;

/// The length of an ejection soon after an outage of all hosts, which come back one after the other.
const AFTER_OUTAGE: Duration = Duration::from_secs(1);

/// The standing of a host.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) phase: Phase,
    /// Ejections in a row that lasted their time, and the one that lasts; each
    /// `EjectionSpec::base` of good standing takes one off.
    ejections: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIs)]
pub(super) enum Phase {
    /// In use. Its slow start began at this instant, if it had one.
    Good(Option<Instant>),
    /// It fails, and is in use nevertheless: the others are no better, or too many are ejected.
    Failing,
    Ejected {
        since: Instant,
        until: Instant,
        /// The whole upstream was down a moment ago: the ejection is short, and says little of the
        /// host.
        is_after_outage: bool,
    },
    /// Back from an ejection, and without a good answer so far. Its slow start began at this
    /// instant, if it has one.
    Probation(Option<Instant>),
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
            Phase::Good(since) | Phase::Probation(since) => *since = Some(now),
            Phase::Failing | Phase::Ejected { .. } => {}
        }
    }

    /// The end of the ejection, if the host is ejected.
    pub(super) fn ejected_until(&self) -> Option<Instant> {
        match self.phase {
            Phase::Ejected { until, .. } => Some(until),
            Phase::Good(_) | Phase::Failing | Phase::Probation(_) => None,
        }
    }

    /// Ejects the host; shortly if all hosts of the upstream were down a moment ago. Returns for how
    /// long, or `None` if it is ejected already.
    pub(super) fn eject(
        &mut self,
        spec: &EjectionSpec,
        is_after_outage: bool,
        now: Instant,
    ) -> Option<Duration> {
        let good_for = match self.phase {
            Phase::Ejected { .. } => return None,
            Phase::Probation(_) | Phase::Failing => Duration::ZERO,
            Phase::Good(None) => Duration::MAX,
            Phase::Good(Some(since)) => now.saturating_duration_since(since),
        };
        let forgiven = good_for.as_millis() / spec.base.as_millis().max(1);
        let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
        self.ejections = self.ejections.saturating_sub(forgiven).saturating_add(1);
        let length = if is_after_outage {
            spec.base.min(AFTER_OUTAGE)
        } else {
            spec.length(self.ejections)
        };
        self.phase = Phase::Ejected {
            since: now,
            until: now + length,
            is_after_outage,
        };
        Some(length)
    }

    /// Keeps the host in use although it fails. An ejection ends, and does not count as one in a
    /// row.
    pub(super) fn fail(&mut self) {
        self.forget_ejection();
        self.phase = Phase::Failing;
    }

    /// Puts the host on probation once its ejection is over, which ends as `spec` says if that is
    /// sooner than it was to be. Returns true if it is over now.
    pub(super) fn end_ejection(&mut self, spec: &EjectionSpec, now: Instant) -> bool {
        let length = spec.length(self.ejections);
        if let Phase::Ejected { since, until, .. } = &mut self.phase {
            *until = (*until).min(*since + length);
        }
        let is_over = self.ejected_until().is_some_and(|until| until <= now);
        if is_over {
            self.pardon(now);
        }
        is_over
    }

    /// Puts an ejected host on probation. The ejection counts as one in a row only if it has lasted
    /// its time.
    pub(super) fn pardon(&mut self, now: Instant) {
        if let Phase::Ejected {
            until,
            is_after_outage,
            ..
        } = self.phase
        {
            if is_after_outage || now < until {
                self.forget_ejection();
            }
            self.phase = Phase::Probation((!is_after_outage).then_some(now));
        }
    }

    /// Puts a host on probation whose first ejection a health check ends. It counts as one in a row: if
    /// the host fails again, the check has said too little, and the next lasts its time.
    pub(super) fn trust_check(&mut self, now: Instant) {
        if self.phase.is_ejected() && self.ejections <= 1 {
            self.phase = Phase::Probation(Some(now));
        }
    }

    /// Notes a good answer, which ends a probation and a failing.
    pub(super) fn pass(&mut self) {
        self.phase = match self.phase {
            Phase::Probation(since) => Phase::Good(since),
            Phase::Failing => Phase::Good(None),
            other => other,
        };
    }

    /// The share of its requests that the host gets, from 0 to [`FULL`]: linear in time since its
    /// return.
    pub(super) fn share(&self, slow_start: Duration, now: Instant) -> u32 {
        let since = match self.phase {
            Phase::Ejected { .. } => return 0,
            Phase::Failing | Phase::Good(None) | Phase::Probation(None) => return FULL,
            Phase::Good(Some(since)) | Phase::Probation(Some(since)) => since,
        };
        let elapsed = now.saturating_duration_since(since);
        if elapsed >= slow_start {
            return FULL;
        }
        let part = elapsed.as_millis() * u128::from(FULL) / slow_start.as_millis().max(1);
        u32::try_from(part).unwrap_or(FULL).clamp(LEAST, FULL)
    }

    fn forget_ejection(&mut self) {
        if self.phase.is_ejected() {
            self.ejections = self.ejections.saturating_sub(1);
        }
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
            let length = standing.eject(&SPEC, false, *now)?;
            *now += length;
            standing
                .end_ejection(&SPEC, *now)
                .then_some(length.as_secs())
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
        standing.pass();
        now += 21 * SECOND;
        assert_eq!(standing.eject(&SPEC, false, now), Some(20 * SECOND));
        now += 20 * SECOND;
        assert!(standing.end_ejection(&SPEC, now));
        standing.pass();
        assert_eq!(
            standing.eject(&SPEC, false, now + 3_600 * SECOND),
            Some(10 * SECOND)
        );
    }

    #[test]
    fn an_ejection_lasts_as_long_as_it_says_and_is_not_prolonged() {
        let (mut standing, now) = (Standing::new(), Instant::now());
        assert_eq!(standing.eject(&SPEC, false, now), Some(10 * SECOND));
        assert_eq!(standing.eject(&SPEC, false, now + 9 * SECOND), None);
        assert!(!standing.end_ejection(&SPEC, now + 9 * SECOND));
        assert_eq!(standing.share(Duration::ZERO, now + 9 * SECOND), 0);
        assert!(standing.end_ejection(&SPEC, now + 10 * SECOND));
        assert!(standing.phase.is_probation());
        assert_eq!(standing.share(Duration::ZERO, now + 10 * SECOND), FULL);
    }

    #[test]
    fn a_reload_shortens_an_ejection_and_never_prolongs_it() {
        let of = |base| EjectionSpec {
            base: base * SECOND,
            ..SPEC
        };
        let (mut standing, now) = (Standing::new(), Instant::now());
        standing.eject(&SPEC, false, now);
        assert!(!standing.end_ejection(&of(30), now + 5 * SECOND));
        assert_eq!(standing.ejected_until(), Some(now + 10 * SECOND));
        assert!(!standing.end_ejection(&of(7), now + 5 * SECOND));
        assert_eq!(standing.ejected_until(), Some(now + 7 * SECOND));
        assert!(standing.end_ejection(&of(3), now + 5 * SECOND));
        // It has lasted its time, as now configured.
        assert_eq!(standing.eject(&SPEC, false, now), Some(20 * SECOND));
    }

    #[test]
    fn a_check_ends_a_first_ejection_and_is_not_trusted_again() {
        let (mut standing, now) = (Standing::new(), Instant::now());
        standing.eject(&SPEC, false, now);
        standing.trust_check(now + SECOND);
        assert!(standing.phase.is_probation());
        assert_eq!(standing.eject(&SPEC, false, now), Some(20 * SECOND));
        standing.trust_check(now + SECOND);
        assert!(standing.phase.is_ejected());
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

    /// What befalls a host.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Eject { is_after_outage: bool },
        Fail,
        Answer,
        Pardon,
        Wait(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            any::<bool>().prop_map(|is_after_outage| Event::Eject { is_after_outage }),
            Just(Event::Fail),
            Just(Event::Answer),
            Just(Event::Pardon),
            (0..60_u64).prop_map(Event::Wait),
        ]
    }

    proptest! {
        /// However often a host is ejected and pardoned, only ejections that lasted make the next
        /// one longer.
        #[test]
        fn an_ejection_is_longer_only_for_those_that_lasted(
            events in prop::collection::vec(event(), 1..80),
        ) {
            let (mut standing, mut now) = (Standing::new(), Instant::now());
            let (mut lasted, mut is_short) = (0, false);
            for event in events {
                match event {
                    Event::Eject { is_after_outage } => {
                        if let Some(length) = standing.eject(&SPEC, is_after_outage, now) {
                            let longest = SPEC.length(1 + lasted);
                            prop_assert!(length <= longest, "{length:?} after {lasted}");
                            prop_assert!(length >= AFTER_OUTAGE);
                            prop_assert!(is_after_outage || length >= SPEC.base);
                            is_short = is_after_outage;
                        }
                    }
                    Event::Fail => standing.fail(),
                    Event::Answer => standing.pass(),
                    Event::Pardon => standing.pardon(now),
                    Event::Wait(seconds) => {
                        now += Duration::from_secs(seconds);
                        lasted += u32::from(standing.end_ejection(&SPEC, now) && !is_short);
                    }
                }
            }
        }
    }
}
