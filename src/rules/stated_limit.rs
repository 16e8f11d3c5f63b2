//! The limit of a quota that requests state themselves.

use super::{Head, KeyPart};
use crate::whole_number;

/// A limit that each request states, of one window. A bucket counts up to the largest; a request
/// that states less leaves the rest to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedLimit {
    /// The part of the request that states it.
    pub part: KeyPart,
    /// The limit of requests that state no whole number, or several.
    pub default: u64,
    /// The largest limit; a request that states more has this one.
    pub max: u64,
    /// The window, as the configuration shows it.
    pub window: String,
}

impl StatedLimit {
    /// Returns the limit of this request; 0 refuses it.
    pub fn of(&self, head: &Head<'_>) -> u64 {
        self.stated(head).unwrap_or(self.default)
    }

    fn stated(&self, head: &Head<'_>) -> Option<u64> {
        let limit = self.part.with_value(head, whole_number::parse_long).one()?;
        limit.map(|limit| limit.min(self.max))
    }

    /// Returns the units that this request has to leave in the bucket.
    pub fn kept(&self, head: &Head<'_>) -> u64 {
        self.max - self.of(head)
    }

    /// Returns the quota of this request, and its source.
    pub fn describe(&self, head: &Head<'_>) -> String {
        let (quota, part) = (self.quota(self.of(head)), &self.part);
        match self.stated(head) {
            Some(_) => format!("{quota}, from {part}"),
            None => format!("{quota}, the default: {part} states none"),
        }
    }

    /// Returns the quota of a request with this limit, as the configuration would write it.
    pub fn quota(&self, limit: u64) -> String {
        format!("{limit}/{}", self.window)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, Method};
    use proptest::prelude::*;

    use super::*;
    use crate::http::headers::Headers;

    fn limit(values: &[&str]) -> u64 {
        let name = HeaderName::from_static("x-send-rate");
        let mut headers = Headers::new();
        for value in values {
            headers.append(
                name.clone(),
                HeaderValue::from_str(value).expect("a value of ours"),
            );
        }
        let stated = StatedLimit {
            part: KeyPart::Header(name),
            default: 100,
            max: 5_000,
            window: "1s".to_owned(),
        };
        let head = Head {
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
        };
        assert_eq!(stated.of(&head) + stated.kept(&head), 5_000);
        stated.of(&head)
    }

    #[test]
    fn a_request_has_the_limit_that_it_states_within_bounds() {
        for (values, expected) in [
            (&[][..], 100),
            (&["7"], 7),
            (&["007", "007"], 7),
            (&["0"], 0),
            (&["5000"], 5_000),
            (&["5001"], 5_000),
            (&["18446744073709551617"], 5_000),
            (&["5", "6"], 100),
            (&["5, 5"], 100),
            (&[""], 100),
            (&["+5"], 100),
            (&["-5"], 100),
            (&["5.0"], 100),
            (&["5/1s"], 100),
        ] {
            assert_eq!(limit(values), expected, "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn any_number_is_read_and_everything_else_is_the_default(number: u128, text in "[ -~]{0,12}") {
            prop_assert_eq!(limit(&[&number.to_string()]), number.min(5_000) as u64);
            let text = text.trim();
            if text.parse::<u64>().is_err() || text.starts_with('+') {
                prop_assert_eq!(limit(&[text]), 100);
            }
        }
    }
}
