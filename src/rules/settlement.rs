//! How many units a request took, as its response tells.

use std::fmt;

use http::header::HeaderName;

use super::Found;
use super::cost::whole;
use crate::http_ext::headers::Headers;

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
    /// The response states none.
    Missing,
    /// The response states something else than a whole number, or different ones.
    Malformed,
    /// There is no response of the upstream's, or not all of it.
    NoResponse,
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
            return Some(ReportedCost::Units(0));
        }
        match &self.by {
            SettledBy::Reserve => Some(ReportedCost::Units(reserved)),
            SettledBy::Header { .. } if author == Author::Proxy => Some(ReportedCost::NoResponse),
            SettledBy::Header { name, max } => Some(match Found::among(headers.get_all(name)) {
                Found::One(value) => whole(value).map_or(ReportedCost::Malformed, |units| {
                    ReportedCost::Units(units.min(*max))
                }),
                Found::Missing => ReportedCost::Missing,
                Found::Several => ReportedCost::Malformed,
            }),
            SettledBy::Bytes { .. } => None,
        }
    }

    /// The units to charge for a body of so many bytes, for which `reserved` were charged so far.
    pub fn by_bytes(&self, reserved: u32, bytes: u64) -> u32 {
        match self.by {
            SettledBy::Bytes { unit, max } => u32::try_from(bytes.div_ceil(unit))
                .unwrap_or(u32::MAX)
                .min(max),
            SettledBy::Reserve | SettledBy::Header { .. } => reserved,
        }
    }
}

/// As the configuration writes it.
impl fmt::Display for SettledBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve => f.write_str("count"),
            Self::Header { name, .. } => write!(f, "response_header: {name}"),
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
            prop_assert_eq!(u128::from(settlement.by_bytes(1, bytes)), exact);
        }
    }
}
