//! The cost of a request as its response states it.

pub mod stream_usage;
mod usage;
mod usage_api;

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::header::HeaderName;

use super::{Head, KeyPart, Lookup, Price};
use crate::http::headers::Headers;
use crate::whole_number;
pub(super) use usage::number_of_units;
pub use usage::{Meter, UsageRule, UsageScan};
pub use usage_api::UsageApi;

/// A policy's rule for the final cost of a request. Until the response, the request is charged its
/// [cost](super::Cost).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettlementRule {
    /// The responses that are charged; `None` for all.
    pub counted: Option<CountedResponses>,
    /// The source of their cost.
    pub by: CostSource,
    /// The most units of a stated cost that count, from 1.
    pub max: u32,
    /// The units of a response that counts, if its request reserves none, but needs them.
    pub unreserved: Option<u32>,
}

/// What is known of a request's cost before its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The units that count unless the response says otherwise.
    pub reserved: u32,
    /// The least units of a request whose response breaks off, or states no cost: its client could
    /// otherwise estimate little, and leave before the end.
    pub least: u32,
    /// The prices of the model that the request names, if tokens have prices.
    pub price: Option<Price>,
}

/// Responses that are charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedResponses {
    /// The statuses of the responses.
    pub statuses: Vec<u16>,
    /// The proxy's own responses count as any other, such as errors of an upstream.
    pub own: bool,
}

/// The source of the final cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// The units charged before.
    Reserve,
    /// The whole number in this field; without one, the units charged before.
    Header(HeaderName),
    /// The whole number in this trailer field.
    Trailer(HeaderName),
    /// Whole numbers in the body, or in the last events of a stream that have them.
    Json(Arc<UsageRule>),
    /// One unit for each started block of this many bytes of the body, from 1.
    Bytes(u64),
}

/// Cost of a request, as its response states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedCost {
    /// So many units.
    Units(u32),
    /// No units: responses with this status do not count.
    NotCounted,
    /// The response states none.
    Missing,
    /// The response states something else than a whole number, or different ones.
    Malformed,
    /// The upstream sent no response, or it broke off after it had stated or sent `stated` units.
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

/// The origin of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOrigin {
    /// The upstream.
    Upstream,
    /// The proxy.
    Proxy,
    /// An access rule, which denies the request as an upstream would.
    Access,
}

impl SettlementRule {
    /// Returns the units that count unless the response says otherwise, of a request that was charged
    /// `charged`.
    pub fn reserved(&self, charged: u32) -> u32 {
        self.unreserved.unwrap_or(charged)
    }

    /// Returns the prices of the model that the request names, if tokens have prices.
    pub fn price(&self, head: &Head<'_>) -> Option<Price> {
        let CostSource::Json(rule) = &self.by else {
            return None;
        };
        rule.pricing()?.of_request(head).ok()
    }

    /// Returns the parts of requests that it reads: those by which they ask for usage, if they have to.
    pub fn inputs(&self) -> &'static [KeyPart] {
        match &self.by {
            CostSource::Json(rule) if rule.includes_usage => stream_usage::parts(),
            _ => &[],
        }
    }

    /// Returns the units that count of a request that was charged `charged` and that the proxy
    /// itself answers; `None` if its status decides.
    pub fn of_own_answer(&self, charged: u32) -> Option<u32> {
        match &self.counted {
            Some(counted) => (!counted.own).then_some(0),
            None => Some(self.reserved(charged)),
        }
    }

    /// Returns true if denials with this status count because of it.
    pub fn counts_denial(&self, status: u16) -> bool {
        let counted = self.counted.as_ref();
        self.by == CostSource::Reserve
            && counted.is_some_and(|counted| counted.includes(status, ResponseOrigin::Access))
    }

    /// Returns the cost of a request that was charged `reserved` units; `None` if it depends on the
    /// response's body.
    pub fn by_head(
        &self,
        reserved: u32,
        status: u16,
        author: ResponseOrigin,
        headers: &Headers,
    ) -> Option<ReportedCost> {
        let counted = self.counted.as_ref();
        if counted.is_some_and(|counted| !counted.includes(status, author)) {
            return Some(ReportedCost::NotCounted);
        }
        if author == ResponseOrigin::Proxy && self.by != CostSource::Reserve {
            return Some(ReportedCost::NoResponse { stated: 0 });
        }
        match &self.by {
            CostSource::Reserve => Some(ReportedCost::Units(reserved)),
            CostSource::Header(name) => Some(self.cost_in_field(headers.get_all(name))),
            CostSource::Trailer(_) | CostSource::Json(_) | CostSource::Bytes(_) => None,
        }
    }

    /// Returns a scan for the body of a response with these fields; `None` if the cost is not in
    /// the body.
    ///
    /// # Errors
    /// When the body should state the cost and cannot.
    pub fn usage_scan(&self, headers: &Headers) -> Result<Option<UsageScan>, ReportedCost> {
        match &self.by {
            CostSource::Json(rule) => UsageScan::new(rule, headers).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the cost of a request with this `estimate`, by the `bytes` of the response's body that
    /// were sent and their scan `usage`.
    pub fn by_body(
        &self,
        estimate: Estimate,
        usage: Option<&mut UsageScan>,
        bytes: u64,
        end: BodyEnd<'_>,
    ) -> ReportedCost {
        match (&self.by, usage, end) {
            (CostSource::Bytes(unit), ..) => {
                let units = u32::try_from(bytes.div_ceil(*unit)).unwrap_or(u32::MAX);
                let units = units.min(self.max);
                match end {
                    BodyEnd::Complete(_) => ReportedCost::Units(units),
                    BodyEnd::BrokenOff => ReportedCost::NoResponse { stated: units },
                }
            }
            (CostSource::Reserve, ..) => ReportedCost::Units(estimate.reserved),
            (CostSource::Json(_), Some(usage), BodyEnd::Complete(_)) => {
                usage.cost(self.max, estimate.price)
            }
            (CostSource::Json(_), Some(usage), BodyEnd::BrokenOff) => {
                let stated = usage.partial(self.max, estimate.price);
                ReportedCost::NoResponse {
                    stated: stated.max(estimate.least),
                }
            }
            (CostSource::Trailer(name), _, BodyEnd::Complete(Some(trailers))) => {
                let values = trailers.get_all(name).iter();
                self.cost_in_field(values.map(|value| value.as_bytes()))
            }
            (_, _, BodyEnd::Complete(_)) => ReportedCost::Missing,
            (_, _, BodyEnd::BrokenOff) => ReportedCost::NoResponse {
                stated: estimate.least,
            },
        }
    }

    /// Returns the cost from a record of an earlier response, at most today's `max`; `None` if
    /// responses do not state the cost.
    pub fn by_record(&self, units: u32) -> Option<ReportedCost> {
        let is_stated = self.by.is_stated();
        is_stated.then(|| ReportedCost::Units(units.min(self.max)))
    }

    /// The cost that the values of a field state.
    fn cost_in_field<'a>(&self, values: impl Iterator<Item = &'a [u8]>) -> ReportedCost {
        match Lookup::among(values) {
            Lookup::One(value) => match whole_number::parse(value) {
                Some(units) => ReportedCost::Units(units.min(self.max)),
                None => ReportedCost::Malformed,
            },
            Lookup::Missing => ReportedCost::Missing,
            Lookup::Several => ReportedCost::Malformed,
        }
    }
}

