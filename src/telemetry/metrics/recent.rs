//! Counts of the last minutes: problems that are over leave the status, while
//! their counters keep the total.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::telemetry::registry::Registry;

/// The most minutes that are remembered.
const MINUTES: usize = 15;

/// An event that the counters of a family count.
#[derive(Clone, Copy, Debug)]
pub struct RecentEvent {
    /// The name of the family.
    pub family: &'static str,
    /// The number of labels, from the first, whose values are told apart.
    pub labels: usize,
    /// The last label's value, or after `!` the value that it doesn't have; without one, all count.
    /// The others could have been an event.
    pub value: &'static str,
    /// The time for which an event is remembered, in minutes; at most 15.
    pub minutes: usize,
}

impl RecentEvent {
    fn is(&self, value: &str) -> bool {
        match self.value.strip_prefix('!') {
            Some(other) => value != other,
            None => self.value.is_empty() || value == self.value,
        }
    }
}

/// The events of the last minutes with the same labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentCount {
    /// The values of the labels that are told apart.
    pub labels: Vec<Box<str>>,
    /// How many there were; not 0.
    pub events: u64,
    /// How many there could have been.
    pub all: u64,
}

/// Reads the counters of events, and remembers what they gained. Clones share it.
///
/// It takes memory for what has counted events, which the configuration bounds.
#[derive(Clone, Debug)]
pub struct RecentCounts {
    registry: Registry,
    events: Arc<[RecentEvent]>,
    sampled: Arc<Mutex<Sampled>>,
}

#[derive(Debug, Default)]
struct Sampled {
    at: Timestamp,
    /// Series by family and value of the event, then by the values of its other labels.
    series: BTreeMap<[&'static str; 2], BTreeMap<Vec<Box<str>>, Series>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct EventCounts {
    events: u64,
    all: u64,
}

#[derive(Clone, Debug, Default)]
struct Series {
    total: EventCounts,
    /// A minute since the epoch and its gain, at the minute's remainder.
    gains: [(u64, EventCounts); MINUTES + 1],
}

impl RecentCounts {
    /// Starts with what the registry's counters have counted so far.
    pub fn new(registry: &Registry, events: impl Iterator<Item = RecentEvent>) -> Self {
        Self {
            registry: registry.clone(),
            events: events.collect(),
            sampled: Arc::default(),
        }
    }

    /// Reads all counters, unless that was done within the last `interval`.
    pub fn sample(&self, now: Timestamp, interval: Duration) {
        let mut sampled = self.sampled.lock();
        if sampled.at != Timestamp::EPOCH && now.since(sampled.at) < interval {
            return;
        }
        sampled.at = now;
        for event in &*self.events {
            let totals = self.totals(event);
            let series = sampled.series.entry([event.family, event.value]);
            let series = series.or_default();
            series.retain(|labels, _| totals.contains_key(labels));
            for (labels, total) in totals {
                series.entry(labels).or_default().grow(total, minute(now));
            }
        }
    }

    /// The totals with events, by labels.
    fn totals(&self, event: &RecentEvent) -> BTreeMap<Vec<Box<str>>, EventCounts> {
        let mut totals = BTreeMap::<_, EventCounts>::new();
        self.registry.read_counters(event.family, |labels, count| {
            let is_event = event.is(labels.last().copied().unwrap_or_default());
            let shown = labels.iter().take(event.labels);
            if count > 0 {
                let total = totals.entry(shown.map(|&label| label.into()).collect());
                let total = total.or_default();
                total.all += count;
                total.events += if is_event { count } else { 0 };
            }
        });
        totals.retain(|_, total| total.events > 0);
        totals
    }

