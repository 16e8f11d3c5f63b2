//! Finds connections whose host is gone: pings on a silent connection with open streams.

/// Seconds of silence before a ping.
const PING_AFTER: u32 = 30;

/// Seconds of silence before a further ping, while the host sends nothing but the answers. Servers
/// of gRPC close a connection that is pinged more often than every 5 minutes meanwhile.
const PING_AGAIN_AFTER: u32 = 330;

/// Seconds for the answer.
const PING_TIMEOUT: u32 = 20;

/// The silence of a connection.
#[derive(Debug, Default)]
pub(super) struct KeepAlive {
    /// The reads up to the last tick.
    reads: u32,
    /// Seconds since, with open streams.
    silence: u32,
    is_pinged: bool,
    /// The last read was the answer to a ping.
    has_answered: bool,
}

/// The next step for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepAliveStep {
    None,
    Ping,
    Close,
}

impl KeepAlive {
    /// Must be called once a second, with the number of reads.
    pub(super) fn tick(&mut self, reads: u32, has_streams: bool) -> KeepAliveStep {
        if reads != self.reads {
            *self = KeepAlive {
                reads,
                has_answered: self.is_pinged,
                ..KeepAlive::default()
            };
            return KeepAliveStep::None;
        }
        if !has_streams {
            // The host owes nothing now. What it has owed counts: requests may time out one by one.
            self.has_answered = false;
            return KeepAliveStep::None;
        }
        self.silence += 1;
        let limit = match (self.is_pinged, self.has_answered) {
            (true, _) => PING_TIMEOUT,
            (false, true) => PING_AGAIN_AFTER,
            (false, false) => PING_AFTER,
        };
        if self.silence < limit {
            return KeepAliveStep::None;
        }
        self.silence = 0;
        if std::mem::replace(&mut self.is_pinged, true) {
            KeepAliveStep::Close
        } else {
            KeepAliveStep::Ping
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds until something is to be done, and that.
    fn next(keep_alive: &mut KeepAlive, reads: u32) -> (u32, KeepAliveStep) {
        let ticks = (1..1_000).map(|second| (second, keep_alive.tick(reads, true)));
        let mut actions = ticks.filter(|(_, action)| *action != KeepAliveStep::None);
        actions.next().expect("an action")
    }

    #[test]
    fn a_silent_host_is_pinged_and_given_up_without_an_answer() {
        let mut keep_alive = KeepAlive::default();
        assert_eq!(next(&mut keep_alive, 0), (PING_AFTER, KeepAliveStep::Ping));
        assert_eq!(
            next(&mut keep_alive, 0),
            (PING_TIMEOUT, KeepAliveStep::Close)
        );
    }

    #[test]
    fn a_host_that_only_answers_pings_is_pinged_rarely() {
        let mut keep_alive = KeepAlive::default();
        assert_eq!(next(&mut keep_alive, 0), (PING_AFTER, KeepAliveStep::Ping));
        assert_eq!(keep_alive.tick(1, true), KeepAliveStep::None);
        assert_eq!(
            next(&mut keep_alive, 1),
            (PING_AGAIN_AFTER, KeepAliveStep::Ping)
        );
        assert_eq!(keep_alive.tick(2, true), KeepAliveStep::None);
        assert_eq!(keep_alive.tick(3, true), KeepAliveStep::None, "data");
        assert_eq!(next(&mut keep_alive, 3), (PING_AFTER, KeepAliveStep::Ping));
    }

    #[test]
    fn the_silence_of_requests_that_time_out_adds_up() {
        let mut keep_alive = KeepAlive::default();
        let mut ticks = (0..1_000).map(|second| keep_alive.tick(0, second % 5 < 2));
        let actions: Vec<_> = ticks
            .by_ref()
            .filter(|action| *action != KeepAliveStep::None)
            .take(2)
            .collect();
        assert_eq!(actions, [KeepAliveStep::Ping, KeepAliveStep::Close]);
        drop(ticks);
        let mut keep_alive = KeepAlive::default();
        for second in 0..1_000 {
            let action = keep_alive.tick(second / 5, second % 5 < 2);
            assert_eq!(action, KeepAliveStep::None, "a host that answers");
        }
    }

    #[test]
    fn a_connection_without_streams_is_not_pinged() {
        let mut keep_alive = KeepAlive::default();
        for _ in 0..1_000 {
            assert_eq!(keep_alive.tick(0, false), KeepAliveStep::None);
        }
        assert_eq!(next(&mut keep_alive, 0), (PING_AFTER, KeepAliveStep::Ping));
    }
}
