//! Time: the [`Clock`] that reads it. [`Timestamp`] is the limiter's, and texts of times are in `readable`.
//!
//! No other module reads a clock: everything below `proxy` receives a [`Timestamp`] as an argument.
//! Time zones and calendars are not here.

use std::hint;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

pub use ::readable::duration;
pub use ::readable::time::{self as text, whole_micros};

pub use crate::limiter::{SLOWER, Timestamp};

/// A process's clock: the system's, or one that a test or a replay moves.
///
/// The system clock is the wall clock at the start plus monotonic time since, and agrees with the
/// wall clock as long as nobody sets that. It never goes back. [`Clock::resync`] follows a wall clock
/// that was set and has stayed so for `SETTLED`: forward at once, back by running slower by one part in
/// 32, so that no rate is wrong by more. Until they agree, [`Clock::wall_time`] gives the wall
/// clock's times, and [`Clock::ahead`] is for windows that begin by the wall clock.
#[derive(Debug)]
pub struct Clock {
    /// `None` for a manual clock, for which no time passes.
    started: Option<Instant>,
    anchor: AtomicAnchor,
    /// By how many microseconds the wall clock leads, if it has been set.
    lead: AtomicI64,
    /// Since when it has.
    step: Mutex<Option<PendingStep>>,
}

/// How long a wall clock that was set has to stay so before a [`Clock`] follows it.
pub const SETTLED: Duration = Duration::from_secs(30);

/// The longest difference from the wall clock that is none.
const TOLERATED: Duration = Duration::from_secs(1);

/// How a system clock derives its time from the monotonic one, whose microseconds count from the
/// clock's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Anchor {
    /// The time at the start.
    origin: u64,
    /// The clock runs slower from `slow_since` on until it has lost `to_lose`.
    to_lose: u64,
    slow_since: u64,
}

impl Anchor {
    fn at(self, elapsed: u64) -> Timestamp {
        let time = self.origin.saturating_add(elapsed);
        if self.to_lose == 0 {
            return Timestamp::from_micros(time);
        }
        Timestamp::from_micros(time.saturating_sub(self.lost(elapsed)))
    }

    fn lost(self, elapsed: u64) -> u64 {
        (elapsed.saturating_sub(self.slow_since) / SLOWER).min(self.to_lose)
    }

    /// The anchor from `elapsed` on, for a wall clock that leads by so much. The time at `elapsed`
    /// is the same, or later.
    fn followed(self, elapsed: u64, lead: i64) -> Self {
        let origin = self.origin.saturating_sub(self.lost(elapsed));
        Self {
            origin: origin.saturating_add_signed(lead.max(0)),
            to_lose: lead.min(0).unsigned_abs(),
            slow_since: elapsed,
        }
    }
}

/// An [`Anchor`] that threads read without a lock: again if its `version` says that it changed
/// meanwhile.
#[derive(Debug)]
struct AtomicAnchor {
    /// Odd while one thread writes.
    version: AtomicU64,
    origin: AtomicU64,
    to_lose: AtomicU64,
    slow_since: AtomicU64,
}

impl AtomicAnchor {
    fn new(now: Timestamp) -> Self {
        Self {
            version: AtomicU64::new(0),
            origin: AtomicU64::new(now.as_micros()),
            to_lose: AtomicU64::new(0),
            slow_since: AtomicU64::new(0),
        }
    }

