//! What settling promises, over all algorithms that can.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::limiter::{FixedWindow, Gcra, IntervalRefill, Oldest, Quota, SlidingWindow, Start};

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    (1..30_u32, 1..200_u64, 1..30_u32, 0..9_u8).prop_map(|(limit, window, other, kind)| {
        let window = Duration::from_micros(window);
        let quota = Quota::new(limit, window).unwrap();
        match kind {
            0 | 1 => Algorithm::Gcra(Gcra::new(quota, other).unwrap()),
            2 => Algorithm::TokenBucket(Gcra::new(quota, limit).unwrap()),
            3 => Algorithm::IntervalRefill(IntervalRefill::new(limit, other, window).unwrap()),
            4 => Algorithm::FixedWindow(FixedWindow::new(quota, Start::EPOCH)),
            5 => Algorithm::FixedWindow(FixedWindow::new(quota, Start::FirstRequest)),
            6 => Algorithm::SlidingWindow(SlidingWindow::new(quota, Oldest::Weighted)),
            7 => Algorithm::SlidingWindow(SlidingWindow::new(quota, Oldest::Whole)),
            _ => Algorithm::SlidingWindow(SlidingWindow::new(quota, Oldest::Ignored)),
        }
    })
}

/// A request that was admitted: when, what it reserved, and what it came to, once that is known.
#[derive(Debug)]
struct Request {
    reserved: Reserved,
    units: u32,
    settled: bool,
}

/// A bucket with its requests.
#[derive(Debug, Default)]
struct Bucket {
    cell: Cell,
    requests: Vec<Request>,
}

impl Bucket {
    /// Reserves, if there is so much; it will turn out to take so many units.
    fn reserve(&mut self, algorithm: &Algorithm, now: Timestamp, reserve: u32, units: u32) -> bool {
        let decision = algorithm.decide(self.cell, now, reserve);
        if !decision.is_admitted() {
            return false;
        }
        let open = self.requests.iter().filter(|request| !request.settled);
        let reserved = Reserved {
            cell: decision.cell,
            at: now,
            units: reserve,
            unsettled: open.map(|request| u64::from(request.reserved.units)).sum(),
        };
        self.cell = decision.cell;
        self.requests.push(Request {
            reserved,
            units,
            settled: false,
        });
        true
    }

    fn settle(&mut self, algorithm: &Algorithm, which: usize, now: Timestamp) {
        let open = self.requests.iter_mut().filter(|request| !request.settled);
        let mut open: Vec<_> = open.collect();
        if open.is_empty() {
            return;
        }
        let which = which % open.len();
        let request = &mut *open[which];
        request.settled = true;
        let reserved = request.reserved;
        let less = reserved.units.saturating_sub(request.units);
        let more = request.units.saturating_sub(reserved.units);
        self.cell = algorithm.give_back(self.cell, &reserved, less, now);
        if more > 0 {
            self.cell = algorithm.owe(self.cell, now, more);
        }
    }

    /// The most units that requests took in less than this time.
    fn most_within(&self, span: u64) -> u32 {
        let effective = |request: &Request| match request.settled {
            true => request.units,
            false => request.reserved.units,
        };
        let first = |request: &Request| request.reserved.at.as_micros();
        let starts = self.requests.iter().map(first);
        let within = |start| {
            let met = self.requests.iter();
            let met = met.filter(move |request| (start..start + span).contains(&first(request)));
            met.map(effective).sum::<u32>()
        };
        starts.map(within).max().unwrap_or(0)
    }

