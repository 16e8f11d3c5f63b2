//! The cost of a request, in units.

use http::header::HeaderName;

use super::{Head, Lookup};
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
}

/// The field with the cost has no whole number, or different numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCost;

impl Cost {
    /// Returns the cost of this request. The least is 1: no client passes for nothing by stating 0.
    pub fn of(&self, head: &Head<'_>) -> Result<u32, InvalidCost> {
        let (name, default, max) = match self {
            Self::Constant(cost) => return Ok(*cost),
            Self::Header { name, default, max } => (name, *default, *max),
        };
        match Lookup::among(head.headers.get_all(name)) {
            Lookup::One(value) => Ok(whole_number::parse(value).ok_or(InvalidCost)?.clamp(1, max)),
            Lookup::Missing => Ok(default),
            Lookup::Several => Err(InvalidCost),
        }
    }
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

    proptest! {
        #[test]
        fn any_number_is_read_and_nothing_else(number: u128, text in "[ -~]{0,12}") {
            prop_assert_eq!(cost(&[&number.to_string()]), Ok(number.clamp(1, 100) as u32));
            let digits = !text.trim().is_empty() && text.trim().bytes().all(|byte| byte.is_ascii_digit());
            prop_assert_eq!(cost(&[text.trim()]).is_ok(), digits);
        }
    }
}
