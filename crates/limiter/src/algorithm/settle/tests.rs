//! What settling promises, over all algorithms that can.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Quota;
use crate::algorithm::tests::Bucket as Memory;
use crate::algorithms::{
    FixedWindow, Gcra, IntervalRefill, LeakyBucket, OldestPart, SlidingCounters, SlidingLog,
    SlidingWindow, Start,
};

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    (1..30_u32, 1..200_u64, 1..30_u32, 0..14_u8).prop_map(|(limit, window, other, kind)| {
        let (part, parts) = (1 + window / 8, 1 + other % 8);
        let micros = Duration::from_micros;
        let window = micros(window);
        let quota = Quota::new(limit, window).unwrap();
        match kind {
            0 | 1 => Algorithm::Gcra(Gcra::new(quota, other).unwrap()),
            2 => Algorithm::TokenBucket(Gcra::new(quota, limit).unwrap()),
            3 => Algorithm::IntervalRefill(IntervalRefill::new(limit, other, window).unwrap()),
            4 => Algorithm::FixedWindow(FixedWindow::new(quota, Start::EPOCH)),
            5 => Algorithm::FixedWindow(FixedWindow::new(quota, Start::FirstRequest)),
            6 => Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Weighted)),
            7 => Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Whole)),
            8 => Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Ignored)),
            9..=11 => {
                let oldest = [OldestPart::Weighted, OldestPart::Whole, OldestPart::Ignored]
                    [kind as usize - 9];
                let quota = Quota::new(limit, micros(part * u64::from(parts))).unwrap();
                Algorithm::SlidingCounters(SlidingCounters::new(quota, parts, oldest).unwrap())
            }
            12 => Algorithm::SlidingLog(SlidingLog::new(quota).unwrap()),
            // Of ticks that are longer than a microsecond.
            _ => {
                let quota = Quota::new(limit, micros((1 << 33) + part)).unwrap();
                Algorithm::SlidingLog(SlidingLog::new(quota).unwrap())
            }
        }
    })
}

/// A request that was admitted: when, what it reserved, and what it came to, once that is known.
#[derive(Debug)]
struct Request {
    reserved: ReservedCharge,
    units: u32,
    settled: bool,
}

/// A bucket with its requests.
#[derive(Debug)]
struct Bucket {
    memory: Memory,
    requests: Vec<Request>,
}

impl Bucket {
    fn new(algorithm: &Algorithm) -> Self {
        Self {
            memory: Memory::new(algorithm),
            requests: Vec::new(),
        }
    }

    fn used(&self, algorithm: &Algorithm, now: Timestamp) -> u128 {
        algorithm.used(&self.memory, now)
    }

    /// Reserves, if there is so much; it will turn out to take so many units.
    fn reserve(&mut self, algorithm: &Algorithm, now: Timestamp, reserve: u32, units: u32) -> bool {
        let decision = self.memory.charge(algorithm, now, reserve);
        if !decision.is_admitted() {
            return false;
        }
        let open = self.requests.iter().filter(|request| !request.settled);
        let reserved = ReservedCharge {
            cell: decision.cell,
            at: now,
            units: reserve,
            unsettled: open.map(|request| u64::from(request.reserved.units)).sum(),
        };
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
        self.memory.give_back(algorithm, &reserved, less, now);
        if more > 0 {
            self.memory.owe_settled(algorithm, now, more);
        }
    }

