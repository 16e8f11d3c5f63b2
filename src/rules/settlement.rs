//! How many units a request took, as its response tells.

mod usage;

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::header::HeaderName;

use super::Found;
use super::cost::whole;
use crate::http::headers::Headers;
use crate::http::json_pointer::JsonPointer;
pub use usage::UsageScan;

/// What a policy makes of responses; until then requests are charged what their [cost](super::Cost) says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Which responses are charged; all of them where `None`.
    pub counted: Option<Counted>,
    /// What those are charged.
    pub by: SettledBy,
}

/// Responses that are charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// By their status.
    pub statuses: Vec<u16>,
    /// Whether those count, too, that the proxy made itself.
    pub own: OwnAnswers,
}

/// What becomes of responses that are the proxy's own: errors of an upstream, for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnAnswers {
    /// They count as any other.
    Counted,
    /// They do not count, whatever their status.
    NotCounted,
}

/// What a response that counts is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettledBy {
    /// What was charged before.
    Reserve,
    /// The whole number that this field says, at most so many units; what was charged before where it says none.
    Header {
        /// Which field.
        name: HeaderName,
        /// The most that counts, from 1.
        max: u32,
    },
    /// The whole number that this trailer field says, at most so many units.
    Trailer {
        /// Which field.
        name: HeaderName,
        /// The most that counts, from 1.
        max: u32,
    },
    /// The sum of the whole numbers at these pointers in the body, or in the last events of a stream that have them; at
    /// most so many units.
    Json {
        /// Where, one at least.
        pointers: Box<[Arc<JsonPointer>]>,
        /// The most that counts, from 1.
        max: u32,
    },
    /// A unit for each `unit` bytes of its body, or part of as many; at most so many units.
    Bytes {
        /// From 1.
        unit: u64,
        /// The most that counts, from 1.
        max: u32,
    },
}

/// Cost of a request, as its response states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedCost {
    /// So many units.
    Units(u32),
    /// None, as responses with its status do not count.
    NotCounted,
    /// The response states none.
    Missing,
    /// The response states something else than a whole number, or different ones.
    Malformed,
    /// There is no response of the upstream's, or it broke off when it had stated, or sent, so many units.
    NoResponse {
        /// From 0.
        stated: u32,
    },
}

/// End of a response's body.
#[derive(Clone, Copy, Debug)]
pub enum BodyEnd<'a> {
    /// The body is complete, with these trailers if there are any.
    Complete(Option<&'a HeaderMap>),
    /// The upstream or the client broke it off.
    BrokenOff,
}

/// Who made a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// The upstream.
    Upstream,
    /// The proxy.
    Proxy,
}

impl Settlement {
    /// The cost of a request that was charged `reserved` units so far; `None` where it depends on the response's body.
    pub fn by_head(
        &self,
        reserved: u32,
        status: u16,
        author: Author,
        headers: &Headers,
    ) -> Option<ReportedCost> {
        if self
            .counted
            .as_ref()
            .is_some_and(|counted| !counted.includes(status, author))
        {
            return Some(ReportedCost::NotCounted);
        }
        if author == Author::Proxy && self.by != SettledBy::Reserve {
            return Some(ReportedCost::NoResponse { stated: 0 });
        }
        match &self.by {
            SettledBy::Reserve => Some(ReportedCost::Units(reserved)),
            SettledBy::Header { name, max } => Some(in_field(headers.get_all(name), *max)),
            SettledBy::Trailer { .. } | SettledBy::Json { .. } | SettledBy::Bytes { .. } => None,
        }
    }

    /// A scan of the body of a response with these fields; `None` where the body states no cost.
    ///
    /// # Errors
    /// When the body should state the cost and cannot.
    pub fn usage_scan(&self, headers: &Headers) -> Result<Option<UsageScan>, ReportedCost> {
        match &self.by {
            SettledBy::Json { pointers, .. } => UsageScan::new(pointers, headers).map(Some),
            _ => Ok(None),
        }
    }

    /// The cost of a request that was charged `reserved` units so far, by what has come of the response's body: so many
    /// bytes, of which `usage` is the scan.
    pub fn by_body(
        &self,
        reserved: u32,
        usage: Option<&mut UsageScan>,
        bytes: u64,
        end: BodyEnd<'_>,
    ) -> ReportedCost {
        match (&self.by, usage, end) {
            (SettledBy::Bytes { unit, max }, ..) => {
                let units = u32::try_from(bytes.div_ceil(*unit)).unwrap_or(u32::MAX);
                let units = units.min(*max);
                match end {
                    BodyEnd::Complete(_) => ReportedCost::Units(units),
                    BodyEnd::BrokenOff => ReportedCost::NoResponse { stated: units },
                }
            }
            (SettledBy::Reserve, ..) => ReportedCost::Units(reserved),
            (SettledBy::Json { max, .. }, Some(usage), BodyEnd::Complete(_)) => usage.cost(*max),
            (SettledBy::Json { max, .. }, Some(usage), BodyEnd::BrokenOff) => {
                let stated = usage.partial(*max);
                ReportedCost::NoResponse { stated }
            }
            (SettledBy::Trailer { name, max }, _, BodyEnd::Complete(Some(trailers))) => {
                let values = trailers.get_all(name).iter();
                in_field(values.map(|value| value.as_bytes()), *max)
            }
            (_, _, BodyEnd::Complete(_)) => ReportedCost::Missing,
            (_, _, BodyEnd::BrokenOff) => ReportedCost::NoResponse { stated: 0 },
        }
    }

