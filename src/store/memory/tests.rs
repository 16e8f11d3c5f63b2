use std::time::Duration;

use super::*;
use crate::limiter::{Algorithm, FixedWindow, Quota, Start};
use crate::store::OnFull;

#[test]
fn a_refusal_by_one_policy_charges_none() {
    let quota = |limit| Quota::new(limit, Duration::from_secs(60)).unwrap();
    let table = |limit| {
        let algorithm = Algorithm::FixedWindow(FixedWindow::new(quota(limit), Start::EPOCH));
        Table::new("test", algorithm, 16, OnFull::Forget)
    };
    let (wide, narrow) = (table(10), table(1));
    let key = Fingerprint::from_bits(7);
    let charges = [&wide, &narrow].map(|table| Charge {
        table,
        key,
        cost: 1,
    });
    let now = Timestamp::from_micros(5);
    assert!(charge_all(&charges, now).is_admitted());

    let refused = charge_all(&charges, now);
    assert!(!refused.is_admitted());
    assert_eq!(refused.deciding, 1);
    assert_eq!(refused.decisions[0].remaining, 9);
    assert_eq!(wide.peek(key, 0, now).remaining, 9);
}
