//! The cost of a request, in units.

use std::sync::Arc;

use http::header::{CONTENT_LENGTH, HeaderName};

use super::settlement::number_of_units;
use super::{Head, KeyPart, Lookup, Price, Pricing, TokenUsage};
use crate::whole_number;

/// The source of a request's cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A constant from 1.
    Constant(u32),
    /// A header field of the request.
    Header {
        /// The field's name.
        name: HeaderName,
        /// The cost without the field, from 1.
        default: u32,
        /// The most that counts, from 1.
        max: u32,
    },
    /// An estimate of the tokens that the call of a language model takes.
    Tokens(Box<Reserve>),
}

/// A reservation for the call of a language model, until its response states the tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The parts of the request that bound the tokens it generates. The largest counts.
    pub from: Box<[KeyPart]>,
    /// The tokens it generates if it has no such part.
    pub default: u32,
    /// The most tokens that count of the parts.
    pub most: u32,
    /// Adds the tokens of the prompt: a quarter of the bytes of the request's body.
    pub estimates_prompt: bool,
    /// The prices of tokens; `None` for a unit each.
    pub pricing: Option<Arc<Pricing>>,
    /// The most units, from 1.
    pub max: u32,
}

/// Bytes of a request for each estimated token of its prompt.
const BYTES_PER_TOKEN: u64 = 4;

/// The field with the cost has no whole number, or different numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCost;

impl Cost {
    /// Returns the cost of this request. The least is 1: no client passes for nothing by stating 0.
    pub fn of(&self, head: &Head<'_>) -> Result<u32, InvalidCost> {
        let (name, default, max) = match self {
            Self::Constant(cost) => return Ok(*cost),
            Self::Header { name, default, max } => (name, *default, *max),
            Self::Tokens(reserve) => return Ok(reserve.units(head, reserve.output(head))),
        };
        match Lookup::among(head.headers.get_all(name)) {
            Lookup::One(value) => Ok(whole_number::parse(value).ok_or(InvalidCost)?.clamp(1, max)),
            Lookup::Missing => Ok(default),
            Lookup::Several => Err(InvalidCost),
        }
    }

    /// Returns the least units of a request whose response breaks off or states no cost, however
    /// little the request says that it takes.
    pub fn least(&self, head: &Head<'_>) -> u32 {
        match self {
            Self::Constant(_) => 0,
            Self::Header { default, max, .. } => *default.min(max),
            Self::Tokens(reserve) => reserve.units(head, reserve.default),
        }
    }
}

impl Reserve {
    /// The tokens that the response may have. The upstream may heed any of the parts.
    fn output(&self, head: &Head<'_>) -> u32 {
        let stated = self.from.iter().filter_map(|part| {
            let number = |text: &[u8]| number_of_units(str::from_utf8(text).ok()?);
            match part.with_value(head, number) {
                Lookup::One(number) => number,
                Lookup::Missing | Lookup::Several => None,
            }
        });
        stated.max().unwrap_or(self.default).min(self.most)
    }

    /// The units of a call that generates `output` tokens, at least 1.
    fn units(&self, head: &Head<'_>, output: u32) -> u32 {
        let usage = TokenUsage {
            input: if self.estimates_prompt {
                body_length(head).div_ceil(BYTES_PER_TOKEN)
            } else {
                0
            },
            output: output.into(),
            ..TokenUsage::default()
        };
        let pricing = self.pricing.as_ref();
        let price = pricing.map_or(Price::OF_TOKENS, |pricing| pricing.of_request(head));
        price.of(usage).clamp(1, self.max)
    }
}

/// The bytes of the request's body, as its head says; 0 for one of unknown length.
fn body_length(head: &Head<'_>) -> u64 {
    let length = head.headers.get_all(CONTENT_LENGTH).next();
    let length = length.and_then(whole_number::parse);
    length.map_or(0, u64::from)
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};
    use proptest::prelude::*;

    use super::*;
    use crate::http::headers::Headers;

    const NAME: HeaderName = HeaderName::from_static("x-cost");

    fn cost(values: &[&str]) -> Result<u32, InvalidCost> {
        let field = |value: &&str| (NAME, HeaderValue::from_str(value).expect("a value"));
        let headers: Headers = values.iter().map(field).collect();
        let by_header = Cost::Header {
            name: NAME,
            default: 1,
            max: 100,
        };
        by_header.of(&Head {
            method: &Method::GET,
            host: "a",
            path: "/",
            query: None,
            headers: &headers,
            client_ip: [192, 0, 2, 1].into(),
            local: None,
            scheme: None,
            token: None,
            is_any_target: false,
        })
    }

    #[test]
    fn a_request_costs_what_it_says_within_bounds() {
        for (values, expected) in [
            (&[][..], Ok(1)),
            (&["7"], Ok(7)),
            (&["007", "007"], Ok(7)),
            (&["0"], Ok(1)),
            (&["100"], Ok(100)),
            (&["101"], Ok(100)),
            (&["18446744073709551617"], Ok(100)),
            (&["5", "6"], Err(InvalidCost)),
            (&["5, 5"], Err(InvalidCost)),
            (&[""], Err(InvalidCost)),
            (&["+5"], Err(InvalidCost)),
            (&["-5"], Err(InvalidCost)),
            (&["5.0"], Err(InvalidCost)),
            (&["0x5"], Err(InvalidCost)),
        ] {
            assert_eq!(cost(values), expected, "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn any_number_is_read_and_nothing_else(number: u128, text in "[ -~]{0,12}") {
            prop_assert_eq!(cost(&[&number.to_string()]), Ok(number.clamp(1, 100) as u32));
            let digits = !text.trim().is_empty() && text.trim().bytes().all(|byte| byte.is_ascii_digit());
            prop_assert_eq!(cost(&[text.trim()]).is_ok(), digits);
        }
    }
}
