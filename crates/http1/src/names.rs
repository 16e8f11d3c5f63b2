//! Names of fields. Most heads repeat names in the same spelling: each thread caches some.

use std::cell::RefCell;

use http::HeaderName;
use http::header::InvalidHeaderName;

use crate::parse_cache::ParseCache;

/// The number of cached names, a power of two.
const PLACES: usize = 64;

/// The longest cached name, in bytes.
const LONGEST: usize = 32;

thread_local! {
    static NAMES: RefCell<ParseCache<HeaderName, PLACES>> = const { RefCell::new(ParseCache::EMPTY) };
}

/// Parses a name.
///
/// # Errors
/// When it is no name.
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
        fn cached_names_equal_parsed_ones(
            spelled in proptest::collection::vec("[Aa][Bb-]{0,3}|[ -~]{0,3}|a{30,34}", 0..200),
        ) {
            for spelled in spelled {
                let read = HeaderName::from_bytes(spelled.as_bytes()).ok();
                prop_assert_eq!(name(spelled.as_bytes()).ok(), read);
            }
        }
    }
}