    fn load(&self) -> Anchor {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let anchor = Anchor {
                origin: self.origin.load(Ordering::Relaxed),
                to_lose: self.to_lose.load(Ordering::Relaxed),
                slow_since: self.slow_since.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return anchor;
            }
            hint::spin_loop();
        }
    }

    /// Stores an anchor; one thread at a time may.
    fn store(&self, anchor: Anchor) {
        self.version.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.origin.store(anchor.origin, Ordering::Relaxed);
        self.to_lose.store(anchor.to_lose, Ordering::Relaxed);
        self.slow_since.store(anchor.slow_since, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// A step of the wall clock that is not followed yet.
#[derive(Clone, Copy, Debug)]
struct PendingStep {
    by: i64,
    /// In microseconds since the clock started.
    since: u64,
}

/// A change of the wall clock, or of how a clock follows it. A positive number of microseconds means forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockChange {
    /// The wall clock was set, and leads by this. The clock does not follow yet.
    Set(i64),
    /// The wall clock was set again, and agrees with the clock.
    Corrected,
    /// The clock has followed the wall clock by this; if that is back, it runs slower until it has.
    Followed(i64),
}

impl Clock {
    /// The system's clock, aligned with the present wall clock.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn system() -> Self {
        Self::new(Some(Instant::now()), wall())
    }

    /// A clock that stands at `now`, and moves by [`Clock::continue_from`] alone.
    pub fn manual(now: Timestamp) -> Self {
        Self::new(None, now)
    }

    fn new(started: Option<Instant>, now: Timestamp) -> Self {
        Self {
            started,
            anchor: AtomicAnchor::new(now),
            lead: AtomicI64::new(0),
            step: Mutex::new(None),
        }
    }

    /// The microseconds since the start.
    fn elapsed(&self) -> u64 {
        self.started
            .map_or(0, |started| whole_micros(started.elapsed()))
    }

    /// The present instant. Takes no lock; a system clock costs one monotonic reading.
    pub fn now(&self) -> Timestamp {
        self.anchor.load().at(self.elapsed())
    }

    /// The wall clock's time of a recent instant of this clock: for people, and for times that
    /// others have set, such as the expiry of a token.
    pub fn wall_time(&self, instant: Timestamp) -> Timestamp {
        instant.saturating_add_signed(self.lead())
    }

    /// The microseconds by which the wall clock leads, or this one if negative; 0 if they agree.
    pub fn lead(&self) -> i64 {
        self.lead.load(Ordering::Relaxed)
    }

    /// The microseconds that this clock still has to lose, because the wall clock was set back.
    pub fn ahead(&self) -> u64 {
        let anchor = self.anchor.load();
        anchor.to_lose - anchor.lost(self.elapsed())
    }

    /// Continues from `instant`, up to which a process before this one has counted, if that is ahead:
    /// the wall clock was set back meanwhile. Then runs slower until they agree.
    pub fn continue_from(&self, instant: Timestamp) {
        let elapsed = self.elapsed();
        let ahead = instant.signed_micros_since(self.anchor.load().at(elapsed));
        if ahead > 0 {
            self.anchor.store(Anchor {
                origin: instant.saturating_sub_micros(elapsed).as_micros(),
                to_lose: ahead.unsigned_abs(),
                slow_since: elapsed,
            });
            self.lead.store(-ahead, Ordering::Relaxed);
        }
    }

    /// Compares with the wall clock, and follows it if it was set by more than a second and has
    /// stayed so for `SETTLED`. Returns what is new.
    ///
    /// The caller repeats this every second or so. A manual clock does not move by it.
    pub fn resync(&self) -> Option<ClockChange> {
        self.started?;
        self.compare(wall(), self.elapsed())
    }

    /// As [`Clock::resync`], for what the wall clock says when so many microseconds have `elapsed`
    /// since the start.
    fn compare(&self, wall: Timestamp, elapsed: u64) -> Option<ClockChange> {
        let is_same = |one: i64, other: i64| one.abs_diff(other) <= whole_micros(TOLERATED);
        let mut step = self.step.lock();
        let running = self.anchor.load();
        let ahead = wall.signed_micros_since(running.at(elapsed));
        let agrees = is_same(ahead, 0);
        self.lead
            .store(if agrees { 0 } else { ahead }, Ordering::Relaxed);
        // What the clock is losing anyway is no step.
        let losing = running.to_lose - running.lost(elapsed);
        let by = ahead.saturating_add_unsigned(losing);
        if is_same(by, 0) {
            return step.take().map(|_| ClockChange::Corrected);
        }
        let Some(pending) = step.filter(|pending| is_same(pending.by, by)) else {
            *step = Some(PendingStep { by, since: elapsed });
            return Some(ClockChange::Set(by));
        };
        if elapsed.saturating_sub(pending.since) < whole_micros(SETTLED) {
            return None;
        }
        self.anchor.store(running.followed(elapsed, ahead));
        self.lead.store(ahead.min(0), Ordering::Relaxed);
        *step = None;
        Some(ClockChange::Followed(ahead))
    }
}

