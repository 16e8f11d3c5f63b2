//! The quota that a percentile of clients would not have met, with headroom, from their busiest
//! second, minute and hour.

use std::time::Duration;

use limiter::algorithms::Gcra;
use limiter::{Algorithm, Cell, Quota, Timestamp};
use serde::Serialize;

use super::Wishes;
use super::survey::Seen;

/// The smallest quota and burst that is proposed: people click twice.
const MIN_QUOTA: f64 = 5.0;
/// A quota of this many requests a minute is written for a second.
const PER_SECOND: f64 = 600.0;
/// The smallest quota for an hour.
const MIN_PER_HOUR: f64 = 10.0;
/// Numbers that people write; the others are these times ten.
const ROUND: [u64; 11] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100];

/// A window, as people and the configuration write it, and its seconds.
pub(super) type Window = (&'static str, &'static str, u64);
const SECOND: Window = ("second", "1s", 1);
const MINUTE: Window = ("minute", "1m", 60);
const HOUR: Window = ("hour", "1h", 3_600);

/// How many requests clients make in their busiest window.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Peaks {
    pub window: &'static str,
    /// Half of the clients have no more.
    pub half: u32,
    pub p90: u32,
    /// The chosen percentile.
    pub chosen: u32,
    /// The busiest client.
    pub most: u32,
}

/// A quota, and what it was made of.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Proposal {
    /// As the configuration writes it.
    pub quota: String,
    /// The units that can be taken at once.
    pub burst: u32,
    /// The percentile of the clients' busiest windows, before headroom.
    pub peak: u32,
    /// The percentile of the bursts that clients need at the quota's rate, before headroom.
    pub peak_burst: u32,
    /// Why.
    #[serde(skip)]
    pub reason: String,
    #[serde(skip)]
    limit: u32,
    #[serde(skip)]
    window: Window,
}

impl Peaks {
    /// The peaks of clients in a second, a minute and an hour. Each has its requests by time.
    pub(super) fn of(clients: &[&[Seen]], percentile: f64) -> [Self; 3] {
        [SECOND, MINUTE, HOUR].map(|(window, _, seconds)| {
            let busiest = clients.iter().map(|client| busiest(client, seconds));
            let sorted = sorted(busiest);
            Self {
                window,
                half: rank(&sorted, 50.0),
                p90: rank(&sorted, 90.0),
                chosen: rank(&sorted, percentile),
                most: rank(&sorted, 100.0),
            }
        })
    }
}

impl Proposal {
    /// A limit for clients with these peaks; `has_hour` says if the log covers one.
    pub(super) fn new(
        clients: &[&[Seen]],
        [_, minute, hour]: &[Peaks; 3],
        has_hour: bool,
        wishes: &Wishes,
    ) -> Self {
        let Wishes {
            percentile,
            headroom,
            ..
        } = wishes;
        let [per_minute, per_hour] = [minute, hour].map(|peaks| f64::from(peaks.chosen) * headroom);
        let (window, wanted, peaks) = if per_minute >= PER_SECOND {
            (SECOND, per_minute / 60.0, minute)
        } else if per_minute < MIN_QUOTA && per_hour >= MIN_PER_HOUR && has_hour {
            (HOUR, per_hour, hour)
        } else {
            (MINUTE, per_minute, minute)
        };
        let limit = round_up(wanted.max(MIN_QUOTA));
        let bursts = clients
            .iter()
            .map(|client| needed_burst(client, limit, window.2));
        let peak_burst = rank(&sorted(bursts), *percentile);
        let burst = round_up((f64::from(peak_burst) * headroom).max(MIN_QUOTA));
        let peak = peaks.chosen;
        Self {
            quota: format!("{limit}/{}", window.1),
            // More than a window's requests at once is for quotas of a second.
            burst: if window == SECOND {
                burst
            } else {
                burst.min(limit)
            },
            peak,
            peak_burst,
            reason: format!(
                "{percentile}% of clients: up to {peak} in their busiest {}, in bursts of up to {peak_burst}; × {headroom}",
                peaks.window
            ),
            limit,
            window,
        }
    }

