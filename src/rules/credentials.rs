//! The credentials of an `Authorization` field (RFC 9110 section 11.4): a scheme, spaces, and a
//! value. All readers split them here.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::AUTHORIZATION;
use smallvec::SmallVec;

use super::{Lookup, StringMatcher};
use crate::http::headers::Headers;
use crate::http::http1::range_in;
use crate::limiter::KeyParts;

/// Accepts sloppy encodings, with [`plain_base64`]: a user that an upstream reads must not be a
/// different one here.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Credentials, split at white space into scheme and value. Upstreams take tabs for spaces, and those
/// of Unicode, or of Latin-1 if the field isn't UTF-8.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credentials<'a> {
    scheme: &'a [u8],
    /// All after the scheme. Empty for a scheme alone, or a key without one.
    rest: &'a [u8],
    /// Up to the next white space.
    first: &'a [u8],
}

impl<'a> Credentials<'a> {
    pub(super) fn of(field: &'a [u8]) -> Self {
        let (mut unicode, mut latin);
        let words: &mut dyn Iterator<Item = &'a [u8]> = if let Ok(text) = std::str::from_utf8(field)
        {
            unicode = text.split_whitespace().map(str::as_bytes);
            &mut unicode
        } else {
            let words = field.split(|byte| matches!(byte, b' ' | b'\t' | 0x85 | 0xa0));
            latin = words.filter(|word| !word.is_empty());
            &mut latin
        };
        let scheme = words.next().unwrap_or_default();
        let first = words.next();
        let rest = first.map_or(&[][..], |first| {
            let start = range_in(first, field).start;
            &field[start..range_in(words.last().unwrap_or(first), field).end]
        });
        Self {
            scheme,
            rest,
            first: first.unwrap_or_default(),
        }
    }

    /// The value that identifies the client. Upstreams pass over what follows a token.
    fn value(&self) -> &'a [u8] {
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
        let mut token = self.first.iter().rev().skip_while(|byte| **byte == b'=');
        if self.first.len() < self.rest.len() && token.all(is_token) {
            self.first
        } else {
            self.rest
        }
    }

    /// The scheme in lower case: schemes have no case.
    fn lower_scheme(&self) -> SmallVec<[u8; 16]> {
        let mut scheme = SmallVec::from_slice(self.scheme);
        scheme.make_ascii_lowercase();
        scheme
    }

    /// Passes scheme and value to `hasher`. Returns false, and passes nothing, if there is neither.
    pub(super) fn feed(&self, kind: u8, hasher: &mut impl KeyParts) -> bool {
        if self.scheme.is_empty() {
            return false;
        }
        hasher.part(kind, &self.lower_scheme());
        hasher.part(kind, self.value());
        true
    }

    /// The canonical spelling.
    pub(super) fn canonical(&self) -> Vec<u8> {
        self.spelled(&self.lower_scheme())
    }

    /// The spelling with the scheme as it came, and one space.
    pub(super) fn plain(&self) -> Vec<u8> {
        self.spelled(self.scheme)
    }

    /// Returns true if a matcher [for credentials](StringMatcher::for_credentials) takes these. An
    /// expression may write the scheme as `bearer`, as `Bearer`, or as it came.
    pub(super) fn match_with(&self, matcher: &StringMatcher) -> bool {
        let mut scheme = self.lower_scheme();
        let is_lower = matcher.matches(&self.spelled(&scheme));
        scheme
            .iter_mut()
            .take(1)
            .for_each(|b| b.make_ascii_uppercase());
        is_lower || matcher.matches(&self.spelled(&scheme)) || matcher.matches(&self.plain())
    }

    fn spelled(&self, scheme: &[u8]) -> Vec<u8> {
        match self.value() {
            b"" => scheme.to_vec(),
            value => [scheme, value].join(&b' '),
        }
    }
}

/// The canonical spelling of the beginning of credentials.
pub(super) fn canonical_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut spelled = Credentials::of(prefix).canonical();
    if prefix.ends_with(b" ") && !spelled.contains(&b' ') {
        spelled.push(b' ');
    }
    spelled
}

