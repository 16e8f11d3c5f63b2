//! Decimal numbers.

use super::{Failure, TextValue, failure, text_value};
use crate::rules::Decimal;

text_value!(Decimal = "1");

impl TextValue for Decimal {
    const EXPECTED: &'static str =
        "a decimal number above 0, up to 1000000, with at most nine decimals: `3`, `0.1`";
    const PATTERN: &'static str = r"[0-9]+(\.[0-9]{1,9})?";
    const TYPES: &'static [&'static str] = &["number", "string"];

    fn read(text: &str) -> Result<Self, Failure> {
        let help = "write digits and at most nine decimals, as in `0.1`";
        let number = Self::parse(text).ok_or(help)?;
        if number.is_zero() {
            return Err(failure(
                "counts for nothing",
                "leave the number out instead",
            ));
        }
        Ok(number)
    }
}
