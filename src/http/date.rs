//! The Date of responses (RFC 9110 section 6.6.1).

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use http::HeaderValue;
use httpdate::HttpDate;

use crate::clock;

thread_local! {
    /// The second of the last date, and the date.
    static WRITTEN: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
}

/// Hands `to` the present date; each thread writes it once a second.
pub(crate) fn with_now<T>(to: impl FnOnce(&HeaderValue) -> T) -> T {
    let second = clock::wall_second();
    WRITTEN.with_borrow_mut(|written| {
        _ = written.take_if(|(known, _)| *known != second);
        let (_, date) = written.get_or_insert_with(|| {
            let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second));
            let date = HeaderValue::try_from(date.to_string());
            (second, date.expect("a date is visible ASCII"))
        });
        to(date)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_has_the_format_of_http() {
        with_now(|now| {
            let now = now.to_str().expect("text");
            let parsed: HttpDate = now.parse().expect("a date");
            assert_eq!((parsed.to_string().as_str(), now.len()), (now, 29));
        });
    }
}
