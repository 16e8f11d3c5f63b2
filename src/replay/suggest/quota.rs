//! The quota that a percentile of keys would not have met, with headroom.

use serde::Serialize;

use super::peaks::{Peaks, WINDOWS, burst_needed, percentile, round_up};

/// The fewest keys, and requests, for which a quota is proposed.
pub(super) const MIN_KEYS: usize = 10;
pub(super) const MIN_REQUESTS: usize = 100;
/// The smallest quota and burst that is proposed: people click twice.
const MIN_QUOTA: f64 = 5.0;
/// A quota of this many requests a minute is written for a second.
const PER_SECOND: f64 = 600.0;
/// The smallest quota for an hour.
const MIN_PER_HOUR: f64 = 10.0;

/// The wishes of the user.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// As the configuration writes keys.
    pub key: String,
    /// Which keys the quotas are made for.
    pub margin: Margin,
}

/// Which keys a quota is made for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Margin {
    /// The percentile of keys, above 0 and up to 100.
    pub percentile: f64,
    /// What their peaks are multiplied by, 1 or more.
    pub headroom: f64,
}

/// A quota, and what it was made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposal {
    /// As the configuration writes it.
    pub quota: String,
    /// The units that can be taken at once.
    pub burst: u32,
    /// The window's place in the list of windows.
    #[serde(skip)]
    window: usize,
    /// The percentile of the keys' busiest windows, before headroom.
    pub peak: u32,
    /// The percentile of the bursts that keys need at the quota's rate, before headroom.
    pub peak_burst: u32,
}

/// The words for windows.
pub(super) const WINDOW_NAMES: [&str; 3] = ["second", "minute", "hour"];
const WINDOW_UNITS: [&str; 3] = ["1s", "1m", "1h"];

/// How requests spread over keys.
#[derive(Clone, Debug, Serialize)]
pub struct Distribution {
    /// Busiest windows of keys.
    pub half: u32,
    /// Nine in ten keys have no more.
    pub p90: u32,
    /// The chosen percentile.
    pub chosen: u32,
    /// The busiest key.
    pub most: u32,
}

/// Peaks in ascending order, by window.
pub(super) fn sorted_peaks(peaks: &[Peaks]) -> [Vec<u32>; 3] {
    std::array::from_fn(|window| {
        let mut sorted: Vec<_> = peaks.iter().map(|one| one.most[window]).collect();
        sorted.sort_unstable();
        sorted
    })
}

impl Distribution {
    pub(super) fn of(sorted: &[u32], margin: Margin) -> Self {
        Self {
            half: percentile(sorted, 50.0),
            p90: percentile(sorted, 90.0),
            chosen: percentile(sorted, margin.percentile),
            most: sorted.last().copied().unwrap_or_default(),
        }
    }
}

impl Proposal {
    /// A quota for keys with these peaks and times; `has_hour` says if the log covers one.
    pub(super) fn new(
        sorted: &[Vec<u32>; 3],
        times: &[Vec<u64>],
        margin: Margin,
        has_hour: bool,
    ) -> Self {
        let peaks = sorted
            .each_ref()
            .map(|one| percentile(one, margin.percentile));
        let [_, minute, hour] = peaks.map(|peak| f64::from(peak) * margin.headroom);
        let (window, wanted) = if minute >= PER_SECOND {
            (0, minute / 60.0)
        } else if minute < MIN_QUOTA && hour >= MIN_PER_HOUR && has_hour {
            (2, hour)
        } else {
            (1, minute)
        };
        let limit = round_up(wanted.max(MIN_QUOTA));
        let mut bursts: Vec<_> = times
            .iter()
            .map(|times| burst_needed(times, limit, WINDOWS[window]))
            .collect();
        bursts.sort_unstable();
        let peak_burst = percentile(&bursts, margin.percentile);
        let burst = round_up((f64::from(peak_burst) * margin.headroom).max(MIN_QUOTA));
        // More than a window's requests at once is for quotas of a second.
        let burst = if window == 0 { burst } else { burst.min(limit) };
        Self {
            quota: format!("{limit}/{}", WINDOW_UNITS[window]),
            burst,
            window,
            // That of a minute, written for a second, is told as such.
            peak: peaks[window.max(1)],
            peak_burst,
        }
    }

    /// Why the quota has this number.
    pub(super) fn reason(&self, margin: Margin) -> String {
        let Margin {
            percentile,
            headroom,
        } = margin;
        let window = WINDOW_NAMES[self.window.max(1)];
        let peak = self.peak;
        let product = f64::from(peak) * headroom;
        let rate = match self.window {
            0 => format!(", {} a second", tenths(product / 60.0)),
            _ => String::new(),
        };
        let product = tenths(product);
        format!(
            "{percentile}% of clients: up to {peak} in their busiest {window}; × {headroom} = {product}{rate}"
        )
    }

    /// Why the burst has this number.
    pub(super) fn burst_reason(&self, margin: Margin) -> String {
        let Margin {
            percentile,
            headroom,
        } = margin;
        let burst = self.peak_burst;
        let product = tenths(f64::from(burst) * headroom);
        format!(
            "{percentile}% of them, at that rate: a burst of up to {burst}; × {headroom} = {product}"
        )
    }
}

/// A number with one digit behind the point, if it has any.
fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
