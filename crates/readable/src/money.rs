//! Amounts of money.

/// Millionths of a dollar as dollars, with two decimals, or as many as it needs: `$500`, `$0.50`,
/// `$0.001`.
fn dollars(millionths: u64) -> String {
    const MILLION: u64 = 1_000_000;
    let (whole, rest) = (millionths / MILLION, millionths % MILLION);
    let decimals = format!("{rest:06}");
    match (rest, decimals.trim_end_matches('0')) {
        (0, _) => format!("${whole}"),
        (_, decimals) => format!("${whole}.{decimals:0<2}"),
    }
}

/// A number of units, in dollars if they are millionths of them.
pub fn amount(units: u64, is_money: bool) -> String {
    if is_money {
        dollars(units)
    } else {
        units.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_dollar_has_two_decimals_or_more() {
        for (millionths, text) in [
            (0, "$0"),
            (1, "$0.000001"),
            (500_000, "$0.50"),
            (12_125_000, "$12.125"),
            (500_000_000, "$500"),
            (549_755_813_887, "$549755.813887"),
        ] {
            assert_eq!(amount(millionths, true), text);
            assert_eq!(amount(millionths, false), millionths.to_string());
        }
    }
}