    /// The cost as it was charged once, at most the bound of now; `None` where nothing stated it.
    pub fn by_record(&self, units: u32) -> Option<ReportedCost> {
        match self.by {
            SettledBy::Header { max, .. }
            | SettledBy::Trailer { max, .. }
            | SettledBy::Json { max, .. } => Some(ReportedCost::Units(units.min(max))),
            SettledBy::Reserve | SettledBy::Bytes { .. } => None,
        }
    }
}

impl SettledBy {
    /// Whether the response states a number: statuses and lengths are known anyway.
    pub fn is_stated(&self) -> bool {
        match self {
            Self::Header { .. } | Self::Trailer { .. } | Self::Json { .. } => true,
            Self::Reserve | Self::Bytes { .. } => false,
        }
    }
}

/// The cost that the values of a field state, at most `max`.
fn in_field<'a>(values: impl Iterator<Item = &'a [u8]>, max: u32) -> ReportedCost {
    match Found::among(values) {
        Found::One(value) => whole(value).map_or(ReportedCost::Malformed, |units| {
            ReportedCost::Units(units.min(max))
        }),
        Found::Missing => ReportedCost::Missing,
        Found::Several => ReportedCost::Malformed,
    }
}

/// As the configuration writes it.
impl fmt::Display for SettledBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve => f.write_str("count"),
            Self::Header { name, .. } => write!(f, "response_header: {name}"),
            Self::Trailer { name, .. } => write!(f, "response_trailer: {name}"),
            Self::Json { pointers, .. } => {
                let pointers: Vec<_> = pointers.iter().map(|one| one.to_string()).collect();
                write!(f, "response_json: {}", pointers.join(", "))
            }
            Self::Bytes { unit, .. } => write!(f, "response_bytes: {unit}B"),
        }
    }
}

impl Counted {
    fn includes(&self, status: u16, author: Author) -> bool {
        let made_here = author == Author::Proxy && self.own == OwnAnswers::NotCounted;
        !made_here && self.statuses.contains(&status)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const NAME: HeaderName = HeaderName::from_static("x-used");

    fn by_header(values: &[&str]) -> Option<ReportedCost> {
        let field = |value: &&str| (NAME, HeaderValue::from_str(value).expect("a value"));
        let headers = values.iter().map(field).collect();
        let (name, max) = (NAME, 100);
        let by = SettledBy::Header { name, max };
        let settlement = Settlement { counted: None, by };
        settlement.by_head(7, 200, Author::Upstream, &headers)
    }

    #[test]
    fn a_field_states_the_cost_or_that_there_is_none() {
        use ReportedCost::{Malformed, Missing, Units};
        for (values, cost) in [
            (&["3"][..], Units(3)),
            (&["0"], Units(0)),
            (&["3", "3"], Units(3)),
            (&["101"], Units(100)),
            (&["99999999999999999999"], Units(100)),
            (&[], Missing),
            (&[""], Malformed),
            (&["-1"], Malformed),
            (&["1.5"], Malformed),
            (&["3", "4"], Malformed),
        ] {
            assert_eq!(by_header(values), Some(cost), "{values:?}");
        }
    }

    #[test]
    fn only_statuses_that_count_are_charged_and_own_answers_where_it_is_said() {
        let counting = |own| Settlement {
            counted: Some(Counted {
                statuses: vec![401, 502],
                own,
            }),
            by: SettledBy::Reserve,
        };
        let units = |own, status, author| {
            let cost = counting(own).by_head(2, status, author, &Headers::new());
            cost.map(|cost| match cost {
                ReportedCost::Units(units) => units,
                ReportedCost::NotCounted => 0,
                other => panic!("{other:?}"),
            })
        };
        for own in [OwnAnswers::Counted, OwnAnswers::NotCounted] {
            assert_eq!(units(own, 401, Author::Upstream), Some(2));
            assert_eq!(units(own, 502, Author::Upstream), Some(2));
            assert_eq!(units(own, 200, Author::Upstream), Some(0));
        }
        assert_eq!(units(OwnAnswers::Counted, 502, Author::Proxy), Some(2));
        assert_eq!(units(OwnAnswers::NotCounted, 502, Author::Proxy), Some(0));
    }

    proptest! {
        #[test]
        fn a_part_of_a_unit_is_a_unit(bytes: u64, unit in 1..u64::MAX, max in 1..u32::MAX) {
            let by = SettledBy::Bytes { unit, max };
            let settlement = Settlement { counted: None, by };
            prop_assert_eq!(settlement.by_head(1, 200, Author::Upstream, &Headers::new()), None);
            let exact = u128::from(bytes).div_ceil(u128::from(unit)).min(u128::from(max));
            let cost = settlement.by_body(1, None, bytes, BodyEnd::Complete(None));
            prop_assert_eq!(cost, ReportedCost::Units(exact as u32));
        }
    }
}