    /// How many of a client's requests the limit would have refused.
    pub(super) fn limited(&self, client: &[Seen]) -> usize {
        let quota = Quota::new(self.limit, Duration::from_secs(self.window.2));
        let Ok(gcra) = quota.and_then(|quota| Gcra::new(quota, self.burst)) else {
            return 0;
        };
        let algorithm = Algorithm::Gcra(gcra);
        let mut cell = Cell::EMPTY;
        let refused = client.iter().filter(|request| {
            let decision = algorithm.decide(cell, Timestamp::from_micros(request.time), 1);
            cell = decision.cell;
            !decision.is_admitted()
        });
        refused.count()
    }
}

/// The most requests within any window, which holds what is less than its length apart.
fn busiest(client: &[Seen], seconds: u64) -> u32 {
    let mut first = 0;
    let lengths = client.iter().zip(1..).map(|(request, count)| {
        while request.time - client[first].time >= seconds * 1_000_000 {
            first += 1;
        }
        count - first
    });
    lengths.max().unwrap_or_default() as u32
}

/// The smallest burst with which `limit` requests in so many seconds refuse none of these, as GCRA
/// counts.
fn needed_burst(client: &[Seen], limit: u32, seconds: u64) -> u32 {
    // In 1/limit microseconds, so that nothing is rounded.
    let (limit, step) = (u128::from(limit), u128::from(seconds) * 1_000_000);
    let mut backlog: u128 = 0;
    let mut before = 0;
    let backlogs = client.iter().map(|request| {
        let passed = u128::from(request.time - before) * limit;
        backlog = backlog.saturating_sub(passed) + step;
        before = request.time;
        backlog
    });
    backlogs.max().unwrap_or_default().div_ceil(step) as u32
}

fn sorted(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut sorted: Vec<_> = numbers.collect();
    sorted.sort_unstable();
    sorted
}

/// The value that `percent` of `sorted` don't exceed: the nearest rank, so it is one of them. 0 for
/// none.
fn rank(sorted: &[u32], percent: f64) -> u32 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
}

/// The next number that people write: up to 10, then 12, 15, 20, 25 and so on.
fn round_up(number: f64) -> u32 {
    let number = number.ceil().clamp(1.0, 4e9) as u64;
    let mut scale = 1;
    while ROUND[10] * scale < number {
        scale *= 10;
    }
    let mut round = ROUND.iter().map(|round| round * scale);
    let found = round.find(|round| number > 10 && *round >= number);
    found.unwrap_or(number) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn client(times: impl IntoIterator<Item = u64>) -> Vec<Seen> {
        let request = |time| Seen {
            place: 0,
            key: 0,
            time,
        };
        times.into_iter().map(request).collect()
    }

    #[test]
    fn a_window_slides_and_excludes_its_end() {
        let peaks = |seconds: &[u64]| {
            let client = client(seconds.iter().map(|second| second * 1_000_000));
            Peaks::of(&[&client], 99.0).map(|peaks| peaks.most)
        };
        assert_eq!(peaks(&[]), [0, 0, 0]);
        assert_eq!(peaks(&[5, 5, 5]), [3, 3, 3]);
        assert_eq!(peaks(&[0, 1, 59, 60]), [1, 3, 4]);
        assert_eq!(peaks(&[0, 3_599, 3_600]), [1, 2, 2]);
    }

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let hundred: Vec<_> = (1..=200).collect();
        assert_eq!(rank(&hundred, 99.0), 198);
        assert_eq!(rank(&hundred, 100.0), 200);
        assert_eq!(rank(&hundred, 0.1), 1);
        assert_eq!(rank(&[7], 50.0), 7);
        assert_eq!(rank(&[], 50.0), 0);
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
            gaps in prop::collection::vec(0_u64..3_000_000, 1..60),
            limit in 1_u32..20,
            window in prop::sample::select(&[SECOND, MINUTE, HOUR][..]),
        ) {
            let times = gaps.iter().scan(1_000_000, |now, gap| {
                *now += gap;
                Some(*now)
            });
            let client = client(times);
            let needed = needed_burst(&client, limit, window.2);
            let refused = |burst| {
                let proposal = Proposal {
                    quota: String::new(),
                    burst,
                    peak: 0,
                    peak_burst: 0,
                    reason: String::new(),
                    limit,
                    window,
                };
                proposal.limited(&client)
            };
            prop_assert_eq!(refused(needed), 0);
            prop_assert!(needed == 1 || refused(needed - 1) > 0);
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
