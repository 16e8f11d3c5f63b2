//! Whole numbers with bounds, and flags.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZero;

use derive_more::Display;

use super::{ParseFailure, TextValue, failure, text_value};

/// A decimal whole number between `MIN` and `MAX`, both included. Unless given it is `DEFAULT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whole<const MIN: u32, const MAX: u32, const DEFAULT: u32 = MIN>(u32);

impl<const MIN: u32, const MAX: u32, const DEFAULT: u32> Whole<MIN, MAX, DEFAULT> {
    /// Creates a number, which must be within the bounds.
    const fn new(number: u32) -> Self {
        assert!(MIN <= number && number <= MAX);
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const MIN: u32, const MAX: u32, const DEFAULT: u32> Default for Whole<MIN, MAX, DEFAULT> {
    fn default() -> Self {
        Self::new(DEFAULT)
    }
}

impl<const MIN: u32, const MAX: u32, const DEFAULT: u32> fmt::Display for Whole<MIN, MAX, DEFAULT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

text_value!(Whole<MIN, MAX, DEFAULT>, [const MIN: u32, const MAX: u32, const DEFAULT: u32]);

impl<const MIN: u32, const MAX: u32, const DEFAULT: u32> TextValue for Whole<MIN, MAX, DEFAULT> {
    const NAME: &'static str = "Whole";
    const EXPECTED: &'static str = "a whole number";
    const PATTERN: &'static str = "[0-9]+";

    fn name() -> Cow<'static, str> {
        format!("Whole{MIN}To{MAX}").into()
    }

    fn expected() -> Cow<'static, str> {
        format!("a whole number from {MIN} to {MAX}").into()
    }

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits && (MIN..=MAX).contains(&number) => Ok(Self(number)),
            _ if digits => Err(failure(
                format!("`{text}` is out of bounds"),
                format!("it can be from {MIN} to {MAX}"),
            )),
            _ => Err(failure(
                format!("`{text}` is no whole number"),
                format!("write a number from {MIN} to {MAX}, in digits"),
            )),
        }
    }

    fn to_json(&self) -> serde_json::Value {
        self.0.into()
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({
            "type": ["integer", "string"],
            "minimum": MIN,
            "maximum": MAX,
            "pattern": super::pattern::<Self>(),
        })
    }
}

/// `true` or `false`; no other spelling. Unless given it is `DEFAULT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub struct Flag<const DEFAULT: bool = false>(bool);

impl<const DEFAULT: bool> Flag<DEFAULT> {
    /// True if set.
    pub const fn get(self) -> bool {
        self.0
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

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        match text {
            "true" => Ok(Self(true)),
            "false" => Ok(Self(false)),
            _ => Err(failure(
                format!("`{text}` is neither `true` nor `false`"),
                "write `true` or `false`",
            )),
        }
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
    const NAME: &'static str = "Workers";
    const EXPECTED: &'static str = "`auto`, or a whole number from 1 to 1024";
    const PATTERN: &'static str = "auto|[1-9][0-9]*";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        match (text, text.parse::<NonZero<u16>>()) {
            ("auto", _) => Ok(Self::Auto),
            (_, Ok(number)) if number.get() <= 1024 => Ok(Self::Fixed(number)),
            _ => Err(failure(
                format!("`{text}` is no number of threads"),
                "write `auto`, or a number from 1 to 1024",
            )),
        }
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": ["integer", "string"], "minimum": 1, "maximum": 1024, "pattern": super::pattern::<Self>() })
    }
}