    /// The most units that requests took in less than this time.
    fn most_within(&self, span: u64) -> u32 {
        let effective = |request: &Request| {
            if request.settled {
                request.units
            } else {
                request.reserved.units
            }
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

    /// The used units if each settled request had been charged its final units at first.
    fn used_in_hindsight(&self, algorithm: &Algorithm, now: Timestamp) -> u128 {
        let effective = self.requests.iter().map(|request| {
            if request.settled {
                (&request.reserved, request.units)
            } else {
                (&request.reserved, request.reserved.units)
            }
        });
        if matches!(algorithm, Algorithm::FixedWindow(_)) {
            // The first charge opens the window, even if it is given back.
            let window = self.memory.cell;
            let running = effective.filter(|(reserved, _)| reserved.cell.expires == window.expires);
            let units = running.map(|(_, units)| u128::from(units)).sum();
            return if window.is_live(now) { units } else { 0 };
        }
        let charged = effective.filter(|(_, units)| *units > 0);
        let mut memory = Memory::new(algorithm);
        charged.for_each(|(reserved, units)| memory.owe_settled(algorithm, reserved.at, units));
        algorithm.used(&memory, now)
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
        let (mut bucket, mut now) = (Bucket::new(&algorithm), 1_000);
        for (gap, cost) in before {
            now += gap;
            bucket.reserve(&algorithm, at(now), cost, cost);
        }
        // What has been settled is certain.
        bucket.requests.iter_mut().for_each(|request| request.settled = true);
        now += gap;
        let units = units.min(reserve);
        let mut direct = Memory::new(&algorithm);
        for request in &bucket.requests {
            direct.charge(&algorithm, request.reserved.at, request.reserved.units);
        }
        direct.charge(&algorithm, at(now), units);
        if !bucket.reserve(&algorithm, at(now), reserve, units) {
            return Ok(());
        }
        now += wait;
        bucket.settle(&algorithm, 0, at(now));
        for now in [at(now), at(now + later)] {
            let same = bucket.used(&algorithm, now) == algorithm.used(&direct, now);
            // A bucket that was full has a refill to wait for, which a charge of nothing would not
            // have begun.
            let begun = units == 0 && matches!(algorithm, Algorithm::IntervalRefill(_));
            prop_assert!(same || begun, "{:?} is not {direct:?}", bucket.memory);
        }
    }

    #[test]
    fn a_forced_charge_equals_one_known_at_first(
        algorithm in algorithms(),
        before in prop::collection::vec((0..60_u64, 1..6_u32), 0..6),
        (reserve, more) in (1..20_u32, 0..20_u32),
    ) {
        let (mut bucket, mut now) = (Bucket::new(&algorithm), 1_000);
        for (gap, cost) in before {
            now += gap;
            bucket.reserve(&algorithm, at(now), cost, cost);
        }
        bucket.requests.iter_mut().for_each(|request| request.settled = true);
        let direct = algorithm.decide(&bucket.memory, at(now), (reserve + more).into());
        let mut known = Bucket::new(&algorithm);
        for request in &bucket.requests {
            known.reserve(&algorithm, request.reserved.at, request.reserved.units, 0);
        }
        known.reserve(&algorithm, at(now), reserve + more, 0);
        if !bucket.reserve(&algorithm, at(now), reserve, reserve + more) {
            return Ok(());
        }
        bucket.settle(&algorithm, 0, at(now));
        let used = bucket.used(&algorithm, at(now));
        if direct.is_admitted() {
            prop_assert_eq!(used, known.used(&algorithm, at(now)))
        } else {
            // Nothing is left, and all that was owed was charged.
            prop_assert!(!algorithm.decide(&bucket.memory, at(now), 1).is_admitted());
            let window = algorithm.window().unwrap().as_micros() as u64;
            let units = u64::from(reserve + more).div_ceil(algorithm.limit());
            let whole = bucket.memory.cell.whole_at(at(now)).as_micros() - now;
            let mut empty = Memory::new(&algorithm);
            empty.owe_settled(&algorithm, at(now), algorithm.capacity().try_into().unwrap());
            let holds = empty.cell.whole_at(at(now)).as_micros() - now;
            let slack = u64::from(matches!(algorithm, Algorithm::SlidingWindow(_)));
            let owed = if algorithm.owed_units(&bucket.memory, at(now)) > 0 { units } else { 0 };
            prop_assert!(whole <= window.max(holds) + (slack + owed + 1) * window);
        }
    }

    /// In any order of arrivals and ends, the bucket has used at least as much as if all costs had
    /// been known at first. So it admits no request that it would have refused then.
    #[test]
    fn giving_back_never_leaves_more_than_had_it_been_known_at_first(
        algorithm in algorithms(),
        steps in prop::collection::vec((0..40_u64, 0..3_u8, 1..8_u32, 0..8_u32, any::<usize>()), 0..40),
    ) {
        let (mut bucket, mut now) = (Bucket::new(&algorithm), 1_000);
        for (gap, kind, reserve, units, which) in steps {
            now += gap;
            match kind {
                0 | 1 => _ = bucket.reserve(&algorithm, at(now), reserve, units.min(reserve)),
                _ => bucket.settle(&algorithm, which, at(now)),
            }
            if let Algorithm::IntervalRefill(_) = algorithm {
                // The first charge sets the instants of refills, even if it is given back.
                continue;
            }
            for later in [0, 7, 40, 150] {
                let now = at(now + later);
                let (used, exact) = (
                    bucket.used(&algorithm, now),
                    bucket.used_in_hindsight(&algorithm, now),
                );
                prop_assert!(used >= exact, "{used} is less than {exact}");
                if !matches!(algorithm, Algorithm::Gcra(_) | Algorithm::TokenBucket(_)) {
                    prop_assert_eq!(used, exact);
                }
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
        let (mut bucket, mut now) = (Bucket::new(&algorithm), 1_000);
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

    /// A place in line, too, if nobody came behind it.
    #[test]
    fn a_whole_charge_given_back_at_once_has_not_been(
        algorithm in algorithms(),
        queue in prop::option::of(1..20_u32),
        before in prop::collection::vec((0..60_u64, 1..6_u32), 0..6),
        (reserve, gap, wait) in (1..20_u32, 0..60_u64, 0..3_u64),
    ) {
        let algorithm = match queue {
            None => algorithm,
            Some(queue) => {
                let quota = Quota::new(algorithm.limit().try_into().unwrap(), algorithm.window().unwrap()).unwrap();
                let longest = Duration::from_secs(60);
                Algorithm::LeakyBucket(LeakyBucket::new(quota, queue, longest, 2).unwrap())
            }
        };
        let (mut bucket, mut other, mut now) = (Bucket::new(&algorithm), Memory::new(&algorithm), 1_000);
        for (gap, cost) in before {
            now += gap;
            bucket.reserve(&algorithm, at(now), cost, cost);
            other.charge(&algorithm, at(now), cost);
        }
        bucket.requests.iter_mut().for_each(|request| request.settled = true);
        now += gap;
        if !bucket.reserve(&algorithm, at(now), reserve, 0) {
            return Ok(());
        }
        bucket.settle(&algorithm, 0, at(now + wait));
        for later in [0, 10, 100] {
            let now = at(now + wait + later);
            let (left, had) = (bucket.used(&algorithm, now), algorithm.used(&other, now));
            match algorithm {
                // It has been refilled as often, if perhaps by the refills that the charge began.
                Algorithm::IntervalRefill(_) => prop_assert!(left >= had),
                _ => prop_assert_eq!(left, had),
            }
        }
    }
}
