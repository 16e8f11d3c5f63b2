//! Percentages: `20%`.

use std::borrow::Cow;
use std::fmt;

use super::{ParseFailure, TextValue, failure, text_value};

/// A whole percentage between `MIN` and `MAX`, both included. Unless given it is `DEFAULT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentage<const MIN: u32, const MAX: u32, const DEFAULT: u32 = MIN>(u32);

impl<const MIN: u32, const MAX: u32, const DEFAULT: u32> Percentage<MIN, MAX, DEFAULT> {
    /// The percentage.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const MIN: u32, const MAX: u32, const DEFAULT: u32> Default for Percentage<MIN, MAX, DEFAULT> {
    fn default() -> Self {
        const { assert!(MIN <= DEFAULT && DEFAULT <= MAX) };
        Self(DEFAULT)
    }
}

impl<const MIN: u32, const MAX: u32, const DEFAULT: u32> fmt::Display
    for Percentage<MIN, MAX, DEFAULT>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

text_value!(Percentage<MIN, MAX, DEFAULT>, [const MIN: u32, const MAX: u32, const DEFAULT: u32]);

impl<const MIN: u32, const MAX: u32, const DEFAULT: u32> TextValue
    for Percentage<MIN, MAX, DEFAULT>
{
    const NAME: &'static str = "Percentage";
    const EXPECTED: &'static str = "a percentage";
    const PATTERN: &'static str = "[0-9]+%";

    fn name() -> Cow<'static, str> {
        format!("Percentage{MIN}To{MAX}").into()
    }

    fn expected() -> Cow<'static, str> {
        format!("a whole percentage from `{MIN}%` to `{MAX}%`").into()
    }

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let digits = text.strip_suffix('%').unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match digits.parse() {
            Ok(_) if is_number && digits == text => Err(failure(
                format!("`{text}` has no unit"),
                format!("write `{text}%`"),
            )),
            Ok(percent) if is_number && (MIN..=MAX).contains(&percent) => Ok(Self(percent)),
            _ if is_number => Err(failure(
                format!("`{text}` is out of bounds"),
                format!("it can be from `{MIN}%` to `{MAX}%`"),
            )),
            _ => Err(failure(
                format!("`{text}` is no percentage"),
                "write a whole number with the sign: `20%`",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Share = Percentage<1, 100, 50>;

    #[test]
    fn round_trips_through_text() {
        for text in ["1%", "20%", "100%"] {
            let value = text.parse::<Share>().map(|value| value.to_string());
            assert_eq!(value, Ok(text.to_owned()));
        }
        assert_eq!(Share::default().get(), 50);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, message) in [
            ("20", "`20` has no unit"),
            ("0%", "`0%` is out of bounds"),
            ("101%", "`101%` is out of bounds"),
            ("", "`` is no percentage"),
            ("%", "`%` is no percentage"),
            ("+5%", "`+5%` is no percentage"),
            ("2.5%", "`2.5%` is no percentage"),
            ("99999999999%", "`99999999999%` is out of bounds"),
        ] {
            let error = text.parse::<Share>().map_err(|error| error.message);
            assert_eq!(error, Err(message.to_owned()));
        }
    }
}
