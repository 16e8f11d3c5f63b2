//! What clients saw in a run, and which faults there were. Instants are microseconds of the machine's
//! wall clock, which is also that of Redis.

use std::time::{Duration, UNIX_EPOCH};

use crate::support::wall_clock;

/// Microseconds since the Unix epoch.
pub type Instant = u64;

/// The time.
pub fn now() -> Instant {
    let since = wall_clock().duration_since(UNIX_EPOCH);
    since.expect("it is later than 1970").as_micros() as u64
}

/// A duration in microseconds.
pub const fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

/// A request, as its client saw it.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Before its first byte was sent.
    pub sent: Instant,
    /// When its response was there. It was decided between the two.
    pub received: Instant,
    pub proxy: usize,
    /// The policy on its path, by its place in the configuration.
    pub policy: usize,
    pub key: usize,
    pub units: u64,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Admitted,
    /// Refused by the limit, with the seconds of `Retry-After`.
    Limited(Option<u64>),
    /// 503: the store didn't answer.
    StoreError,
    /// Another status.
    Unexpected(u16),
    /// There was no response.
    Lost,
}

/// A time between two instants, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: Instant,
    pub until: Instant,
}

impl Span {
    /// Returns true if the two have an instant in common.
    pub fn touches(self, other: Self) -> bool {
        self.from <= other.until && other.from <= self.until
    }
}

impl Event {
    /// The time in which it was decided.
    pub fn span(&self) -> Span {
        Span {
            from: self.sent,
            until: self.received,
        }
    }
}

/// A fault, from before it was made until everything was well again.
#[derive(Clone, Debug)]
pub struct Fault {
    pub what: String,
    pub span: Span,
    /// The proxy whose process stood still, if one did: its clients waited.
    pub paused: Option<usize>,
}

/// A run.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub events: Vec<Event>,
    pub faults: Vec<Fault>,
    /// The longest time for which the machine let a thread wait that had work to do.
    pub stall: u64,
}
