//! Times as they are told: milliseconds with as many digits as they need, and no rounding.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Microseconds, written as milliseconds: 1500 is `1.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Millis(pub u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, below) = (self.0 / 1_000, self.0 % 1_000);
        if below == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{below:03}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

/// A number, digit by digit: a float would round it.
impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = RawValue::from_string(self.to_string());
        number
            .expect("digits and a point are JSON")
            .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_rounded_and_no_digit_is_superfluous() {
        let text = |micros| serde_json::to_string(&Millis(micros)).expect("JSON");
        assert_eq!([text(0), text(1_500), text(1)], ["0", "1.5", "0.001"]);
        assert_eq!(text(60_000_000), "60000");
        assert_eq!(text(u64::MAX), "18446744073709551.615");
    }
}