impl CostSource {
    /// Returns true if the response has to state the cost. Statuses and lengths are known anyway.
    pub fn is_stated(&self) -> bool {
        !matches!(self, Self::Reserve | Self::Bytes(_))
    }
}

/// As the configuration writes it.
impl fmt::Display for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve => f.write_str("count"),
            Self::Header(name) => write!(f, "response_header: {name}"),
            Self::Trailer(name) => write!(f, "response_trailer: {name}"),
            Self::Json(rule) => match &rule.meter {
                Meter::Tokens(api, _) => write!(f, "settle: {}", <&str>::from(*api)),
                Meter::Weights(_) => {
                    let pointers: Vec<_> =
                        rule.pointers.iter().map(|one| one.to_string()).collect();
                    write!(f, "response_json: {}", pointers.join(", "))
                }
            },
            Self::Bytes(unit) => write!(f, "response_bytes: {unit}B"),
        }
    }
}

impl CountedResponses {
    fn includes(&self, status: u16, author: ResponseOrigin) -> bool {
        let made_here = author == ResponseOrigin::Proxy && !self.own;
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
        let settlement = SettlementRule {
            counted: None,
            by: CostSource::Header(NAME),
            max: 100,
            unreserved: None,
        };
        settlement.by_head(7, 200, ResponseOrigin::Upstream, &headers)
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
        let counting = |own| SettlementRule {
            counted: Some(CountedResponses {
                statuses: vec![401, 502],
                own,
            }),
            by: CostSource::Reserve,
            max: u32::MAX,
            unreserved: None,
        };
        let units = |own, status, author| {
            let cost = counting(own).by_head(2, status, author, &Headers::new());
            cost.map(|cost| match cost {
                ReportedCost::Units(units) => units,
                ReportedCost::NotCounted => 0,
                other => panic!("{other:?}"),
            })
        };
        for own in [true, false] {
            assert_eq!(units(own, 401, ResponseOrigin::Upstream), Some(2));
            assert_eq!(units(own, 502, ResponseOrigin::Upstream), Some(2));
            assert_eq!(units(own, 200, ResponseOrigin::Upstream), Some(0));
        }
        assert_eq!(units(true, 502, ResponseOrigin::Proxy), Some(2));
        assert_eq!(units(false, 502, ResponseOrigin::Proxy), Some(0));
    }

    proptest! {
        #[test]
        fn a_part_of_a_unit_is_a_unit(bytes: u64, unit in 1..u64::MAX, max in 1..u32::MAX) {
            let by = CostSource::Bytes(unit);
            let settlement = SettlementRule { counted: None, by, max, unreserved: None };
            prop_assert_eq!(settlement.by_head(1, 200, ResponseOrigin::Upstream, &Headers::new()), None);
            let exact = u128::from(bytes).div_ceil(u128::from(unit)).min(u128::from(max));
            let cost = settlement.by_body(Estimate::default(), None, bytes, BodyEnd::Complete(None));
            prop_assert_eq!(cost, ReportedCost::Units(exact as u32));
        }
    }
}
