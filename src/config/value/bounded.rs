//! Numbers between bounds: whole numbers, percentages, durations and sizes. The bounds and the
//! default are in the type; a [`Unit`] says how a number is written.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::num::NonZero;

use derive_more::Display;

use super::{Failure, TextValue, failure, text_value};

/// How numbers are written.
pub trait Unit {
    /// A number, as code takes it.
    type Number;

    /// The name in the JSON Schema, before the bounds.
    const NAME: &'static str;
    /// The kind of value in words, as in `a duration`.
    const KIND: &'static str;
    /// Examples of values, for errors and the JSON Schema.
    const EXAMPLES: &'static str = "";
    /// A regular expression for the whole text.
    const PATTERN: &'static str;
    /// The numbers that are one unit of the bounds.
    const SCALE: u64 = 1;
    /// True if JSON has a number instead of a text.
    const IS_JSON_NUMBER: bool = false;

    /// Reads a number of any size; errors may name the `bounds`.
    fn read(text: &str, bounds: &str) -> Result<u64, Failure>;

    /// The text of a number.
    fn show(number: u64) -> String;

    /// The number, as code takes it.
    fn get(number: u64) -> Self::Number;
}

/// A number from `MIN` to `MAX`. Unless given it is `DEFAULT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display)]
#[display("{}", U::show(*_0))]
#[display(bound(U: Unit))]
pub struct Bounded<U, const MIN: u64, const MAX: u64, const DEFAULT: u64 = MIN>(
    u64,
    PhantomData<U>,
);

/// A decimal whole number.
pub type Whole<const MIN: u64, const MAX: u64, const DEFAULT: u64 = MIN> =
    Bounded<Decimal, MIN, MAX, DEFAULT>;

/// A whole percentage.
pub type Percentage<const MIN: u64, const MAX: u64, const DEFAULT: u64 = MIN> =
    Bounded<Percent, MIN, MAX, DEFAULT>;

impl<U: Unit, const MIN: u64, const MAX: u64, const DEFAULT: u64> Bounded<U, MIN, MAX, DEFAULT> {
    /// The number.
    pub fn get(self) -> U::Number {
        U::get(self.0)
    }

    /// The number, however large it is.
    pub const fn number(self) -> u64 {
        self.0
    }

    fn bounds() -> String {
        let [min, max] = [MIN, MAX].map(|bound| U::show(bound * U::SCALE));
        let quote = if U::IS_JSON_NUMBER { "" } else { "`" };
        format!("from {quote}{min}{quote} to {quote}{max}{quote}")
    }
}

impl<U: Unit, const MIN: u64, const MAX: u64, const DEFAULT: u64> Default
    for Bounded<U, MIN, MAX, DEFAULT>
{
    fn default() -> Self {
        const { assert!(MIN <= DEFAULT && DEFAULT <= MAX) };
        Self(DEFAULT * U::SCALE, PhantomData)
    }
}

text_value!(Bounded<U, MIN, MAX, DEFAULT>, [U: Unit, const MIN: u64, const MAX: u64, const DEFAULT: u64]);

impl<U: Unit, const MIN: u64, const MAX: u64, const DEFAULT: u64> TextValue
    for Bounded<U, MIN, MAX, DEFAULT>
{
    const EXPECTED: &'static str = U::KIND;
    const PATTERN: &'static str = U::PATTERN;

    fn name() -> Cow<'static, str> {
        format!("{}{MIN}To{MAX}", U::NAME).into()
    }

    fn expected() -> Cow<'static, str> {
        format!("{} {}{}", U::KIND, Self::bounds(), U::EXAMPLES).into()
    }

    fn read(text: &str) -> Result<Self, Failure> {
        let number = U::read(text, &Self::bounds())?;
        let is_within = (MIN * U::SCALE..=MAX * U::SCALE).contains(&number);
        let help = || format!("it can be {}", Self::bounds());
        let number = is_within.then_some(Self(number, PhantomData));
        number.ok_or_else(|| failure("is out of bounds", help()))
    }

    fn to_json(&self) -> serde_json::Value {
        if U::IS_JSON_NUMBER {
            self.0.into()
        } else {
            self.to_string().into()
        }
    }

    fn schema() -> serde_json::Value {
        if U::IS_JSON_NUMBER {
            super::number_schema::<Self>(MIN, MAX)
        } else {
            serde_json::json!({ "type": "string", "pattern": super::pattern::<Self>() })
        }
    }
}