    /// The counts that were sampled of an event, with its labels in order.
    pub fn of(&self, event: &RecentEvent) -> Vec<RecentCount> {
        let sampled = self.sampled.lock();
        let oldest = minute(sampled.at).saturating_sub(event.minutes as u64);
        let counts = sampled.series.get(&[event.family, event.value]);
        let counts = counts.into_iter().flatten();
        let counts = counts.map(|(labels, series)| {
            let EventCounts { events, all } = series.since(oldest);
            RecentCount {
                labels: labels.clone(),
                events,
                all,
            }
        });
        counts.filter(|count| count.events > 0).collect()
    }
}

impl Series {
    /// Notes what was gained in `minute`. Totals fall when a reload drops a series.
    fn grow(&mut self, total: EventCounts, minute: u64) {
        let (slot, gain) = &mut self.gains[minute as usize % (MINUTES + 1)];
        if *slot != minute {
            (*slot, *gain) = (minute, EventCounts::default());
        }
        gain.events += total.events.saturating_sub(self.total.events);
        gain.all += total.all.saturating_sub(self.total.all);
        self.total = total;
    }

    /// The gain of the minutes from `oldest` on.
    fn since(&self, oldest: u64) -> EventCounts {
        let gains = self.gains.iter().filter(|(minute, _)| *minute >= oldest);
        gains.fold(EventCounts::default(), |sum, (_, gain)| EventCounts {
            events: sum.events + gain.events,
            all: sum.all + gain.all,
        })
    }
}

fn minute(instant: Timestamp) -> u64 {
    instant.as_micros() / 60_000_000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::telemetry::metrics::{SettlementMetrics, SettlementResult, SpanLoss, SpanMetrics};

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros((1_000_000_000 + seconds) * 1_000_000)
    }

    const LOSS: RecentEvent = RecentEvent {
        family: "sluicegate_trace_spans_dropped_total",
        labels: 0,
        value: "",
        minutes: MINUTES,
    };

    fn lost(recent: &RecentCounts) -> u64 {
        recent.of(&LOSS).first().map_or(0, |count| count.events)
    }

    proptest! {
        #[test]
        fn an_event_is_remembered_for_its_minutes(
            losses in prop::collection::vec((0_u64..400, 0_u64..5), 1..60),
        ) {
            let registry = Registry::default();
            let metrics = SpanMetrics::new(&registry);
            let recent = RecentCounts::new(&registry, [LOSS].into_iter());
            let (mut now, mut history) = (0, Vec::new());
            for (pause, spans) in losses {
                now += pause;
                metrics.dropped.add(SpanLoss::Refused, spans);
                history.push((now, spans));
                recent.sample(at(now), Duration::ZERO);
                let within = |seconds: u64| -> u64 {
                    let recent = history.iter().filter(|(at, _)| now - at <= seconds);
                    recent.map(|(_, spans)| spans).sum()
                };
                let minutes = LOSS.minutes as u64;
                let found = lost(&recent);
                prop_assert!((within(minutes * 60)..=within(minutes * 60 + 60)).contains(&found));
            }
        }
    }

    #[test]
    fn what_is_told_apart_has_its_own_counts_until_its_series_end() {
        let registry = Registry::default();
        let event = RecentEvent {
            family: "sluicegate_limit_settlements_total",
            labels: 1,
            value: "!settled",
            ..LOSS
        };
        let recent = RecentCounts::new(&registry, [event].into_iter());
        let metrics = ["a", "b", "idle"].map(|name| SettlementMetrics::new(&registry, name));
        for result in [SettlementResult::Settled, SettlementResult::Missing] {
            metrics.iter().take(2).for_each(|one| one.record(result));
        }
        metrics[1].record(SettlementResult::Malformed);
        metrics[2].record(SettlementResult::Settled);
        recent.sample(at(0), SECOND);
        let count = |label: &str, events, all| RecentCount {
            labels: vec![label.into()],
            events,
            all,
        };
        let unsettled = || recent.of(&event);
        assert_eq!(unsettled(), [count("a", 1, 2), count("b", 2, 3)]);
        let [first, _second, _third] = metrics;
        drop(first);
        recent.sample(at(0), SECOND);
        assert_eq!(unsettled().len(), 2, "sampled a moment ago");
        recent.sample(at(1), SECOND);
        assert_eq!(unsettled(), [count("b", 2, 3)]);
        recent.sample(at(17 * 60), SECOND);
        assert_eq!(unsettled(), []);
    }
}
