//! Units of a quota, or dollars as millionths of them.

use std::borrow::Cow;
use std::fmt;

use readable::money::amount;

use super::quota::{MOST, read_dollars};
use super::{Failure, TextValue, Whole, failure, text_value};

/// A number of units, 1 to `MOST`, which may be written in dollars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UpTo<const MOST: u64> {
    units: u64,
    is_money: bool,
}

/// Units of a cost or a burst, 1 to 2^32 - 1.
pub type Units = UpTo<{ u32::MAX as u64 }>;

/// Units of a window, as many as a quota has.
pub type WindowUnits = UpTo<MOST>;

impl Units {
    /// The units.
    pub const fn get(self) -> u32 {
        self.units as u32
    }
}

impl<const MOST: u64> UpTo<MOST> {
    /// The units.
    pub const fn units(self) -> u64 {
        self.units
    }

    /// True if it is written in dollars.
    pub const fn is_money(self) -> bool {
        self.is_money
    }
}

impl<const MOST: u64> fmt::Display for UpTo<MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&amount(self.units, self.is_money))
    }
}

text_value!(UpTo<MOST>, [const MOST: u64]);

impl<const MOST: u64> Default for UpTo<MOST> {
    fn default() -> Self {
        let (units, is_money) = (1, false);
        Self { units, is_money }
    }
}

impl<const MOST: u64> TextValue for UpTo<MOST> {
    const EXPECTED: &'static str = Whole::<1, MOST>::EXPECTED;
    const PATTERN: &'static str = r"[0-9]+|\$[0-9]+(\.[0-9]{1,6})?";

    fn name() -> Cow<'static, str> {
        format!("Units1To{MOST}").into()
    }

    fn expected() -> Cow<'static, str> {
        Whole::<1, MOST>::expected()
    }

    fn read(text: &str) -> Result<Self, Failure> {
        let Some(written) = text.strip_prefix('$') else {
            let units = Whole::<1, MOST>::read(text)?.number();
            let is_money = false;
            return Ok(Self { units, is_money });
        };
        match read_dollars(written, MOST)? {
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
        super::number_schema::<Self>(1, MOST)
    }
}
