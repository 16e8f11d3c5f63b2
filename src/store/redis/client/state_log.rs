//! What is said in the log of the store's state: once when it changes, and no flood from a server that cannot make up its
//! mind.

use std::time::Duration;

use super::State;
use super::fault::FaultKind;
use crate::clock::Timestamp;

/// Between two lines of different faults.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two lines of the same fault.
const SAME: Duration = Duration::from_secs(10);

/// What was said last.
#[derive(Debug, Default)]
pub(super) struct StateLog {
    is_said_up: Option<bool>,
    /// The fault that was told last, and when.
    told: Option<(FaultKind, Timestamp)>,
}

impl StateLog {
    /// Whether this state is to be told now. A fault that is not told yet, though it is new, is asked about again with
    /// the next probe that fails.
    pub(super) fn is_news(&mut self, now: Timestamp, state: &State) -> bool {
        match state {
            State::Starting => false,
            State::Up => self.is_said_up.replace(true) != Some(true),
            State::Down { fault, .. } => {
                let is_said = self.is_said_up == Some(false);
                let is_news = self.told.is_none_or(|(kind, at)| match kind == fault.kind {
                    true => !is_said && now.since(at) >= SAME,
                    false => now.since(at) >= INTERVAL,
                });
                if is_news {
                    self.told = Some((fault.kind, now));
                    self.is_said_up = Some(false);
                }
                is_news
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::client::Address;

    fn down(kind: FaultKind) -> State {
        State::Down {
            server: Some(Address::new("a", 1)),
            fault: kind.bare(),
        }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    #[test]
    fn a_change_is_told_once() {
        let mut journal = StateLog::default();
        let refused = down(FaultKind::Refused);
        assert!(!journal.is_news(at(0), &State::Starting));
        assert!(journal.is_news(at(1), &State::Up));
        assert!(!journal.is_news(at(2), &State::Up));
        assert!(journal.is_news(at(3), &refused));
        for later in (4..100_000).step_by(250) {
            assert!(!journal.is_news(at(later), &refused));
        }
        assert!(!journal.is_news(at(100_000), &State::Starting));
        assert!(journal.is_news(at(100_001), &State::Up));
    }

    #[test]
    fn another_fault_is_told_but_not_in_a_flood() {
        let mut journal = StateLog::default();
        assert!(journal.is_news(at(0), &down(FaultKind::Refused)));
        assert!(!journal.is_news(at(500), &down(FaultKind::Loading)));
        assert!(journal.is_news(at(1_000), &down(FaultKind::Loading)));
        assert!(journal.is_news(at(1_001), &State::Up));
    }

    #[test]
    fn a_server_that_flaps_does_not_fill_the_log() {
        let mut journal = StateLog::default();
        let mut lines = 0;
        for tick in 0..6_000 {
            let fault = down(FaultKind::Permission);
            lines += u32::from(journal.is_news(at(tick * 10), &fault));
            lines += u32::from(journal.is_news(at(tick * 10 + 5), &State::Up));
        }
        assert_eq!(lines, 12, "two in ten seconds");
    }
}
