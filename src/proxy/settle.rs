//! Charges that the response settles: what a request took of limits before it was known what it costs.

use http::StatusCode;

use super::snapshot::Limit;
use crate::clock::Timestamp;
use crate::http_ext::headers::Headers;
use crate::rules::Author;
use crate::store::{Reservation, redis};

/// A charge that is to be settled. Dropped, it stands as it was made.
#[derive(Debug)]
pub(super) struct Due {
    /// The place of the limit among those of the route that are of its kind.
    pub place: usize,
    pub reservation: Reserved,
}

/// What was charged, where its bucket is.
#[derive(Debug)]
pub(super) enum Reserved {
    Here(Reservation),
    InRedis(redis::Reservation),
}

impl Reserved {
    /// What was charged in memory.
    pub(super) fn here_mut(&mut self) -> Option<&mut Reservation> {
        match self {
            Self::Here(reservation) => Some(reservation),
            Self::InRedis(_) => None,
        }
    }

    fn units(&self) -> u32 {
        match self {
            Self::Here(reservation) => reservation.units(),
            Self::InRedis(reservation) => reservation.units(),
        }
    }

    fn settle(self, units: u32, now: Timestamp) {
        match self {
            Self::Here(reservation) => reservation.settle(units, now),
            // At its own time, and soon.
            Self::InRedis(reservation) => reservation.settle(units),
        }
    }
}

/// What settles charges: a response, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered<'a> {
    pub status: StatusCode,
    pub author: Author,
    pub headers: &'a Headers,
}

/// Settles all of `dues`, which are of these limits, that the head of a response can settle.
pub(super) fn by_head(
    dues: &mut Vec<Due>,
    limits: &[Limit],
    answered: Answered<'_>,
    now: Timestamp,
) {
    for Due { place, reservation } in std::mem::take(dues) {
        let units = limits[place].settlement.as_ref().map(|settlement| {
            settlement.by_head(
                reservation.units(),
                answered.status.as_u16(),
                answered.author,
                answered.headers,
            )
        });
        match units {
            Some(Some(units)) => reservation.settle(units, now),
            Some(None) => dues.push(Due { place, reservation }),
            None => {}
        }
    }
}

/// Settles the others, by the bytes of a response's body.
pub(super) fn by_bytes(dues: &mut Vec<Due>, limits: &[Limit], bytes: u64, now: Timestamp) {
    for Due { place, reservation } in dues.drain(..) {
        if let Some(settlement) = &limits[place].settlement {
            let units = settlement.by_bytes(reservation.units(), bytes);
            reservation.settle(units, now);
        }
    }
}
