//! What buckets are charged for because others admitted it.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_others_charge_counts_like_a_charge_and_is_forgiven_after_some_windows(
        charged in charged(), units: u32, ago: u64, gaps: [u64; 4], windows in 1..=Debt::MAX_WINDOWS,
    ) {
        let debt = Debt::Windows(windows);
        let Charged { algorithm, bucket, now } = charged;
        let is_other = !algorithm.can_charge_remote() || algorithm.shape().is_some();
        if is_other || algorithm.capacity() == 0 {
            return Ok(());
        }
        let cell = bucket.cell;
        let units = a_cost(&algorithm, units);
        let ago = a_gap(&algorithm, ago / 4);
        let left = |cell, now| algorithm.decide(cell, now, 0).remaining;
        let (owes, _) = algorithm.owe(cell, now, now, units, debt);
        if units == 0 {
            prop_assert_eq!(owes, cell);
            return Ok(());
        }
        // As if it had come here, where there was enough.
        let here = algorithm.decide(cell, now, units.into());
        if here.is_admitted() {
            prop_assert_eq!(algorithm.used(owes, now), algorithm.used(here.cell, now));
        }
        let then = Timestamp::from_micros(now.as_micros().saturating_sub(ago));
        let (earlier, _) = algorithm.owe(cell, then, now, units, debt);
        for later in gaps.map(|gap| now.saturating_add_micros(a_gap(&algorithm, gap))) {
            prop_assert!(left(owes, later) <= left(cell, later));
            prop_assert!(left(earlier, later) <= left(cell, later));
            prop_assert!(left(owes, later) <= left(earlier, later));
        }
        // Nobody waits for longer than these windows for the first unit, unless he had to.
        let window = algorithm.window().expect("a quota has a window");
        let first = match &algorithm {
            Algorithm::IntervalRefill(bucket) => bucket.refill().1,
            _ => window.as_micros() as u64 / algorithm.limit() + 1,
        };
        let whole = algorithm.decide(cell, now, 0).reset;
        let longest = (window * windows).min(Quota::MAX_WINDOW);
        let whole = whole.max(now.saturating_add(longest).saturating_add_micros(first));
        if matches!(algorithm, Algorithm::Gcra(_) | Algorithm::TokenBucket(_) | Algorithm::IntervalRefill(_)) {
            let one = algorithm.decide(owes, whole, 1);
            prop_assert!(one.is_admitted(), "{one:?} at {whole:?}");
        }
    }
}

#[test]
fn a_window_that_a_request_starts_is_charged_for_no_other_machine() {
    let window = |start| Algorithm::FixedWindow(FixedWindow::new(quota(5, 1_000), start));
    let can = [Start::EPOCH, Start::Staggered, Start::FirstRequest]
        .map(|start| window(start).can_charge_remote());
    assert_eq!(can, [true, true, false]);
}
