//! Requests over time, in a bounded number of parts of equal length: whatever the log, memory and the
//! page that shows it stay small.

use limiter::Timestamp;

/// The most parts.
pub(crate) const MAX_PARTS: usize = 120;

const SECOND: u64 = 1_000_000;
/// The lengths of parts, in seconds, each a multiple of the one before; then twice as long each time.
const STEPS: [u64; 13] = [
    1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400,
];

/// Counts of one part.
pub(crate) trait Part: Default {
    /// Adds the counts of a later part.
    fn add(&mut self, other: Self);
}

/// Parts of time, from the first request to the latest.
#[derive(Clone, Debug)]
pub(crate) struct Timeline<P> {
    /// The beginning of the first part, in microseconds: a multiple of the length.
    from: u64,
    /// The length of a part, in microseconds.
    step: u64,
    parts: Vec<P>,
}

impl<P: Part> Timeline<P> {
    pub(crate) const fn new() -> Self {
        Self {
            from: 0,
            step: STEPS[0] * SECOND,
            parts: Vec::new(),
        }
    }

    /// The part of a time that is not before any other.
    pub(crate) fn at(&mut self, now: Timestamp) -> &mut P {
        let now = now.as_micros();
        if self.parts.is_empty() {
            self.from = now - now % self.step;
        }
        while (now - self.from) / self.step >= MAX_PARTS as u64 {
            self.widen();
        }
        let place = ((now - self.from) / self.step) as usize;
        if self.parts.len() <= place {
            self.parts.resize_with(place + 1, P::default);
        }
        &mut self.parts[place]
    }

    fn widen(&mut self) {
        let mut steps = STEPS.iter().map(|step| step * SECOND);
        let step = steps.find(|step| *step > self.step);
        let step = step.unwrap_or(self.step.saturating_mul(2));
        let from = self.from - self.from % step;
        let mut parts: Vec<P> = Vec::new();
        for (place, part) in std::mem::take(&mut self.parts).into_iter().enumerate() {
            let place = ((self.from + place as u64 * self.step - from) / step) as usize;
            if parts.len() <= place {
                parts.resize_with(place + 1, P::default);
            }
            parts[place].add(part);
        }
        (self.from, self.step, self.parts) = (from, step, parts);
    }

    /// The beginning of the first part.
    pub(crate) const fn from(&self) -> Timestamp {
        Timestamp::from_micros(self.from)
    }

    /// The length of a part, in microseconds.
    pub(crate) const fn step(&self) -> u64 {
        self.step
    }

    pub(crate) fn parts(&self) -> &[P] {
        &self.parts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Part for u64 {
        fn add(&mut self, other: Self) {
            *self += other;
        }
    }

    proptest! {
        #[test]
        fn every_request_is_in_the_part_of_its_time(
            gaps in prop::collection::vec(prop_oneof![0..SECOND, 0..100_000 * SECOND], 1..300),
            start in 0..2_000_000_000 * SECOND,
        ) {
            let times: Vec<_> = gaps.iter().scan(start, |now, gap| {
                *now += gap;
                Some(*now)
            }).collect();
            let mut timeline = Timeline::<u64>::new();
            for time in &times {
                *timeline.at(Timestamp::from_micros(*time)) += 1;
            }
            prop_assert!(timeline.parts().len() <= MAX_PARTS);
            let from = timeline.from().as_micros();
            prop_assert_eq!(from % timeline.step(), 0);
            for (place, count) in timeline.parts().iter().enumerate() {
                let start = from + place as u64 * timeline.step();
                let within = start..start + timeline.step();
                let expected = times.iter().filter(|time| within.contains(time)).count();
                prop_assert_eq!(*count, expected as u64);
            }
        }
    }

    #[test]
    fn a_century_has_a_bounded_number_of_parts() {
        let mut timeline = Timeline::<u64>::new();
        *timeline.at(Timestamp::EPOCH) += 1;
        *timeline.at(Timestamp::from_micros(253_402_300_799 * SECOND)) += 1;
        assert!(timeline.parts().len() <= MAX_PARTS);
        assert_eq!(timeline.parts().iter().sum::<u64>(), 2);
    }
}
