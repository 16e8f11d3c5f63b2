//! Requests with a smaller burst on one bucket.

use proptest::prelude::*;

use super::*;

proptest! {
    /// A request that leaves the difference of two bursts is decided as by a bucket with the smaller
    /// burst in that state, whatever others have taken.
    #[test]
    fn units_that_stay_are_a_smaller_burst(
        limit in 1..50_u32,
        window in 1..5_000_000_u64,
        burst in 1..40_u32,
        less in 0..40_u32,
        steps in proptest::collection::vec((0..2_000_000_u64, 0..12_u32, any::<bool>()), 1..40),
    ) {
        let smaller = burst.saturating_sub(less).max(1);
        let gcra = |burst| Gcra::new(quota(limit, window), burst).expect("a burst");
        let shared = Algorithm::Gcra(gcra(burst));
        let alone = Algorithm::Gcra(gcra(smaller));
        let (mut cell, mut now) = (Cell::EMPTY, at(1_000_000_000_000));
        for (gap, cost, is_small) in steps {
            now = now.saturating_add_micros(gap);
            let kept = if is_small { burst - smaller } else { 0 };
            let decision = shared.decide_keeping(cell, now, Demand { cost, kept: kept.into(), required: 0 });
            if is_small {
                let expected = alone.decide(cell, now, cost.into());
                prop_assert_eq!(decision.outcome, expected.outcome);
                prop_assert_eq!(decision.cell, expected.cell);
                prop_assert_eq!((decision.remaining, decision.capacity), (expected.remaining, u64::from(smaller)));
                prop_assert_eq!(decision.reset, expected.reset);
                let more_at = alone.more_at(&expected, now);
                prop_assert_eq!(shared.more_at(&decision, now).filter(|_| kept > 0), more_at.filter(|_| kept > 0));
            }
            cell = decision.cell;
        }
    }
}
