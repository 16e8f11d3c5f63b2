//! Time: [`Timestamp`], the [`Clock`] that reads it, and texts of times.
//!
//! No other module reads a clock: everything below `proxy` receives a [`Timestamp`] as an argument.
//! Time zones and calendars are not here.

pub mod text;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// An instant in whole microseconds since the Unix epoch, the finest resolution that Redis has.
///
/// Arithmetic saturates: no instant is before the epoch or after [`Timestamp::MAX`].
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

/// A process's clock: the system's, or one that a test or a replay moves.
///
/// The system clock is the wall clock at the start plus monotonic time since. It never goes back,
/// and agrees with the wall clock as long as nobody sets that. [`Clock::resync`] follows a wall
/// clock that was set forward.
#[derive(Debug)]
pub struct Clock(Source);

#[derive(Debug)]
enum Source {
    /// `now` is `origin` microseconds plus the time since `started`.
    System {
        started: Instant,
        origin: AtomicU64,
    },
    Manual(AtomicU64),
}

impl Clock {
    /// The system's clock, aligned with the present wall clock.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn system() -> Self {
        Self(Source::System {
            started: Instant::now(),
            origin: AtomicU64::new(wall().as_micros()),
        })
    }

    /// A clock that stands at `now` until it is moved.
    pub fn manual(now: Timestamp) -> Self {
        Self(Source::Manual(AtomicU64::new(now.as_micros())))
    }

    /// The present instant. Takes no lock; a system clock costs one monotonic reading.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System { started, origin } => {
                let elapsed = whole_micros(started.elapsed());
                Timestamp(origin.load(Ordering::Relaxed).saturating_add(elapsed))
            }
            Source::Manual(now) => Timestamp(now.load(Ordering::Relaxed)),
        }
    }

    /// Steps forward to the wall clock if that leads by more than a second. Never steps back.
    ///
    /// The caller repeats this every second or so. A manual clock does not move.
    pub fn resync(&self) {
        self.step_to(wall());
    }

    /// Moves a manual clock to `now`, forward or back; a system clock is left alone.
    pub fn set(&self, now: Timestamp) {
        if let Source::Manual(current) = &self.0 {
            current.store(now.as_micros(), Ordering::Relaxed);
        }
    }

    /// Moves a manual clock forward; a system clock is left alone.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(current) = &self.0 {
            current.fetch_add(whole_micros(by), Ordering::Relaxed);
        }
    }

    fn step_to(&self, wall: Timestamp) {
        const TOLERATED: Duration = Duration::from_secs(1);
        let Source::System { started, origin } = &self.0 else {
            return;
        };
        if wall.since(self.now()) > TOLERATED {
            let elapsed = whole_micros(started.elapsed());
            // A maximum, so that two threads that see the same lead step once.
            origin.fetch_max(wall.as_micros().saturating_sub(elapsed), Ordering::Relaxed);
        }
    }
}

/// The wall clock, at least the epoch. It may go back, so decisions on requests use a [`Clock`].
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn wall() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp(whole_micros(since_epoch.unwrap_or_default()))
}

/// The second of the wall clock at the kernel's last tick: up to 10 ms late, but without reading
/// the hardware clock.
pub(crate) fn wall_second() -> u64 {
    let noted = clock_gettime(ClockId::RealtimeCoarse);
    u64::try_from(noted.tv_sec).unwrap_or_default()
}

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

    #[test]
    fn a_system_clock_starts_at_the_wall_and_never_goes_back() {
        let clock = Clock::system();
        assert!(wall().since(clock.now()) < Duration::from_secs(60));
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn the_noted_second_is_that_of_the_wall() {
        // Twice the longest tick.
        let late = Duration::from_millis(20);
        for _ in 0..1_000 {
            let before = wall().saturating_sub(late).as_micros() / 1_000_000;
            let noted = wall_second();
            let after = wall().as_micros() / 1_000_000;
            assert!(
                (before..=after).contains(&noted),
                "{noted} in {before}..={after}"
            );
        }
    }

    #[test]
    fn a_system_clock_follows_a_wall_set_forward_by_more_than_a_second() {
        let clock = Clock::system();
        let near = clock.now().saturating_add(Duration::from_millis(500));
        clock.step_to(near);
        assert!(clock.now() < near.saturating_add(Duration::from_millis(400)));

        let far = clock.now().saturating_add(Duration::from_secs(3600));
        clock.step_to(far);
        assert!(clock.now() >= far);
    }

    #[test]
    fn a_system_clock_ignores_a_wall_set_back() {
        let clock = Clock::system();
        let before = clock.now();
        clock.step_to(Timestamp::EPOCH);
        clock.set(Timestamp::EPOCH);
        assert!(clock.now() >= before);
    }

    #[test]
    fn a_manual_clock_stands_still_until_moved() {
        let clock = Clock::manual(Timestamp::from_micros(5));
        clock.resync();
        assert_eq!(clock.now(), Timestamp::from_micros(5));
        clock.advance(Duration::from_micros(7));
        assert_eq!(clock.now(), Timestamp::from_micros(12));
        clock.set(Timestamp::EPOCH);
        assert_eq!(clock.now(), Timestamp::EPOCH);
    }
}
