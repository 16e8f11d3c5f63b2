use std::time::Duration;

use super::*;
use crate::limiter::algorithms::Gcra;
use crate::limiter::{Algorithm, Fingerprint, Quota};
use crate::store::{BucketsSpec, ChargeId, Home, OnFull, Penalties, Store, Table};
use crate::telemetry::registry::Registry;

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

fn buckets(burst: u32, overflow: Option<Arc<Buckets>>) -> Arc<Buckets> {
    let quota = Quota::new(burst, Duration::from_secs(3_600)).expect("a quota");
    let algorithm = Algorithm::Gcra(Gcra::new(quota, burst).expect("a burst"));
    let table = Arc::new(Table::new("p", algorithm, 1_024, OnFull::Forget));
    let spec = BucketsSpec {
        home: Home::Memory,
        label: "p",
        before: None,
        overflow,
        refusal_cache: Duration::ZERO,
        refusal_bytes: 0,
    };
    Arc::new(Buckets::new(
        &Store::Memory,
        table,
        spec,
        &Registry::default(),
    ))
}

/// One limit with these buckets.
struct OneLimit(Arc<Buckets>);

impl ChargedLimits for OneLimit {
    fn buckets(&self, _id: ChargeId) -> &Arc<Buckets> {
        &self.0
    }

    fn granted(&self, _limit: u16) -> Option<&Arc<Buckets>> {
        None
    }

    fn penalties(&self, _limit: u16) -> Option<&Penalties> {
        None
    }
}

/// A reservation once gave back to the first bucket what an overflow bucket had paid.
#[test]
fn a_charge_is_given_back_to_the_overflow_bucket_that_paid_it() {
    let last = buckets(3, None);
    let first = buckets(1, Some(Arc::clone(&last)));
    let limits = OneLimit(Arc::clone(&first));
    let remaining = |of: &Arc<Buckets>| of.table.peek(Fingerprint::from_bits(1), 0, NOW).remaining;
    let charge = || {
        let (mut list, mut verdict) = (ChargeList::new(&limits), Verdict::default());
        let charge = PolicyCharge::new(ChargeId::new(0, None), Fingerprint::from_bits(1), 1);
        list.push(ListedCharge::new(&limits, charge));
        let reserved = list.charge(true, Ask::Charge, NOW, &mut verdict, None);
        (list.charges[0].charge.id.tier, reserved)
    };
    let (tier, _paid) = charge();
    assert_eq!((tier, remaining(&first), remaining(&last)), (0, 0, 3));
    let (tier, reserved) = charge();
    assert_eq!((tier, remaining(&first), remaining(&last)), (1, 0, 2));
    for (_, reservation) in reserved {
        reservation.give_back(NOW);
    }
    assert_eq!((remaining(&first), remaining(&last)), (0, 3));
}
