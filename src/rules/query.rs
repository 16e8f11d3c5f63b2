//! Parameters of a query, decoded as forms are (URL standard, section 5.1): `?a=b+c` equals
//! `?%61=b%20c`.

use std::borrow::Cow;

/// Returns the values of all parameters `name`, in order. Copies only values that need decoding.
pub(super) fn parameters<'a>(
    query: Option<&'a str>,
    name: &'a str,
) -> impl Iterator<Item = Cow<'a, str>> {
    let pairs = query.unwrap_or_default().split('&');
    pairs.filter_map(move |pair| {
        let (key, value) = decoded(pair)?;
        (key == name).then_some(value)
    })
}

/// Skips the decoder if there is nothing to decode, as in most pairs.
fn decoded(pair: &str) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    if pair.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return form_urlencoded::parse(pair.as_bytes()).next();
    }
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    Some((Cow::Borrowed(key), Cow::Borrowed(value)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::Lookup;

    fn found(query: &str) -> Lookup<String> {
        match Lookup::among(parameters(Some(query), "key")) {
            Lookup::One(value) => Lookup::One(value.into_owned()),
            Lookup::Missing => Lookup::Missing,
            Lookup::Several => Lookup::Several,
        }
    }

    #[test]
    fn every_spelling_of_a_parameter_is_one() {
        for query in [
            "key=a b",
            "key=a+b",
            "k%65y=%61%20b",
            "x=1&&key=a+b&y",
            "key=a+b&key=a%20b",
        ] {
            assert_eq!(found(query), Lookup::One("a b".to_owned()), "{query}");
        }
    }

    #[test]
    fn names_and_values_are_split_at_the_first_equals_sign() {
        assert_eq!(found("key=a=b"), Lookup::One("a=b".to_owned()));
        assert_eq!(found("key"), Lookup::One(String::new()));
        assert_eq!(found("xkey=1&keys=2&KEY=3&a=key"), Lookup::Missing);
    }

    #[test]
    fn different_values_are_several() {
        assert_eq!(found("key=a&key=b"), Lookup::Several);
        assert_eq!(found("key=a&x&key="), Lookup::Several);
    }

    #[test]
    fn a_plain_value_is_not_copied() {
        let value = Lookup::among(parameters(Some("x=%20&key=plain"), "key"));
        assert!(matches!(value, Lookup::One(Cow::Borrowed("plain"))));
        assert_eq!(Lookup::among(parameters(None, "key")), Lookup::Missing);
    }

    proptest! {
        #[test]
        fn encoding_changes_nothing(value in "\\PC{0,12}") {
            let encoded: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(found(&format!("key={encoded}")), Lookup::One(value));
        }

        #[test]
        fn pairs_are_read_as_forms_are(query in "[key=&+%61 \u{e9}]{0,24}") {
            let all = form_urlencoded::parse(query.as_bytes());
            let expected = Lookup::among(all.filter(|(key, _)| key == "key").map(|(_, value)| value));
            prop_assert_eq!(Lookup::among(parameters(Some(&query), "key")), expected);
        }

        #[test]
        fn nothing_panics(query in "\\PC{0,40}") {
            let _ = found(&query);
        }
    }
}
