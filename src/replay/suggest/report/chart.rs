//! The distribution of clients by their busiest window, in bars.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::super::quota::{Proposal, WINDOW_NAMES};

/// The steps of the scale, and then these times ten.
const STEPS: [u64; 3] = [1, 2, 5];
/// The longest bar, in letters.
const WIDTH: usize = 44;

/// How many clients are how busy. The proposed quota is between two bars.
#[derive(Debug, Serialize)]
pub(in crate::replay::suggest) struct Chart {
    window: &'static str,
    /// Requests within the window that the quota allows, without a burst.
    quota: u32,
    #[serde(skip)]
    quota_text: String,
    bars: Vec<Bar>,
}

/// Clients with a busiest window of `from` to `to` requests.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Bar {
    from: u32,
    to: u32,
    clients: usize,
}

impl Chart {
    /// The chart of these peaks, in ascending order.
    pub(super) fn new(sorted: &[u32], proposal: &Proposal) -> Self {
        let quota = proposal.limit_in_chart();
        Self {
            window: WINDOW_NAMES[proposal.chart_window()],
            quota,
            quota_text: proposal.quota.clone(),
            bars: bars(sorted, quota),
        }
    }
}

fn bars(sorted: &[u32], quota: u32) -> Vec<Bar> {
    let (Some(&least), Some(&most)) = (sorted.first(), sorted.last()) else {
        return Vec::new();
    };
    let scale = (0..10).flat_map(|power| STEPS.map(|step| step * 10_u64.pow(power)));
    let mut ends: Vec<_> = scale.chain([u64::from(quota)]).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut bars = Vec::new();
    let mut from = 1_u64;
    for to in ends {
        let range = sorted.partition_point(|peak| u64::from(*peak) < from)
            ..sorted.partition_point(|peak| u64::from(*peak) <= to);
        let is_shown = to >= u64::from(least) && from <= u64::from(most);
        if is_shown || to == u64::from(quota) {
            bars.push(Bar {
                from: from as u32,
                to: u32::try_from(to).unwrap_or(u32::MAX),
                clients: range.len(),
            });
        }
        from = to + 1;
    }
    bars
}

impl Display for Chart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  clients by the requests of their busiest {}:",
            self.window
        )?;
        let most = self
            .bars
            .iter()
            .map(|bar| bar.clients)
            .max()
            .unwrap_or_default();
        for bar in &self.bars {
            let range = match (bar.from, bar.to) {
                (from, to) if from == to => from.to_string(),
                (from, to) => format!("{from}-{to}"),
            };
            let length = (bar.clients * WIDTH).div_ceil(most.max(1));
            let line = format!("{range:>15}{:>9}  {}", bar.clients, "#".repeat(length));
            writeln!(f, "{}", line.trim_end())?;
            if bar.to == self.quota {
                let quota = format!("-- {} ", self.quota_text);
                writeln!(f, "{:>15}{quota:-<55}", "")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_is_between_two_bars_and_gaps_are_shown() {
        let sorted = [1, 1, 3, 6, 7, 90];
        let bars = bars(&sorted, 8);
        let bars: Vec<_> = bars
            .iter()
            .map(|bar| (bar.from, bar.to, bar.clients))
            .collect();
        let expected = [
            (1, 1, 2),
            (2, 2, 0),
            (3, 5, 1),
            (6, 8, 2),
            (9, 10, 0),
            (11, 20, 0),
            (21, 50, 0),
            (51, 100, 1),
        ];
        assert_eq!(bars, expected);
    }
}
