//! When a request came, in whole microseconds; finer digits are dropped. No floating point.

use limiter::Timestamp;
use readable::time;

use super::wrong;

/// 10000-01-01T00:00:00Z, in microseconds: no log is of a later time.
const END: u64 = 253_402_300_800_000_000;

const RFC_3339: &str = "a time as RFC 3339 writes it, with an offset, from 1970 on";
const MILLISECONDS: &str = "a number of milliseconds since the epoch, in decimal digits";
const COMBINED: &str = "a time like 21/Nov/2026:04:41:00 +0000, from 1970 on";

/// Reads the times of combined logs; keeps the last, as most lines share it with the one before.
#[derive(Debug, Default)]
pub(super) struct TimeReader {
    text: Vec<u8>,
    time: Timestamp,
}

impl TimeReader {
    /// `21/Nov/2026:04:41:00 +0000`; a fraction of a second may stand behind the seconds.
    pub(super) fn combined(&mut self, text: &[u8]) -> Result<Timestamp, String> {
        if self.text != text {
            self.time = combined(text).ok_or_else(|| wrong(COMBINED, text))?;
            text.clone_into(&mut self.text);
        }
        Ok(self.time)
    }
}

fn combined(text: &[u8]) -> Option<Timestamp> {
    let time = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S%.f %z", text).ok()?;
    time::timestamp(time.to_timestamp().ok()?)
}

/// `2026-11-21T04:41:00.007999Z`.
pub(super) fn rfc_3339(text: &str) -> Result<Timestamp, String> {
    time::parse_rfc_3339(text).ok_or_else(|| wrong(RFC_3339, text.as_bytes()))
}

/// `1795236060007.999`.
pub(super) fn milliseconds(text: &str) -> Result<Timestamp, String> {
    let micros = micros(text).filter(|micros| *micros < END);
    let micros = micros.ok_or_else(|| wrong(MILLISECONDS, text.as_bytes()))?;
    Ok(Timestamp::from_micros(micros))
}

fn micros(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
    let below = digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000)?
        .checked_add(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros_of(time: Result<Timestamp, String>) -> Option<u64> {
        time.ok().map(Timestamp::as_micros)
    }

    #[test]
    fn milliseconds_are_exact_to_the_microsecond() {
        let read = |text| micros_of(milliseconds(text));
        assert_eq!(read("0"), Some(0));
        assert_eq!(read("1795236060007.999"), Some(1_795_236_060_007_999));
        assert_eq!(read("1.5"), Some(1_500));
        assert_eq!(read("1.0029999"), Some(1_002));
        assert_eq!(read("253402300799999.999"), Some(END - 1));
        for wrong in [
            "253402300800000",
            "18446744073709551616",
            "1e3",
            "-1",
            "1.",
            ".5",
            "",
            "+1",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rfc_3339_has_offsets_and_fractions() {
        let read = |text| micros_of(rfc_3339(text));
        let instant = Some(1_795_236_060_007_999);
        assert_eq!(read("2026-11-21T04:41:00.007999Z"), instant);
        assert_eq!(read("2026-11-21T05:41:00.0079999+01:00"), instant);
        assert_eq!(read("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(
            read("9999-12-30T22:00:00Z").map(|micros| micros < END),
            Some(true)
        );
        for wrong in [
            "1969-12-31T23:59:59.9999999Z",
            "2026-11-21T04:41:00",
            "2026-13-01T00:00:00Z",
            "",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_of_combined_logs_have_an_offset() {
        let mut reader = TimeReader::default();
        let mut read = |text: &str| micros_of(reader.combined(text.as_bytes()));
        assert_eq!(
            read("21/Nov/2026:04:41:00 +0000"),
            Some(1_795_236_060_000_000)
        );
        assert_eq!(
            read("21/Nov/2026:05:41:01 +0100"),
            Some(1_795_236_061_000_000)
        );
        assert_eq!(
            read("21/Nov/2026:05:41:01.25 +0100"),
            Some(1_795_236_061_250_000)
        );
        assert_eq!(
            read("21/Nov/2026:05:41:01.25 +0100"),
            Some(1_795_236_061_250_000)
        );
        for wrong in [
            "",
            "21/Nov/2026:05:41:01",
            "31/Feb/2026:05:41:01 +0000",
            "31/Dec/1969:00:00:00 +0000",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(
            read("21/Nov/2026:04:41:00 +0000"),
            Some(1_795_236_060_000_000)
        );
    }
}
