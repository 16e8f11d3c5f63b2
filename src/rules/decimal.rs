//! Decimal numbers without rounding: weights of units, and prices.

use std::fmt;

/// A decimal number from 0 to 1,000,000, exact to the ninth decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decimal {
    billionths: u64,
}

impl Decimal {
    /// 0.
    pub const ZERO: Self = Decimal { billionths: 0 };
    /// 1.
    pub const ONE: Self = Decimal {
        billionths: Self::BILLION,
    };
    /// The largest whole number.
    pub const MAX: u64 = 1_000_000;
    const BILLION: u64 = 1_000_000_000;
    const DECIMALS: usize = 9;

    /// Reads digits with at most one point between them, and at most nine behind it. `None` for
    /// another text, and for more than 1,000,000.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        if !is_digits(whole) || !is_digits(decimals) || decimals.len() > Self::DECIMALS {
            return None;
        }
        let whole: u64 = whole.parse().ok()?;
        let decimals: u64 = format!("{decimals:0<9}").parse().ok()?;
        let billionths = whole.checked_mul(Self::BILLION)?.checked_add(decimals)?;
        (billionths <= Self::MAX * Self::BILLION).then_some(Decimal { billionths })
    }

    /// True for 0.
    pub const fn is_zero(self) -> bool {
        self.billionths == 0
    }

    /// Twice the number.
    #[must_use]
    pub const fn doubled(self) -> Self {
        Decimal {
            billionths: 2 * self.billionths,
        }
    }

    /// The sum of `numbers`, each times its weight. It is exact, then rounded up once, to the most
    /// of the type at most.
    pub fn weighted_sum(numbers: impl IntoIterator<Item = (u64, Self)>) -> u32 {
        let products = numbers
            .into_iter()
            .map(|(number, weight)| u128::from(number) * u128::from(weight.billionths));
        let sum = products.fold(0, u128::saturating_add);
        u32::try_from(sum.div_ceil(u128::from(Self::BILLION))).unwrap_or(u32::MAX)
    }
}

/// Without zeros at the end.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (
            self.billionths / Self::BILLION,
            self.billionths % Self::BILLION,
        );
        let text = format!("{whole}.{rest:09}");
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).expect(text)
    }

    #[test]
    fn reads_digits_with_a_point() {
        for (text, shown) in [
            ("0", "0"),
            ("3", "3"),
            ("03.50", "3.5"),
            ("0.000000001", "0.000000001"),
            ("1000000", "1000000"),
        ] {
            assert_eq!(decimal(text).to_string(), shown);
        }
        for text in [
            "",
            ".",
            ".5",
            "5.",
            "-1",
            "+1",
            "1e3",
            "1,5",
            "0x1",
            " 1",
            "1.2.3",
            "0.0000000001",
            "1000000.1",
            "99999999999999999999",
            "٣",
        ] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_sum_is_rounded_up_once() {
        let tenth = decimal("0.1");
        for (numbers, sum) in [
            (&[][..], 0),
            (&[10], 1),
            (&[1], 1),
            (&[1; 10], 1),
            (&[1; 11], 2),
            (&[u64::MAX; 3], u32::MAX),
        ] {
            let numbers = numbers.iter().map(|&number| (number, tenth));
            assert_eq!(Decimal::weighted_sum(numbers), sum);
        }
    }

    proptest! {
        #[test]
        fn a_sum_is_the_least_whole_number_that_is_not_below_the_exact_one(
            parts in prop::collection::vec((0..1000_u64, 0..2_000_000_u64), 0..6),
        ) {
            // Millionths, so that the exact sum fits into the type.
            let weight = |millionths: u64| {
                decimal(&format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000))
            };
            let exact: u64 = parts.iter().map(|(number, millionths)| number * millionths).sum();
            let weighted = parts.iter().map(|&(number, millionths)| (number, weight(millionths)));
            let sum = u64::from(Decimal::weighted_sum(weighted));
            prop_assert!(sum * 1_000_000 >= exact);
            prop_assert!(sum == 0 || (sum - 1) * 1_000_000 < exact);
        }

        #[test]
        fn a_shown_number_reads_as_itself(whole in 0..1_000_000_u64, rest in 0..1_000_000_000_u64) {
            let number = decimal(&format!("{whole}.{rest:09}"));
            prop_assert_eq!(Decimal::parse(&number.to_string()), Some(number));
        }
    }
}
