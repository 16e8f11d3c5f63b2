//! Units of a quota, or dollars as millionths of them.

use std::borrow::Cow;
use std::fmt;

use readable::money::dollars;

use super::quota::read_dollars;
use super::{Failure, TextValue, Whole, failure, text_value};

/// A number of units, 1 to 2^32 - 1, which may be written in dollars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Units {
    units: u32,
    is_money: bool,
}

/// The numbers without dollars.
type Plain = Whole<1, { u32::MAX as u64 }>;

impl Units {
    /// The units.
    pub const fn get(self) -> u32 {
        self.units
    }

    /// True if it is written in dollars.
    pub const fn is_money(self) -> bool {
        self.is_money
    }
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_money {
            f.write_str(&dollars(self.units))
        } else {
            self.units.fmt(f)
        }
    }
}

text_value!(Units = "1");

impl TextValue for Units {
    const EXPECTED: &'static str = Plain::EXPECTED;
    const PATTERN: &'static str = r"[0-9]+|\$[0-9]+(\.[0-9]{1,6})?";

    fn expected() -> Cow<'static, str> {
        Plain::expected()
    }

    fn read(text: &str) -> Result<Self, Failure> {
        let Some(written) = text.strip_prefix('$') else {
            let units = Plain::read(text)?.get();
            let is_money = false;
            return Ok(Self { units, is_money });
        };
        match read_dollars(written)? {
            0 => Err(failure("is nothing", "write an amount above $0")),
            units => Ok(Self {
                units,
                is_money: true,
            }),
        }
    }

    fn to_json(&self) -> serde_json::Value {
        if self.is_money {
            self.to_string().into()
        } else {
            self.units.into()
        }
    }

    fn schema() -> serde_json::Value {
        super::number_schema::<Self>(1, u32::MAX.into())
    }
}
