//! Sizes in bytes: `64KiB`, `10MB`.

use super::bounded::{Bounded, Unit};
use super::{Failure, failure};

/// The units with their bytes, largest first.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// A number of bytes.
pub type Size<const MIN: u64, const MAX: u64, const DEFAULT: u64 = MIN> =
    Bounded<Bytes, MIN, MAX, DEFAULT>;

/// Writes bytes with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bytes {}

impl Unit for Bytes {
    type Number = u64;

    const NAME: &'static str = "Size";
    const KIND: &'static str = "a size";
    const EXAMPLES: &'static str = ", as in `512B`, `64KiB`, `10MB`";
    const PATTERN: &'static str = "[0-9]+ *(B|kB|KB|KiB|MB|MiB|GB|GiB)";

    fn read(text: &str, _: &str) -> Result<u64, Failure> {
        let digits = text.split(|c: char| !c.is_ascii_digit()).next();
        let digits = digits.unwrap_or_default();
        let unit = text[digits.len()..].trim_start_matches(' ');
        let unit = match (digits, unit) {
            ("", _) => return Err("write a whole number with a unit: `64KiB`, `10MB`".into()),
            (_, "KB") => "kB",
            (_, unit) => unit,
        };
        let known = UNITS.iter().find(|&&(name, _)| name == unit);
        let &(_, bytes) = known.ok_or_else(|| unknown_unit(digits, unit))?;
        let number: Option<u64> = digits.parse().ok();
        let size = number.and_then(|number| number.checked_mul(bytes));
        size.ok_or_else(|| failure("is too large a size", "no key takes as much"))
    }

    /// Uses the largest unit that divides the size.
    fn show(bytes: u64) -> String {
        let divides = |&&(_, size): &&(&str, u64)| bytes >= size && bytes.is_multiple_of(size);
        let &(unit, size) = UNITS.iter().find(divides).unwrap_or(&("B", 1));
        format!("{}{unit}", bytes / size)
    }

    fn get(bytes: u64) -> u64 {
        bytes
    }
}

fn unknown_unit(digits: &str, unit: &str) -> Failure {
    let mut units = UNITS.iter().map(|(name, _)| name);
    let (problem, help) = match units.find(|name| name.eq_ignore_ascii_case(unit)) {
        Some(name) => ("has an unknown unit", format!("did you mean `{digits}{name}`?")),
        None if unit.is_empty() => (
            "has no unit",
            format!("say which is meant: `{digits}B`, `{digits}KiB`, `{digits}MiB`, `{digits}GiB`"),
        ),
        None if unit.starts_with('.') => (
            "has a fraction",
            "use the next smaller unit: `1536KiB` for 1.5 MiB".to_owned(),
        ),
        None => (
            "has an unknown unit",
            "units are `B`, `kB`, `MB`, `GB` (powers of 1000) and `KiB`, `MiB`, `GiB` (powers of 1024)".to_owned(),
        ),
    };
    failure(problem, help)
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    type Any = Size<0, { 1 << 40 }>;

    #[test]
    fn reads_powers_of_1000_and_of_1024() {
        for (text, bytes) in [
            ("0B", 0),
            ("64KiB", 65_536),
            ("10MB", 10_000_000),
            ("2kB", 2000),
            ("2KB", 2000),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(Any::from_str(text).map(Any::get), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, message, help) in [
            (
                "64",
                "`64` has no unit",
                "say which is meant: `64B`, `64KiB`, `64MiB`, `64GiB`",
            ),
            (
                "64kib",
                "`64kib` has an unknown unit",
                "did you mean `64KiB`?",
            ),
            (
                "1.5MiB",
                "`1.5MiB` has a fraction",
                "use the next smaller unit: `1536KiB` for 1.5 MiB",
            ),
            (
                "big",
                "`big` isn't a size",
                "write a whole number with a unit: `64KiB`, `10MB`",
            ),
            (
                "99999999999GiB",
                "`99999999999GiB` is too large a size",
                "no key takes as much",
            ),
        ] {
            let error = Any::from_str(text).expect_err(text);
            let found = (&*error.message, error.help.as_deref());
            assert_eq!(found, (message, Some(help)));
        }
    }

    #[test]
    fn keeps_its_bounds_and_shows_them() {
        let error = "1B"
            .parse::<Size<1024, { 1 << 20 }>>()
            .map_err(|error| error.help);
        assert_eq!(
            error,
            Err(Some("it can be from `1KiB` to `1MiB`".to_owned()))
        );
    }
}
