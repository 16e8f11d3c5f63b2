//! What refused requests owe that are charged all the same.

use super::*;

/// Counters that may count beyond the limit: none of the limits that are refused for that.
fn fits(algorithm: &Algorithm) -> bool {
    algorithm.capacity() > 0
        && (!matches!(algorithm, Algorithm::SlidingCounters(_))
            || algorithm.limit() < (u32::MAX / 64).into())
}

/// When a bucket is whole of which everything is taken at `now`, or a window later.
fn whole_after_all(algorithm: &Algorithm, now: Timestamp) -> Timestamp {
    let all = Bucket::new(algorithm).charge(algorithm, now, whole(algorithm));
    let window = algorithm.window().expect("a quota has a window");
    all.reset.max(now.saturating_add(window))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn who_owes_waits_longer_but_not_longer_than_for_a_whole_bucket(
        charged in charged(), costs: [u32; 3], gaps: [u64; 4], seeds: [u64; 16],
    ) {
        let Charged { algorithm, mut bucket, mut now } = charged;
        prop_assume!(fits(&algorithm));
        for cost in costs {
            now = now.saturating_add_micros(a_gap(&algorithm, gaps[0] / 8));
            let cost = a_cost(&algorithm, cost);
            let later = gaps.map(|gap| now.saturating_add_micros(a_gap(&algorithm, gap)));
            let left = |bucket: &Bucket, now| algorithm.decide(bucket, now, 0).remaining;
            let had = later.map(|later| left(&bucket, later));
            let before = algorithm.decide(&bucket, now, cost.into());
            if before.is_admitted() {
                continue;
            }
            let whole_at = before.reset.max(whole_after_all(&algorithm, now));
            bucket.owe(&algorithm, now, cost);
            for (later, had) in later.into_iter().zip(had) {
                prop_assert!(left(&bucket, later) <= had);
            }
            prop_assert_eq!(left(&bucket, whole_at), algorithm.capacity());
            prop_assert!(algorithm.decide(&bucket, now, 0).is_admitted());
            let after = algorithm.decide(&bucket, now, cost.into());
            match (before.outcome, after.outcome) {
                (Outcome::Refuse { retry_at: None }, again) => prop_assert_eq!(again, before.outcome),
                (Outcome::Refuse { retry_at: Some(was) }, Outcome::Refuse { retry_at: Some(is) }) => {
                    prop_assert!(was <= is && is <= whole_at);
                    prop_assert!(algorithm.decide(&bucket, is, cost.into()).is_admitted());
                    for instant in instants(now, is, &seeds) {
                        let again = algorithm.decide(&bucket, instant, cost.into());
                        prop_assert_eq!(again.outcome, after.outcome, "at {:?}", instant);
                    }
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }

    /// The newest units, as many as the limit, whether they were admitted or not.
    #[test]
    fn a_log_in_debt_has_the_newest_units(
        history in histories::histories(), limit in 1..=12_u32, window in 1..=4_000_u64,
    ) {
        let algorithm = Algorithm::SlidingLog(SlidingLog::new(quota(limit, window)).unwrap());
        let (mut bucket, mut units) = (Bucket::new(&algorithm), Vec::<u64>::new());
        for (now, cost) in history {
            let counted = units.iter().filter(|unit| **unit + window > now).count() as u32;
            let decision = bucket.charge(&algorithm, at(now), cost);
            prop_assert_eq!(decision.is_admitted(), counted + cost <= limit);
            if !decision.is_admitted() {
                bucket.owe(&algorithm, at(now), cost);
            }
            units.extend((0..cost).map(|_| now));
            let old = units.len().saturating_sub(limit as usize);
            units.drain(..old);
        }
    }
}

/// Ten units in ten seconds, all taken; then somebody asks twice a second.
#[test]
fn who_goes_on_asking_is_not_admitted_again_and_who_pauses_is() {
    const SECOND: u64 = 1_000_000;
    let ten = || quota(10, 10 * SECOND);
    let algorithms = [
        (Algorithm::Gcra(Gcra::new(ten(), 10).unwrap()), 1),
        (Algorithm::SlidingLog(SlidingLog::new(ten()).unwrap()), 6),
        (
            Algorithm::SlidingWindow(SlidingWindow::new(ten(), OldestPart::Weighted)),
            12,
        ),
        (
            Algorithm::SlidingCounters(
                SlidingCounters::new(ten(), 10, OldestPart::Weighted).unwrap(),
            ),
            7,
        ),
    ];
    for (algorithm, pause) in algorithms {
        let (mut bucket, mut now) = (Bucket::new(&algorithm), 1_000 * SECOND);
        for _ in 0..10 {
            assert!(bucket.charge(&algorithm, at(now), 1).is_admitted());
        }
        for _ in 0..200 {
            now += SECOND / 2;
            assert!(
                !bucket.charge(&algorithm, at(now), 1).is_admitted(),
                "{}",
                algorithm.kind()
            );
            bucket.owe(&algorithm, at(now), 1);
        }
        now += pause * SECOND;
        assert!(
            bucket.charge(&algorithm, at(now), 1).is_admitted(),
            "{}",
            algorithm.kind()
        );
    }
}

#[test]
fn a_part_of_an_owed_unit_counts_as_one() {
    let bucket = Algorithm::Gcra(Gcra::new(quota(1, 1_000), 1).expect("a burst"));
    let now = at(1_000_000);
    let (cell, _) = bucket.owe(Cell::EMPTY, now, now, 3, Debt::CARRIED);
    let owed = |later| bucket.owed_units(cell, now.saturating_add_micros(later));
    assert_eq!(
        [0, 1, 999, 1_000, 1_999, 2_000].map(owed),
        [2, 2, 2, 1, 1, 0]
    );
}
