//! The credentials of an `Authorization` field (RFC 9110 section 11.4): a scheme, spaces, and a
//! value.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::AUTHORIZATION;

use super::Lookup;
use crate::http::headers::Headers;

/// Accepts sloppy encodings, with [`plain_base64`]: a user that an upstream reads must not be a
/// different one here.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Splits credentials into scheme and value, which spaces separate. Upstreams take tabs and the spaces of
/// Latin-1 for that, too.
pub(super) fn split_credentials(value: &[u8]) -> Option<(&[u8], &[u8])> {
    // In UTF-8 the two are parts of letters.
    let is_latin = std::str::from_utf8(value).is_err();
    let is_space = |byte: &u8| match byte {
        b' ' | b'\t' => true,
        0x85 | 0xa0 => is_latin,
        _ => false,
    };
    let end = value.iter().position(is_space)?;
    let (scheme, rest) = value.split_at(end);
    let first = rest
        .iter()
        .position(|byte| !is_space(byte))
        .unwrap_or(rest.len());
    let last = rest
        .iter()
        .rposition(|byte| !is_space(byte))
        .map_or(first, |at| at + 1);
    Some((scheme, &rest[first..last]))
}

/// Returns the value after this scheme, which is compared without case; `None` for another scheme.
pub(super) fn strip_scheme<'a>(value: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    let (found, rest) = split_credentials(value)?;
    found
        .eq_ignore_ascii_case(scheme.as_bytes())
        .then_some(rest)
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
    let encoded = plain_base64(strip_scheme(value, "basic")?);
    // Decoders leave out a last letter that makes no byte.
    let whole = encoded.len() - usize::from(encoded.len() % 4 == 1);
    let mut user = BASE64.decode(&encoded[..whole]).ok()?;
    let colon = user.iter().position(|&byte| byte == b':')?;
    user.truncate(colon);
    Some(user)
}

/// The letters of base64 alone, in the usual alphabet: many decoders skip all others.
fn plain_base64(encoded: &[u8]) -> Vec<u8> {
    let letter = |byte: &u8| match byte {
        b'-' => Some(b'+'),
        b'_' => Some(b'/'),
        b'+' | b'/' => Some(*byte),
        _ => byte.is_ascii_alphanumeric().then_some(*byte),
    };
    encoded.iter().filter_map(letter).collect()
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
        // As Python, Node and PHP read them.
        for spelled in [
            "YWxp!Y2U6cw==",
            "YWxp=Y2U6cw",
            "YWxpY2U6cw===",
            "YWxpY2U6cwA",
        ] {
            assert_eq!(found(&[&format!("Basic {spelled}")]), alice(), "{spelled}");
        }
        assert_eq!(found(&["Basic\tYWxpY2U6"]), alice());
        assert_eq!(found(&["Basic \t YWxpY2U6"]), alice());
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
