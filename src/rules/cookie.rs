//! Cookies of a request, read as leniently as servers read them (RFC 6265 section 5.4): spaces
//! around names and values, values in quotation marks or percent-encoded. Two spellings that some
//! server reads as equal are equal here.

use std::borrow::Cow;

use http::header::COOKIE;
use percent_encoding::percent_decode;

use crate::http::headers::Headers;

/// Returns the values of all cookies `name`, in order. Copies only values that need decoding.
pub(super) fn cookies<'a>(
    headers: &'a Headers,
    name: &'a str,
) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let pairs = headers
        .get_all(COOKIE)
        .flat_map(|field| field.split(|&byte| byte == b';'));
    pairs.filter_map(move |pair| {
        let equals = pair.iter().position(|&byte| byte == b'=')?;
        let (key, value) = (&pair[..equals], &pair[equals + 1..]);
        // Malformed encodings stand for themselves.
        let decoded = || percent_decode(unquoted(value.trim_ascii())).into();
        (key.trim_ascii() == name.as_bytes()).then(decoded)
    })
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        bare => bare,
    }
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::rules::Lookup;

    fn found(fields: &[&str]) -> Lookup<String> {
        let mut headers = Headers::new();
        for field in fields {
            headers.append(COOKIE, HeaderValue::from_str(field).expect("a value"));
        }
        match Lookup::among(cookies(&headers, "id")) {
            Lookup::One(value) => Lookup::One(String::from_utf8_lossy(&value).into_owned()),
            Lookup::Missing => Lookup::Missing,
            Lookup::Several => Lookup::Several,
        }
    }

    #[test]
    fn every_spelling_of_a_cookie_is_one() {
        for fields in [
            &["id=abc"][..],
            &["a=b; id=abc; c=d"],
            &["a=b", "id=abc"],
            &["a=b;id = abc ;"],
            &["id=\"abc\""],
            &["id=%61b%63"],
            &["id=abc; id=abc"],
        ] {
            assert_eq!(found(fields), Lookup::One("abc".to_owned()), "{fields:?}");
        }
    }

    #[test]
    fn other_cookies_are_others() {
        for fields in [&[][..], &["ID=a"], &["xid=a; id2=b"], &["id"], &["a=id=b"]] {
            assert_eq!(found(fields), Lookup::Missing, "{fields:?}");
        }
        assert_eq!(found(&["id=a=b"]), Lookup::One("a=b".to_owned()));
        assert_eq!(found(&["id=%4"]), Lookup::One("%4".to_owned()));
        assert_eq!(found(&["id=\""]), Lookup::One("\"".to_owned()));
    }

    #[test]
    fn different_values_are_several() {
        assert_eq!(found(&["id=a; id=b"]), Lookup::Several);
        assert_eq!(found(&["id=a", "id="]), Lookup::Several);
    }

    proptest! {
        #[test]
        fn nothing_panics(field in "[ -~]{0,40}") {
            let _ = found(&[&field]);
        }
    }
}
