//! Names of fields. Most heads have those that others had before, spelled alike: each thread remembers some.

use std::cell::RefCell;

use http::HeaderName;
use http::header::InvalidHeaderName;

use crate::http::parse_cache::ParseCache;

/// How many are remembered, a power of two.
const PLACES: usize = 64;

/// The longest that are, in bytes.
const LONGEST: usize = 32;

thread_local! {
    static NAMES: RefCell<ParseCache<HeaderName, PLACES>> = const { RefCell::new(ParseCache::new()) };
}

/// The name that is spelled like this.
///
/// # Errors
/// When it is none.
pub(super) fn name(spelled: &[u8]) -> Result<HeaderName, InvalidHeaderName> {
    let (Some(first), Some(last), ..=LONGEST) = (spelled.first(), spelled.last(), spelled.len())
    else {
        return HeaderName::from_bytes(spelled);
    };
    let place = spelled.len() * 7 + usize::from(*first) * 3 + usize::from(*last);
    NAMES.with_borrow_mut(|names| names.read(spelled, place, HeaderName::from_bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_name_is_what_it_is_whatever_is_remembered(
            spelled in proptest::collection::vec("[Aa][Bb-]{0,3}|[ -~]{0,3}|a{30,34}", 0..200),
        ) {
            for spelled in spelled {
                let read = HeaderName::from_bytes(spelled.as_bytes()).ok();
                prop_assert_eq!(name(spelled.as_bytes()).ok(), read);
            }
        }
    }
}