/// Writes a number in decimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decimal {}

impl Unit for Decimal {
    type Number = u32;

    const NAME: &'static str = "Whole";
    const KIND: &'static str = "a whole number";
    const PATTERN: &'static str = "[0-9]+";
    const IS_JSON_NUMBER: bool = true;

    fn read(text: &str, bounds: &str) -> Result<u64, Failure> {
        let help = || format!("write a number {bounds}, in digits");
        Ok(digits(text).ok_or_else(help)?)
    }

    fn show(number: u64) -> String {
        number.to_string()
    }

    fn get(number: u64) -> u32 {
        u32::try_from(number).unwrap_or(u32::MAX)
    }
}

/// Writes a number with the sign `%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Percent {}

impl Unit for Percent {
    type Number = u32;

    const NAME: &'static str = "Percentage";
    const KIND: &'static str = "a whole percentage";
    const PATTERN: &'static str = "[0-9]+%";

    fn read(text: &str, _: &str) -> Result<u64, Failure> {
        let bare = text.strip_suffix('%').unwrap_or(text);
        let number = digits(bare).ok_or("write a whole number with the sign: `20%`")?;
        if bare == text {
            return Err(failure("has no unit", format!("write `{text}%`")));
        }
        Ok(number)
    }

    fn show(number: u64) -> String {
        format!("{number}%")
    }

    fn get(number: u64) -> u32 {
        Decimal::get(number)
    }
}

/// The number that these digits spell, or the largest one below it; `None` for another text.
fn digits(text: &str) -> Option<u64> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_decimal.then(|| text.parse().unwrap_or(u64::MAX))
}

/// `true` or `false`; no other spelling. Unless given it is `DEFAULT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub struct Flag<const DEFAULT: bool = false>(bool);

impl<const DEFAULT: bool> Flag<DEFAULT> {
    /// True if set.
    pub const fn get(self) -> bool {
        self.0
    }

    /// One of two values, the first if set.
    pub fn choose<T>(self, set: T, unset: T) -> T {
        if self.0 { set } else { unset }
    }
}

impl<const DEFAULT: bool> Default for Flag<DEFAULT> {
    fn default() -> Self {
        Self(DEFAULT)
    }
}

text_value!(Flag<DEFAULT>, [const DEFAULT: bool]);

impl<const DEFAULT: bool> TextValue for Flag<DEFAULT> {
    const NAME: &'static str = "Flag";
    const EXPECTED: &'static str = "`true` or `false`";
    const PATTERN: &'static str = "true|false";
    const TYPES: &'static [&'static str] = &["boolean", "string"];

    fn read(text: &str) -> Result<Self, Failure> {
        let problem = "is neither `true` nor `false`";
        let flag = text.parse().map(Self);
        flag.map_err(|_| failure(problem, "write `true` or `false`"))
    }

    fn to_json(&self) -> serde_json::Value {
        self.0.into()
    }
}

/// The number of worker threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display)]
pub enum Workers {
    /// One for each core that the process may use.
    #[default]
    #[display("auto")]
    Auto,
    /// A fixed number, 1 to 1024.
    Fixed(NonZero<u16>),
}

text_value!(Workers);

impl TextValue for Workers {
    const EXPECTED: &'static str = "`auto`, or a whole number from 1 to 1024";
    const PATTERN: &'static str = "auto|[1-9][0-9]*";

    fn read(text: &str) -> Result<Self, Failure> {
        match (text, text.parse::<NonZero<u16>>()) {
            ("auto", _) => Ok(Self::Auto),
            (_, Ok(number)) if number.get() <= 1024 => Ok(Self::Fixed(number)),
            _ => {
                let help = "write `auto`, or a number from 1 to 1024";
                Err(failure("isn't a number of threads", help))
            }
        }
    }

    fn schema() -> serde_json::Value {
        super::number_schema::<Self>(1, 1024)
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
            ("", "`` isn't a whole percentage"),
            ("%", "`%` isn't a whole percentage"),
            ("+5%", "`+5%` isn't a whole percentage"),
            ("2.5%", "`2.5%` isn't a whole percentage"),
            ("99999999999%", "`99999999999%` is out of bounds"),
        ] {
            let error = text.parse::<Share>().map_err(|error| error.message);
            assert_eq!(error, Err(message.to_owned()));
        }
    }
}