    /// What would have been used by now if all that are settled had taken at first what they turned out to take.
    fn used_in_hindsight(&self, algorithm: &Algorithm, now: Timestamp) -> u128 {
        let effective = self.requests.iter().map(|request| match request.settled {
            true => (&request.reserved, request.units),
            false => (&request.reserved, request.reserved.units),
        });
        if matches!(algorithm, Algorithm::FixedWindow(_)) {
            // Which windows there are is settled by who came first, whatever becomes of him.
            let running =
                effective.filter(|(reserved, _)| reserved.cell.expires == self.cell.expires);
            let units = running.map(|(_, units)| u128::from(units)).sum();
            return if self.cell.is_live(now) { units } else { 0 };
        }
        let charged = effective.filter(|(_, units)| *units > 0);
        let cell = charged.fold(Cell::EMPTY, |cell, (reserved, units)| {
            algorithm.owe(cell, reserved.at, units)
        });
        algorithm.used(cell, now)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Nothing else comes after the reservation.
    #[test]
    fn what_is_given_back_leaves_what_a_direct_charge_would_have_left(
        algorithm in algorithms(),
        before in prop::collection::vec((0..60_u64, 1..6_u32), 0..6),
        (reserve, units) in (1..20_u32, 0..20_u32),
        (gap, wait, later) in (0..60_u64, 0..300_u64, 0..300_u64),
    ) {
        let (mut bucket, mut now) = (Bucket::default(), 1_000);
        for (gap, cost) in before {
            now += gap;
            bucket.reserve(&algorithm, at(now), cost, cost);
        }
        // What has been settled is certain.
        bucket.requests.iter_mut().for_each(|request| request.settled = true);
        now += gap;
        let units = units.min(reserve);
        let direct = algorithm.decide(bucket.cell, at(now), units).cell;
        if !bucket.reserve(&algorithm, at(now), reserve, units) {
            return Ok(());
        }
        now += wait;
        bucket.settle(&algorithm, 0, at(now));
        for now in [at(now), at(now + later)] {
            let same = algorithm.used(bucket.cell, now) == algorithm.used(direct, now);
            // A bucket that was full has a refill to wait for, which a charge of nothing would not have begun.
            let begun = units == 0 && matches!(algorithm, Algorithm::IntervalRefill(_));
            prop_assert!(same || begun, "{:?} is not {direct:?}", bucket.cell);
        }
    }

    #[test]
    fn what_is_owed_is_charged_as_if_it_had_been_known(
        algorithm in algorithms(),
        before in prop::collection::vec((0..60_u64, 1..6_u32), 0..6),
        (reserve, more) in (1..20_u32, 0..20_u32),
    ) {
        let (mut bucket, mut now) = (Bucket::default(), 1_000);
        for (gap, cost) in before {
            now += gap;
            bucket.reserve(&algorithm, at(now), cost, cost);
        }
        bucket.requests.iter_mut().for_each(|request| request.settled = true);
        let direct = algorithm.decide(bucket.cell, at(now), reserve + more);
        if !bucket.reserve(&algorithm, at(now), reserve, reserve + more) {
            return Ok(());
        }
        bucket.settle(&algorithm, 0, at(now));
        let used = algorithm.used(bucket.cell, at(now));
        match direct.is_admitted() {
            true => prop_assert_eq!(used, algorithm.used(direct.cell, at(now))),
            false => {
                // Nothing is left, and what is owed comes back in time.
                prop_assert!(!algorithm.decide(bucket.cell, at(now), 1).is_admitted());
                let whole = bucket.cell.whole_at(at(now)).as_micros() - now;
                let window = algorithm.window().unwrap().as_micros() as u64;
                let empty = algorithm.owe(Cell::EMPTY, at(now), algorithm.capacity());
                let holds = empty.whole_at(at(now)).as_micros() - now;
                let slack = u64::from(matches!(algorithm, Algorithm::SlidingWindow(_)));
                prop_assert!(whole <= window.max(holds) + slack * window + window);
            }
        }
    }

    /// Whatever else comes, and in whatever order requests end: the bucket has used at least what it would have if all
    /// had been known at first, so that no request is admitted that would not have been then.
    #[test]
    fn giving_back_never_leaves_more_than_had_it_been_known_at_first(
        algorithm in algorithms(),
        steps in prop::collection::vec((0..40_u64, 0..3_u8, 1..8_u32, 0..8_u32, any::<usize>()), 0..40),
    ) {
        let (mut bucket, mut now) = (Bucket::default(), 1_000);
        for (gap, kind, reserve, units, which) in steps {
            now += gap;
            match kind {
                0 | 1 => _ = bucket.reserve(&algorithm, at(now), reserve, units.min(reserve)),
                _ => bucket.settle(&algorithm, which, at(now)),
            }
            if let Algorithm::IntervalRefill(_) = algorithm {
                // When refills come is settled by who came first, whatever becomes of him.
                continue;
            }
            let (used, exact) = (
                algorithm.used(bucket.cell, at(now)),
                bucket.used_in_hindsight(&algorithm, at(now)),
            );
            prop_assert!(used >= exact, "{used} is less than {exact}");
            if matches!(algorithm, Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_)) {
                prop_assert_eq!(used, exact);
            }
        }
    }

    #[test]
    fn refills_and_what_is_given_back_are_never_more_than_the_bucket_and_a_refill(
        (capacity, amount, interval) in (1..20_u32, 1..20_u32, 1..60_u64),
        steps in prop::collection::vec((0..20_u64, 0..3_u8, 1..8_u32, 0..8_u32, any::<usize>()), 0..60),
    ) {
        let refill = IntervalRefill::new(capacity, amount, Duration::from_micros(interval)).unwrap();
        let algorithm = Algorithm::IntervalRefill(refill);
        let (mut bucket, mut now) = (Bucket::default(), 1_000);
        for (gap, kind, reserve, units, which) in steps {
            now += gap;
            match kind {
                0 | 1 => _ = bucket.reserve(&algorithm, at(now), reserve, units.min(reserve)),
                _ => bucket.settle(&algorithm, which, at(now)),
            }
            let most = bucket.most_within(interval);
            prop_assert!(most <= capacity + amount, "{most}");
        }
    }
}
