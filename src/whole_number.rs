//! Whole numbers: in fields of HTTP, and in JSON, where `5.0` is one as well as `5` (JSON Schema,
//! `integer`).

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{self, Unexpected, Visitor};

/// The largest number up to which all whole numbers have an `f64` of their own.
pub const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// Parses decimal digits and nothing else. Too large numbers saturate.
pub fn parse(digits: &[u8]) -> Option<u32> {
    parse_long(digits).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

/// Parses decimal digits and nothing else. Too large numbers saturate.
pub fn parse_long(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// Reads a number that is not negative, for `#[serde(deserialize_with)]`.
///
/// # Errors
/// A fraction, another type, or a number that `T` does not have.
pub fn deserialize<'de, T: TryFrom<u64>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_u64(WholeNumber(PhantomData))
}

struct WholeNumber<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for WholeNumber<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = 8 * size_of::<T>();
        write!(f, "a whole number of up to {bits} bits")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        T::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        if number.fract() == 0.0 && (0.0..=MAX_EXACT).contains(&number) {
            self.visit_u64(number as u64)
        } else {
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Units(#[serde(deserialize_with = "deserialize")] u32);

    fn read(text: &str) -> Result<u32, String> {
        let units: Result<Units, _> = serde_json::from_str(text);
        units
            .map(|units| units.0)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_number_may_have_a_point() {
        for (text, number) in [("5", 5), ("5.0", 5), ("5e2", 500), ("-0.0", 0)] {
            assert_eq!(read(text), Ok(number), "{text}");
        }
        assert_eq!(read("4294967295.0"), Ok(u32::MAX));
    }

    #[test]
    fn other_numbers_are_refused() {
        for text in [
            "5.5",
            "-1",
            "-1.0",
            "4294967296",
            "4294967296.0",
            "1e300",
            "\"5\"",
            "null",
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains("a whole number of up to 32 bits"), "{error}");
        }
    }
}