/// The wall clock, at least the epoch. It may go back, so decisions on requests use a [`Clock`].
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn wall() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::EPOCH.saturating_add(since_epoch.unwrap_or_default())
}

/// The second of the wall clock at the kernel's last tick: up to 10 ms late, but without reading
/// the hardware clock.
pub(crate) fn wall_second() -> u64 {
    let noted = clock_gettime(ClockId::RealtimeCoarse);
    u64::try_from(noted.tv_sec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    const SECOND: u64 = 1_000_000;
    const DAY: i64 = 86_400 * SECOND.cast_signed();

    /// A clock whose start was at `origin`.
    struct Stepped {
        clock: Clock,
        origin: Timestamp,
    }

    impl Stepped {
        fn new() -> Self {
            let clock = Clock::system();
            let origin = Timestamp::from_micros(clock.anchor.load().origin);
            Self { clock, origin }
        }

        /// The clock looks at the wall clock, which has been set by `by` since the start.
        fn look(&self, second: u64, by: i64) -> Option<ClockChange> {
            let elapsed = second * SECOND;
            let wall = self.origin.saturating_add_micros(elapsed);
            self.clock.compare(wall.saturating_add_signed(by), elapsed)
        }

        /// By how much the clock has followed at that second.
        fn followed(&self, second: u64) -> i64 {
            let elapsed = second * SECOND;
            let unset = self.origin.saturating_add_micros(elapsed);
            self.clock
                .anchor
                .load()
                .at(elapsed)
                .signed_micros_since(unset)
        }

        fn wall_leads_by(&self) -> i64 {
            let now = self.clock.now();
            self.clock.wall_time(now).signed_micros_since(now)
        }
    }

    #[test]
    fn a_step_that_is_corrected_leaves_no_trace() {
        for by in [25 * DAY / 24, -25 * DAY / 24, 2 * SECOND.cast_signed()] {
            let stepped = Stepped::new();
            assert_eq!(stepped.look(1, 0), None);
            assert_eq!(stepped.look(2, by), Some(ClockChange::Set(by)));
            assert_eq!((stepped.followed(2), stepped.wall_leads_by()), (0, by));
            assert_eq!(stepped.look(31, by), None);
            assert_eq!(stepped.look(32, 0), Some(ClockChange::Corrected));
            assert_eq!((stepped.followed(32), stepped.wall_leads_by()), (0, 0));
            assert_eq!(stepped.look(100, 0), None);
        }
    }

    #[test]
    fn a_step_forward_that_stays_is_followed_and_its_correction_without_haste() {
        const HOUR: i64 = DAY / 24;
        let stepped = Stepped::new();
        assert_eq!(stepped.look(1, HOUR), Some(ClockChange::Set(HOUR)));
        for second in 2..31 {
            assert_eq!(stepped.look(second, HOUR), None, "{second}");
        }
        assert_eq!(stepped.look(31, HOUR), Some(ClockChange::Followed(HOUR)));
        assert_eq!((stepped.followed(31), stepped.wall_leads_by()), (HOUR, 0));
        assert_eq!(stepped.look(40, HOUR), None);

        assert_eq!(stepped.look(41, 0), Some(ClockChange::Set(-HOUR)));
        assert_eq!(stepped.look(71, 0), Some(ClockChange::Followed(-HOUR)));
        let hour = HOUR.unsigned_abs() / SECOND;
        let mut before = stepped.followed(71);
        for second in 72..71 + SLOWER * hour {
            let change = stepped.look(second, 0);
            let agrees = second >= 71 + SLOWER * (hour - 1);
            assert!(change.is_none() || agrees, "{second}: {change:?}");
            let followed = stepped.followed(second);
            // A little less in each second: no rate is wrong by more than 4 %.
            assert!(before - followed <= SECOND.cast_signed() / 25, "{second}");
            before = followed;
        }
        assert_eq!(stepped.followed(71 + SLOWER * hour), 0);
        assert_eq!(stepped.look(72 + SLOWER * hour, 0), None);
    }

    #[test]
    fn steps_while_the_clock_is_slow_are_followed_too() {
        let stepped = Stepped::new();
        let by = |seconds: i64| seconds * SECOND.cast_signed();
        let back = by(-1_000);
        assert_eq!(stepped.look(0, back), Some(ClockChange::Set(back)));
        assert_eq!(stepped.look(30, back), Some(ClockChange::Followed(back)));
        assert_eq!(stepped.look(350, back), None);
        assert_eq!(
            (stepped.followed(350), stepped.wall_leads_by()),
            (by(-10), by(-990))
        );
        // The wall clock was right after all.
        assert_eq!(stepped.look(351, 0), Some(ClockChange::Set(-back)));
        (352..381).for_each(|second| assert_eq!(stepped.look(second, 0), None));
        assert_eq!(stepped.followed(381), by(-351) / 32);
        let change = ClockChange::Followed(by(351) / 32);
        assert_eq!(stepped.look(381, 0), Some(change));
        assert_eq!((stepped.followed(381), stepped.followed(900)), (0, 0));
        assert_eq!(stepped.look(382, 0), None);
    }

    #[test]
    fn a_clock_continues_where_another_process_has_been() {
        let clock = Clock::system();
        let (start, hour) = (clock.now(), Duration::from_secs(3_600));
        clock.continue_from(start.saturating_sub(hour));
        assert!(clock.now().since(start) < hour / 2);
        clock.continue_from(start.saturating_add(hour));
        assert!(clock.now() >= start.saturating_add(hour));
        assert!(clock.wall_time(clock.now()).since(start) < hour / 2);
        assert!(clock.ahead() > 3_500 * SECOND);
        assert_eq!(clock.resync(), None, "it is on its way");
    }

    #[test]
    fn readers_see_whole_anchors() {
        let anchor = AtomicAnchor::new(Timestamp::EPOCH);
        let is_whole = |one: Anchor| one.origin == one.to_lose && one.origin == one.slow_since;
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| (0..100_000).all(|_| is_whole(anchor.load()))))
                .collect();
            for value in 0..100_000 {
                anchor.store(Anchor {
                    origin: value,
                    to_lose: value,
                    slow_since: value,
                });
            }
            for reader in readers {
                assert!(reader.join().expect("no panic"));
            }
        });
    }

    #[test]
    fn a_wall_clock_that_keeps_being_set_is_not_followed_before_it_settles() {
        let stepped = Stepped::new();
        for second in 0..100_u32 {
            let by = i64::from(second + 1) * 10 * SECOND.cast_signed();
            assert_eq!(stepped.look(second.into(), by), Some(ClockChange::Set(by)));
        }
        assert_eq!(stepped.followed(100), 0);
        // Less than a second is no step.
        assert_eq!(stepped.look(101, 999_999), Some(ClockChange::Corrected));
        assert_eq!(stepped.look(102, -999_999), None);
    }

    #[test]
    fn a_manual_clock_stands_until_it_is_moved() {
        let clock = Clock::manual(Timestamp::from_micros(5));
        clock.resync();
        assert_eq!(clock.now(), Timestamp::from_micros(5));
        clock.continue_from(Timestamp::from_micros(9));
        clock.continue_from(Timestamp::from_micros(7));
        assert_eq!(clock.now(), Timestamp::from_micros(9));
    }
}
