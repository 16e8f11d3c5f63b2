//! What is kept of an algorithm and its buckets beyond the life of a process.

use super::*;
use crate::algorithms::WindowEnd;
use crate::ring::RingBuilder;

fn written(algorithm: &Algorithm) -> crate::algorithm::encoding::EncodedAlgorithm {
    algorithm.encode().expect("what has buckets has a recipe")
}

/// The algorithm as it is when it was written down and is read back.
fn again(algorithm: &Algorithm) -> Algorithm {
    Algorithm::decode(written(algorithm)).expect("there is one")
}

/// The bucket as it is when it was written down and is read back.
fn read_back<'a>(
    bucket: &Bucket,
    from: &Algorithm,
    staged: &'a mut Option<RingBuilder>,
) -> BucketState<'a> {
    let (Some(words), Some(shape), true) = (&bucket.words, from.shape(), bucket.cell.a != 0) else {
        return bucket.cell.into();
    };
    let staged = staged.insert(RingBuilder::new(shape));
    staged.begin();
    for (place, chunk) in words.ring(bucket.cell.a).chunks() {
        assert!(staged.put(place, words.chunk(chunk)));
    }
    let state = staged.state(bucket.cell).expect("it is a ring");
    assert!(from.is_sound(state));
    state
}

proptest! {
    /// All but how windows start, which cells do not depend on.
    #[test]
    fn a_recipe_makes_the_algorithm_that_it_was_made_of(algorithm in algorithms()) {
        let again = again(&algorithm);
        prop_assert_eq!(again.encode(), algorithm.encode());
        match algorithm {
            Algorithm::FixedWindow(_) => prop_assert_eq!(again.kind(), algorithm.kind()),
            _ => prop_assert_eq!(again, algorithm),
        }
    }

    #[test]
    fn any_numbers_are_a_recipe_or_none(
        kind in 0..12_u64,
        numbers in any::<[u64; 4]>(),
        small in any::<[u16; 4]>(),
    ) {
        for [limit, window, one, two] in [numbers, small.map(u64::from)] {
            let recipe = [kind, limit, window, one, two];
            if let Some(algorithm) = Algorithm::decode(recipe) {
                prop_assert_eq!(&written(&algorithm)[..3], &recipe[..3]);
            }
        }
    }

    /// To the last number, now and ever after.
    #[test]
    fn a_bucket_that_is_read_back_decides_as_before(
        charged in charged(),
        seeds in prop::collection::vec((any::<u64>(), any::<u32>()), 1..8),
    ) {
        let Charged { algorithm, bucket, now } = charged;
        let from = again(&algorithm);
        let mut staged = None;
        let state = read_back(&bucket, &from, &mut staged);
        let carried = algorithm.convert(&from, state, now);
        let mut again = Bucket::written(&algorithm, carried.chunks(), |words, chunks| carried.write(words, chunks));
        let (mut before, mut now) = (bucket, now);
        for (gap, cost) in seeds {
            let cost = a_cost(&algorithm, cost);
            let [old, new] = [&mut before, &mut again].map(|bucket| bucket.charge(&algorithm, now, cost));
            prop_assert_eq!((old.outcome, old.remaining, old.reset), (new.outcome, new.remaining, new.reset));
            now = now.saturating_add_micros(a_gap(&algorithm, gap));
        }
    }

    /// What is said to start anew does, and what is said to be kept is, as far as it is a unit.
    #[test]
    fn what_is_inherited_is_what_is_said(charged in charged(), to in algorithms(), like in units()) {
        let Charged { algorithm: from, bucket, now } = charged;
        let alike = Algorithm::decode([written(&from)[0], like.into(), written(&from)[2], 1, 0]);
        for to in [Some(to), alike, Some(from.clone())].into_iter().flatten() {
            let carried = Bucket::carry(&to, &from, &bucket, now);
            let used = from.capacity() - from.decide(&bucket, now, 0).remaining;
            if to.keeps_use_of(&from) {
                let kept = to.capacity() - to.decide(&carried, now, 0).remaining;
                prop_assert!(kept > 0 || used == 0, "{from:?} {to:?} {used}");
            } else {
                prop_assert_eq!(carried.cell, Cell::EMPTY);
            }
        }
    }

    /// Several reloads keep what one to the last quota keeps: quotas on the way free no units.
    #[test]
    fn quotas_on_the_way_free_nothing(
        charged in charged(), way in prop::collection::vec(units(), 1..6),
    ) {
        let Charged { algorithm: from, bucket, now } = charged;
        let [kind, _, window, one, two] = written(&from);
        if from.delays() {
            return Ok(());
        }
        let quotas = way.into_iter().filter_map(|limit| {
            // The burst is the limit; the steps of a refill stay.
            let one = if matches!(from, Algorithm::Gcra(_) | Algorithm::TokenBucket(_)) { limit.into() } else { one };
            Algorithm::decode([kind, limit.into(), window, one, two]).filter(|to| to.capacity() > 0)
        });
        let quotas: Vec<_> = quotas.filter(|to| to.kind() == from.kind()).collect();
        let Some(last) = quotas.last() else {
            return Ok(());
        };
        let directly = last.clone().with_room_of(&from);
        let directly = Bucket::carry(&directly, &from, &bucket, now);
        let (mut at_last, mut by) = (bucket, from.clone());
        for to in &quotas {
            let to = to.clone().with_room_of(&by);
            at_last = Bucket::carry(&to, &by, &at_last, now);
            by = to;
        }
        let left = |bucket: &Bucket| last.decide(bucket, now, 0).remaining;
        // A fraction of a unit is rounded up each time.
        let least = left(&directly).saturating_sub((quotas.len() as u32).into());
        prop_assert!((least..=left(&directly)).contains(&left(&at_last)), "{quotas:?}");
    }

    /// No chunks and no words of theirs break anything.
    #[test]
    fn nonsense_is_no_ring_or_a_sound_one(
        limit in 1..2_000_u32,
        chunks in prop::collection::vec((0..40_u32, prop::collection::vec(0..70_u32, 0..70)), 0..6),
        units in any::<u32>(),
    ) {
        let log = Algorithm::SlidingLog(SlidingLog::new(quota(limit, 60_000_000)).expect("a short log"));
        let mut staged = RingBuilder::new(log.shape().expect("a log has rings"));
        for (place, words) in chunks {
            staged.put(place, words);
        }
        let cell = Cell { expires: 100_000_000, a: 7, b: units };
        if let Some(state) = staged.state(cell).filter(|state| log.is_sound(*state)) {
            let carried = log.convert(&log, state, at(50_000_000));
            Bucket::written(&log, carried.chunks(), |words, chunks| carried.write(words, chunks));
        }
    }
}

/// What set the end of the window was a request that is gone.
#[test]
fn a_window_that_ends_by_the_zone_of_a_request_still_does_when_it_is_read_back() {
    let local = |limit, name| {
        let days = Arc::new(Calendar::new(Period::Day, zone(name)));
        Algorithm::FixedWindow(FixedWindow::periods(limit, days, Start::Local))
    };
    let now = Timestamp::from_micros(1_782_864_000_000_000);
    let end = now.saturating_add_micros(3_600_000_000);
    let utc = local(3, "UTC");
    let opened = utc.open(
        Cell::EMPTY,
        Fingerprint::from_bits(1),
        Some(WindowEnd { at: end, length: 0 }),
        now,
    );
    let cell = utc.decide(opened, now, 2).cell;
    for (from, to) in [(again(&utc), utc.clone()), (utc, local(5, "Asia/Tokyo"))] {
        let carried = to.convert_cell(&from, cell, now.saturating_add_micros(7));
        assert_eq!(
            (FixedWindow::end_of(carried), carried.a),
            (end.as_micros(), 2)
        );
        assert_eq!(carried, cell, "with what the next window needs");
    }
}
