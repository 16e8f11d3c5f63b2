//! Decides which changes of the store's state are logged: each change once, and no flood from a
//! server that flaps.

use std::time::Duration;

use tokio::time::Instant;

use super::State;
use super::fault::FaultKind;

/// The pause between lines of different faults.
const DIFFERENT_FAULT_PAUSE: Duration = Duration::from_secs(1);
/// The pause between lines of the same fault.
const SAME_FAULT_PAUSE: Duration = Duration::from_secs(10);

/// The last logged state.
#[derive(Debug, Default)]
pub(super) struct StateLog {
    logged_up: Option<bool>,
    /// The last logged fault, and its instant.
    last_fault: Option<(FaultKind, Instant)>,
}

impl StateLog {
    /// True if this state is to be logged now. A new fault that comes too early is decided again at
    /// the next failed probe.
    pub(super) fn should_log(&mut self, now: Instant, state: &State) -> bool {
        match state {
            State::Starting => false,
            State::Up => self.logged_up.replace(true) != Some(true),
            State::Down { fault, .. } => {
                let is_said = self.logged_up == Some(false);
                let should_log = self.last_fault.is_none_or(|(kind, at)| {
                    if kind == fault.kind {
                        !is_said && now - at >= SAME_FAULT_PAUSE
                    } else {
                        now - at >= DIFFERENT_FAULT_PAUSE
                    }
                });
                if should_log {
                    self.last_fault = Some((fault.kind, now));
                    self.logged_up = Some(false);
                }
                should_log
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::super::spec::Address;
    use super::*;

    fn down(kind: FaultKind) -> State {
        State::Down {
            server: Some(Address::new("a", 1)),
            fault: kind.fault(),
        }
    }

    fn at(millis: u64) -> Instant {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        *START + Duration::from_millis(millis)
    }

    #[test]
    fn a_change_is_logged_once() {
        let mut state_log = StateLog::default();
        let refused = down(FaultKind::Refused);
        assert!(!state_log.should_log(at(0), &State::Starting));
        assert!(state_log.should_log(at(1), &State::Up));
        assert!(!state_log.should_log(at(2), &State::Up));
        assert!(state_log.should_log(at(3), &refused));
        for later in (4..100_000).step_by(250) {
            assert!(!state_log.should_log(at(later), &refused));
        }
        assert!(!state_log.should_log(at(100_000), &State::Starting));
        assert!(state_log.should_log(at(100_001), &State::Up));
    }

    #[test]
    fn another_fault_is_logged_but_not_in_a_flood() {
        let mut state_log = StateLog::default();
        assert!(state_log.should_log(at(0), &down(FaultKind::Refused)));
        assert!(!state_log.should_log(at(500), &down(FaultKind::Loading)));
        assert!(state_log.should_log(at(1_000), &down(FaultKind::Loading)));
        assert!(state_log.should_log(at(1_001), &State::Up));
    }

    #[test]
    fn a_server_that_flaps_does_not_fill_the_log() {
        let mut state_log = StateLog::default();
        let mut lines = 0;
        for tick in 0..6_000 {
            let fault = down(FaultKind::Permission);
            lines += u32::from(state_log.should_log(at(tick * 10), &fault));
            lines += u32::from(state_log.should_log(at(tick * 10 + 5), &State::Up));
        }
        assert_eq!(lines, 12, "two in ten seconds");
    }
}
