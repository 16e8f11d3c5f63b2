//! The credentials of an `Authorization` field (RFC 9110 section 11.4): a scheme, spaces, and a
//! value.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::AUTHORIZATION;

use super::Lookup;
use crate::http::headers::Headers;

/// Accepts sloppy encodings: a user that an upstream reads must not be a different one here.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Returns the value after this scheme, which is compared without case; `None` for another scheme.
pub(super) fn strip_scheme<'a>(value: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    let (found, rest) = value.split_at_checked(scheme.len())?;
    let rest = rest.strip_prefix(b" ")?;
    found
        .eq_ignore_ascii_case(scheme.as_bytes())
        .then(|| rest.trim_ascii())
}

/// Returns the user of basic authentication (RFC 7617), all before the first colon, unverified.
pub(super) fn basic_user(headers: &Headers) -> Lookup<Cow<'_, [u8]>> {
    let users = headers.get_all(AUTHORIZATION).map(user);
    match Lookup::among(users) {
        Lookup::One(Some(user)) => Lookup::One(Cow::Owned(user)),
        Lookup::One(None) | Lookup::Missing => Lookup::Missing,
        Lookup::Several => Lookup::Several,
    }
}

fn user(value: &[u8]) -> Option<Vec<u8>> {
    let mut user = BASE64.decode(strip_scheme(value, "basic")?).ok()?;
    let colon = user.iter().position(|&byte| byte == b':')?;
    user.truncate(colon);
    Some(user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn found(values: &[&str]) -> Lookup<String> {
        let mut headers = Headers::new();
        for value in values {
            headers.append(
                AUTHORIZATION,
                HeaderValue::from_str(value).expect("a field's value"),
            );
        }
        basic_user(&headers).map(|user| String::from_utf8_lossy(&user).into_owned())
    }

    #[test]
    fn the_user_is_what_stands_before_the_first_colon() {
        let alice = || Lookup::One("alice".to_owned());
        // alice:secret, alice:other:secret, alice:
        assert_eq!(found(&["Basic YWxpY2U6c2VjcmV0"]), alice());
        assert_eq!(found(&["basic   YWxpY2U6b3RoZXI6c2VjcmV0"]), alice());
        assert_eq!(found(&["BASIC YWxpY2U6"]), alice());
        // With and without padding, and with bits that mean nothing.
        for spelled in ["YWxpY2U6cw==", "YWxpY2U6cw=", "YWxpY2U6cw", "YWxpY2U6cx=="] {
            assert_eq!(found(&[&format!("Basic {spelled}")]), alice(), "{spelled}");
        }
        // Another password, the same user.
        assert_eq!(
            found(&["Basic YWxpY2U6c2VjcmV0", "Basic YWxpY2U6"]),
            alice()
        );
    }

    #[test]
    fn what_has_no_user_has_none_and_two_users_are_several() {
        for value in [
            "Bearer YWxpY2U6",
            "Basic",
            "Basic !",
            "Basic YWxpY2U",
            "BasicYWxpY2U6",
        ] {
            assert_eq!(found(&[value]), Lookup::Missing, "{value}");
        }
        assert_eq!(found(&[]), Lookup::Missing);
        assert_eq!(
            found(&["Basic YWxpY2U6", "Basic Ym9iOg=="]),
            Lookup::Several
        );
        assert_eq!(found(&["Basic YWxpY2U6", "Bearer x"]), Lookup::Several);
    }
}
