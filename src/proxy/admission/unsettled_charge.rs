//! A charge that the response settles.

use crate::rules::UsageScan;
use crate::store::Reservation;

/// A charge to settle. Dropped, the reserved charge stays.
#[derive(Debug)]
pub(super) struct UnsettledCharge {
    /// The number of the limit.
    pub(super) limit: u16,
    pub(super) reservation: Reservation,
    /// The body scan, if the body states the cost.
    pub(super) usage: Option<Box<UsageScan>>,
}

impl UnsettledCharge {
    /// A charge of this limit.
    pub(super) fn new((limit, reservation): (u16, Reservation)) -> Self {
        Self {
            limit,
            reservation,
            usage: None,
        }
    }
}
