//! Instants, in whole microseconds.

use std::time::Duration;

/// The part of its speed that a clock loses while it waits for a wall clock that was set back
/// ([`set_ahead`](crate::calendar::set_ahead)).
pub const SLOWER: u64 = 32;

/// An instant in whole microseconds since the Unix epoch, the finest resolution that Redis has.
///
/// The present is `Timestamp::EPOCH.saturating_add(UNIX_EPOCH.elapsed()?)`, with the standard library's
/// `UNIX_EPOCH`. Arithmetic saturates: no instant is before the epoch or after [`Timestamp::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// The largest representable instant.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `micros` microseconds after the epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The instant `duration` later. Fractions of a microsecond are dropped.
    pub fn saturating_add(self, duration: Duration) -> Self {
        self.saturating_add_micros(whole_micros(duration))
    }

    /// The instant `micros` microseconds later.
    pub const fn saturating_add_micros(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// The instant `duration` earlier. Fractions of a microsecond are dropped.
    pub fn saturating_sub(self, duration: Duration) -> Self {
        self.saturating_sub_micros(whole_micros(duration))
    }

    /// The instant `micros` microseconds earlier.
    pub const fn saturating_sub_micros(self, micros: u64) -> Self {
        Self(self.0.saturating_sub(micros))
    }

    /// The instant `micros` microseconds later; a negative number means earlier.
    pub const fn saturating_add_signed(self, micros: i64) -> Self {
        Self(self.0.saturating_add_signed(micros))
    }

    /// Microseconds from `other` to this instant; negative if this one is earlier.
    pub const fn signed_micros_since(self, other: Self) -> i64 {
        match self.0.checked_signed_diff(other.0) {
            Some(micros) => micros,
            None if self.0 > other.0 => i64::MAX,
            None => i64::MIN,
        }
    }

    /// Time since `earlier`; zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// The whole microseconds of a duration.
fn whole_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_saturate_at_both_ends() {
        let second = Duration::from_secs(1);
        assert_eq!(Timestamp::MAX.saturating_add(second), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.saturating_sub_micros(1), Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Duration::ZERO);
        assert_eq!(
            Timestamp::EPOCH
                .saturating_add(second)
                .since(Timestamp::EPOCH),
            second
        );
    }
}
