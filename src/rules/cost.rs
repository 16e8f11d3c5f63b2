//! The cost of a request, in units.

use std::sync::Arc;

use http::header::CONTENT_LENGTH;

use super::settlement::number_of_units;
use super::{Head, KeyPart, Lookup, Price, Pricing, TokenUsage};
use crate::whole_number;

/// The source of a request's cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A constant from 1.
    Constant(u32),
    /// Stated by the request.
    Stated {
        /// Where it says so; the first part that is there counts.
        from: Vec<KeyPart>,
        /// The cost without any of them, from 1.
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

/// The part with the cost has no whole number, or different numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCost;

impl Cost {
    /// Returns the cost of this request. The least is 1: no client passes for nothing by stating 0. A
    /// body that is too long to be read may state any, and so costs the most.
    pub fn of(&self, head: &Head<'_>) -> Result<u32, InvalidCost> {
        let (from, default, max) = match self {
            Self::Constant(cost) => return Ok(*cost),
            Self::Stated { from, default, max } => (from, *default, *max),
            Self::Tokens(reserve) => return reserve.units(head, reserve.output(head)?),
        };
        for part in from {
            match part.named_value(head) {
                Lookup::One(value) => {
                    return Ok(whole_number::parse(&value)
                        .ok_or(InvalidCost)?
                        .clamp(1, max));
                }
                Lookup::Missing if part.is_unread(head) => return Ok(max),
                Lookup::Missing => {}
                Lookup::Several => return Err(InvalidCost),
            }
        }
        Ok(default)
    }

    /// Returns the parts of requests that the cost reads.
    pub fn inputs(&self) -> impl Iterator<Item = &KeyPart> {
        let (from, pricing): (&[KeyPart], _) = match self {
            Self::Constant(_) => (&[], None),
            Self::Stated { from, .. } => (from, None),
            Self::Tokens(reserve) => (&reserve.from, reserve.pricing.as_ref()),
        };
        let model = pricing.and_then(|pricing| pricing.model.as_ref());
        from.iter().chain(model)
    }

    /// Returns the least units of a request whose response breaks off or states no cost, however
    /// little the request says that it takes.
    pub fn least(&self, head: &Head<'_>) -> u32 {
        match self {
            Self::Constant(_) => 0,
            Self::Stated { default, max, .. } => *default.min(max),
            Self::Tokens(reserve) => reserve.units(head, reserve.default).unwrap_or(0),
        }
    }
}

impl Reserve {
    /// The tokens that the response may have. The upstream may heed any of the parts.
    fn output(&self, head: &Head<'_>) -> Result<u32, InvalidCost> {
        let number = |text: &[u8]| number_of_units(str::from_utf8(text).ok()?);
        let mut most = None;
        for part in &self.from {
            match part.with_value(head, number) {
                Lookup::One(stated) => most = most.max(stated),
                Lookup::Missing => {}
                Lookup::Several => return Err(InvalidCost),
            }
        }
        Ok(most.unwrap_or(self.default).min(self.most))
    }

    /// The units of a call that generates `output` tokens, at least 1.
    fn units(&self, head: &Head<'_>, output: u32) -> Result<u32, InvalidCost> {
        let input = if self.estimates_prompt {
            body_length(head).div_ceil(BYTES_PER_TOKEN)
        } else {
            0
        };
        let usage = TokenUsage {
            input,
            output: output.into(),
            ..TokenUsage::default()
        };
        let price = match &self.pricing {
            Some(pricing) => pricing.of_request(head)?,
            None => Price::OF_TOKENS,
        };
        Ok(price.of(usage).clamp(1, self.max))
    }
}

/// The bytes of the request's body: those that were read, or as many as its head says; 0 for an
/// unread one of unknown length.
fn body_length(head: &Head<'_>) -> u64 {
    let read = head.body.and_then(|body| body.length());
    read.unwrap_or_else(|| {
        let mut lengths = head.headers.get_all(CONTENT_LENGTH);
        let stated = lengths.next().and_then(whole_number::parse);
        stated.map_or(0, u64::from)
    })
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, Method};
    use proptest::prelude::*;

    use super::*;
    use crate::http::headers::Headers;
    use crate::rules::PriceList;

    const NAME: HeaderName = HeaderName::from_static("x-cost");

    fn cost(values: &[&str]) -> Result<u32, InvalidCost> {
        let by_header = Cost::Stated {
            from: vec![KeyPart::Header(NAME)],
            default: 1,
            max: 100,
        };
        let fields: Vec<_> = values.iter().map(|value| (NAME, *value)).collect();
        with_head(&fields, |head| by_header.of(head))
    }

    fn with_head<T>(fields: &[(HeaderName, &str)], take: impl FnOnce(&Head<'_>) -> T) -> T {
        let value = |text: &str| HeaderValue::from_str(text).expect("a value");
        let headers: Headers = fields
            .iter()
            .map(|(name, text)| (name.clone(), value(text)))
            .collect();
        take(&Head {
            method: &Method::GET,
            host: "a",
            path: "/",
            query: None,
            headers: &headers,
            client_ip: [192, 0, 2, 1].into(),
            local: None,
            scheme: None,
            token: None,
            body: None,
            client: None,
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

    #[test]
    fn a_reservation_is_the_largest_bound_and_the_prompt_at_the_prices_of_the_model() {
        const MOST: HeaderName = HeaderName::from_static("x-most");
        const MODEL: HeaderName = HeaderName::from_static("x-model");
        let list = PriceList::parse(b"model,input,output\nsmall,0.1,0.5\nlarge,2,10\n");
        let pricing = Arc::new(Pricing {
            list: Arc::new(list.expect("prices")),
            model: Some(KeyPart::Header(MODEL)),
        });
        let reserve = |pricing| {
            Cost::Tokens(Box::new(Reserve {
                from: [KeyPart::Header(NAME), KeyPart::Header(MOST)].into(),
                default: 100,
                most: 1000,
                estimates_prompt: true,
                pricing,
                max: 5000,
            }))
        };
        let (tokens, priced) = (reserve(None), reserve(Some(pricing)));
        for (fields, of_tokens, of_prices, least) in [
            // Without a model, the dearest prices.
            (&[][..], Ok(100), Ok(1000), 1000),
            (
                &[(CONTENT_LENGTH, "401"), (MODEL, "small")],
                Ok(201),
                Ok(61),
                61,
            ),
            (
                &[(NAME, "7"), (MOST, "9"), (MODEL, "large")],
                Ok(9),
                Ok(90),
                1000,
            ),
            (
                &[(NAME, "1e2"), (MOST, "9"), (MODEL, "small")],
                Ok(100),
                Ok(50),
                50,
            ),
            (&[(NAME, "none"), (MODEL, "small")], Ok(100), Ok(50), 50),
            (&[(NAME, "0"), (MODEL, "small")], Ok(1), Ok(1), 50),
            (
                &[(NAME, "99999999999"), (MODEL, "large")],
                Ok(1000),
                Ok(5000),
                1000,
            ),
            (
                &[(NAME, "7"), (NAME, "8")],
                Err(InvalidCost),
                Err(InvalidCost),
                1000,
            ),
            (
                &[(MODEL, "small"), (MODEL, "large")],
                Ok(100),
                Err(InvalidCost),
                0,
            ),
        ] {
            let costs = with_head(fields, |head| {
                (tokens.of(head), priced.of(head), priced.least(head))
            });
            assert_eq!(costs, (of_tokens, of_prices, least), "{fields:?}");
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
