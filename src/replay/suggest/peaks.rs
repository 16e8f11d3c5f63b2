//! How a key asks: its busiest second, minute and hour, and the burst that a rate needs.

/// A second, in microseconds.
pub(super) const SECOND: u64 = 1_000_000;
/// The windows in which requests are counted, in microseconds: a second, a minute, an hour.
pub(super) const WINDOWS: [u64; 3] = [SECOND, 60 * SECOND, 3_600 * SECOND];

/// The most requests of a key within any second, minute and hour, and all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peaks {
    /// By [`WINDOWS`].
    pub most: [u32; 3],
    pub requests: u32,
}

impl Peaks {
    /// The peaks of these times in microseconds, in ascending order. A window holds what is less than
    /// its length apart.
    pub(super) fn of(times: &[u64]) -> Self {
        Self {
            most: WINDOWS.map(|window| busiest(times, window)),
            requests: u32::try_from(times.len()).unwrap_or(u32::MAX),
        }
    }
}

fn busiest(times: &[u64], window: u64) -> u32 {
    let mut first = 0;
    let mut most = 0;
    for (last, time) in times.iter().enumerate() {
        while time - times[first] >= window {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// The smallest burst with which `limit` requests in `window` microseconds refuse none of these, as
/// GCRA counts.
pub(super) fn burst_needed(times: &[u64], limit: u32, window: u64) -> u32 {
    // In 1/limit microseconds, so that nothing is rounded.
    let (limit, step) = (u128::from(limit), u128::from(window));
    let mut backlog = 0;
    let mut most = 0;
    let mut before = times.first().copied().unwrap_or_default();
    for &time in times {
        backlog = u128::saturating_sub(backlog, u128::from(time - before) * limit) + step;
        most = most.max(backlog);
        before = time;
    }
    u32::try_from(most.div_ceil(step)).unwrap_or(u32::MAX)
}

/// The value that `percent` of `sorted` don't exceed: the nearest rank, so it is one of them. 0 for
/// none.
pub(super) fn percentile(sorted: &[u32], percent: f64) -> u32 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    let place = rank.clamp(1, sorted.len().max(1)) - 1;
    sorted.get(place).copied().unwrap_or_default()
}

/// The first steps of the numbers that people write; the others are these times ten.
const STEPS: [u64; 11] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100];

/// The next number that people write: up to 10, then 12, 15, 20, 25 and so on.
pub(super) fn round_up(number: f64) -> u32 {
    let number = number.ceil().clamp(1.0, 4e9) as u64;
    if number <= 10 {
        return number as u32;
    }
    let mut scale = 1;
    while STEPS[10] * scale < number {
        scale *= 10;
    }
    let step = STEPS.iter().map(|step| step * scale);
    let found = step.into_iter().find(|step| *step >= number);
    u32::try_from(found.unwrap_or(number)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock::Timestamp;
    use crate::limiter::{Algorithm, Cell, Gcra, Quota};

    #[test]
    fn a_window_slides_and_excludes_its_end() {
        let seconds = |times: &[u64]| {
            let times: Vec<_> = times.iter().map(|time| time * SECOND).collect();
            Peaks::of(&times).most
        };
        assert_eq!(seconds(&[]), [0, 0, 0]);
        assert_eq!(seconds(&[5, 5, 5]), [3, 3, 3]);
        assert_eq!(seconds(&[0, 1, 59, 60]), [1, 3, 4]);
        assert_eq!(seconds(&[0, 3_599, 3_600]), [1, 2, 2]);
    }

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let hundred: Vec<_> = (1..=200).collect();
        assert_eq!(percentile(&hundred, 99.0), 198);
        assert_eq!(percentile(&hundred, 100.0), 200);
        assert_eq!(percentile(&hundred, 0.1), 1);
        assert_eq!(percentile(&[7], 50.0), 7);
        assert_eq!(percentile(&[], 50.0), 0);
    }

    #[test]
    fn numbers_are_rounded_up_to_those_that_people_write() {
        let rounded = [0.2, 7.0, 9.1, 11.0, 62.0, 93.0, 101.0, 121.0, 1e9, 1e12];
        let rounded = rounded.map(round_up);
        let expected = [
            1,
            7,
            10,
            12,
            80,
            100,
            120,
            150,
            1_000_000_000,
            4_000_000_000,
        ];
        assert_eq!(rounded, expected);
    }

    proptest! {
        /// The limiter itself refuses none with this burst, and one with a smaller.
        #[test]
        fn the_burst_is_the_smallest_that_refuses_none(
            gaps in prop::collection::vec(0_u64..3 * SECOND, 1..60),
            limit in 1_u32..20,
            window in prop::sample::select(&WINDOWS[..]),
        ) {
            let times: Vec<_> = gaps.iter().scan(SECOND, |now, gap| {
                *now += gap;
                Some(*now)
            }).collect();
            let refused = |burst: u32| {
                let quota = Quota::new(limit, std::time::Duration::from_micros(window)).expect("a quota");
                let algorithm = Algorithm::Gcra(Gcra::new(quota, burst).expect("a burst"));
                let mut cell = Cell::EMPTY;
                times.iter().filter(|time| {
                    let decision = algorithm.decide(cell, Timestamp::from_micros(**time), 1);
                    cell = decision.cell;
                    !decision.is_admitted()
                }).count()
            };
            let burst = burst_needed(&times, limit, window);
            prop_assert_eq!(refused(burst), 0);
            prop_assert!(burst == 1 || refused(burst - 1) > 0);
        }

        #[test]
        fn rounding_never_lowers_and_adds_a_third_at_most(number in 1_u32..2_000_000_000) {
            let rounded = round_up(f64::from(number));
            prop_assert!(rounded >= number);
            prop_assert!(u64::from(rounded) * 3 <= u64::from(number) * 4);
            prop_assert_eq!(round_up(f64::from(rounded)), rounded);
        }
    }
}
