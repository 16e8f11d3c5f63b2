//! The Date of responses (RFC 9110 section 6.6.1).

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;

use crate::clock;

/// A date, and its text.
#[derive(Debug, Default)]
struct Written {
    second: Option<u64>,
    text: String,
}

thread_local! {
    static WRITTEN: RefCell<Written> = RefCell::default();
}

/// Hands `to` the present date; each thread writes it once a second.
pub(crate) fn with_now<T>(to: impl FnOnce(&[u8]) -> T) -> T {
    let second = clock::wall_second();
    WRITTEN.with_borrow_mut(|written| {
        if written.second != Some(second) {
            let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second));
            *written = Written {
                second: Some(second),
                text: date.to_string(),
            };
        }
        to(written.text.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_has_the_format_of_http() {
        with_now(|now| {
            let now = str::from_utf8(now).expect("text");
            let parsed: HttpDate = now.parse().expect("a date");
            assert_eq!((parsed.to_string().as_str(), now.len()), (now, 29));
        });
    }
}
