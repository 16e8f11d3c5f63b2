//! Lines of the log that would say the same again and again: at most one a minute.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long after a line the next may come.
const EVERY: Duration = Duration::from_secs(60);

/// Whether it is time for a line, and how many were left out.
#[derive(Debug, Default)]
pub(super) struct Rarely(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    omitted: u64,
}

impl Rarely {
    /// Returns how many lines were left out since the last one, or `None` if this is left out, too.
    pub(super) fn admit(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.0.lock();
        if state.last.is_some_and(|last| now < last + EVERY) {
            state.omitted += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.omitted))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_a_minute_is_admitted_and_the_rest_counted() {
        let rarely = Rarely::default();
        assert_eq!(rarely.admit(), Some(0));
        assert_eq!(rarely.admit(), None);
        advance(EVERY - Duration::from_millis(1)).await;
        assert_eq!(rarely.admit(), None);
        advance(Duration::from_millis(1)).await;
        assert_eq!(rarely.admit(), Some(2));
        advance(2 * EVERY).await;
        assert_eq!(rarely.admit(), Some(0));
    }
}