/// Returns the value after this scheme, which is compared without case; `None` for another scheme.
pub(super) fn strip_scheme<'a>(field: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    let found = Credentials::of(field);
    let is_it = found.scheme.eq_ignore_ascii_case(scheme.as_bytes()) && !found.rest.is_empty();
    is_it.then_some(found.rest)
}

/// Returns the token after `Bearer` (RFC 6750 section 2.1), unverified.
pub(super) fn bearer(headers: &Headers) -> Lookup<&[u8]> {
    let tokens = headers.get_all(AUTHORIZATION).map(|field| {
        let found = Credentials::of(field);
        let is_it = found.scheme.eq_ignore_ascii_case(b"bearer");
        is_it.then(|| found.value())
    });
    match Lookup::among(tokens) {
        Lookup::One(Some(token)) if !token.is_empty() => Lookup::One(token),
        Lookup::One(_) | Lookup::Missing => Lookup::Missing,
        Lookup::Several => Lookup::Several,
    }
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
    use crate::limiter::Secret;
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
        assert_eq!(found(&["Basic\u{a0}YWxpY2U6 x"]), alice());
        // Another password, the same user.
        assert_eq!(
            found(&["Basic YWxpY2U6c2VjcmV0", "Basic YWxpY2U6"]),
            alice()
        );
    }

    /// The canonical spelling, which the hashed parts have too.
    fn canonical(field: &[u8]) -> Vec<u8> {
        struct Parts(Vec<Vec<u8>>);
        impl KeyParts for Parts {
            fn part(&mut self, _kind: u8, value: &[u8]) {
                self.0.push(value.to_vec());
            }
        }
        let mut parts = Parts(Vec::new());
        assert!(Credentials::of(field).feed(2, &mut parts));
        parts.0.retain(|part| !part.is_empty());
        let canonical = Credentials::of(field).canonical();
        assert_eq!(parts.0.join(&b' '), canonical);
        assert_eq!(Credentials::of(&canonical).canonical(), canonical);
        assert_eq!(
            Credentials::of(&Credentials::of(field).plain()).canonical(),
            canonical
        );
        canonical
    }

    #[test]
    fn credentials_have_one_spelling_whatever_separates_them() {
        for same in [
            &b"Bearer k"[..],
            b"bEARER k",
            b"Bearer\tk",
            b"Bearer\t\tk",
            b"Bearer \tk",
            b"Bearer k \t",
            b"Bearer\xa0k",
            b"Bearer\x85k",
            b"Bearer k\xa0",
            b"\xa0Bearer k",
            b"Bearer \xa0 k\x85",
            "Bearer\u{a0}k".as_bytes(),
            "Bearer\u{2003}k\u{3000}".as_bytes(),
            b"Bearer k x",
            b"Bearer k\tx y",
            b"Bearer k\xa0x",
        ] {
            assert_eq!(canonical(same), b"bearer k", "{}", same.escape_ascii());
        }
        for (field, expected) in [
            (&b"Bearer"[..], &b"bearer"[..]),
            (b"Bearer\xa0", b"bearer"),
            (b"Bearer K==", b"bearer K=="),
            // The letters have these bytes in UTF-8.
            ("Bearer k\u{e0}".as_bytes(), "bearer k\u{e0}".as_bytes()),
            ("Bear\u{e0}r k".as_bytes(), "bear\u{e0}r k".as_bytes()),
            // Parameters belong together.
            (
                b"Digest username=\"a b\", uri=\"/\"",
                b"digest username=\"a b\", uri=\"/\"",
            ),
            (
                b"AWS4-HMAC-SHA256-AND-MORE a=b, c=d",
                b"aws4-hmac-sha256-and-more a=b, c=d",
            ),
        ] {
            assert_eq!(canonical(field), expected, "{}", field.escape_ascii());
        }
        let mut none = Secret::random().hasher();
        assert!(!Credentials::of(b"\xa0").feed(2, &mut none));
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
