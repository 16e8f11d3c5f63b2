use http::HeaderValue;
use proptest::prelude::*;

use super::*;

/// The host of a request with this version, target and Host fields.
fn host(version: Version, target: &str, fields: &[&str]) -> Result<String, HostError> {
    let mut request = http::Request::builder().version(version).uri(target);
    for field in fields {
        let value = HeaderValue::from_bytes(field.as_bytes()).expect("a field value");
        request = request.header(HOST, value);
    }
    effective(&request.body(()).expect("a request").into()).map(|host| host.to_string())
}

fn of_field(field: &str) -> Result<String, HostError> {
    host(Version::HTTP_11, "/", &[field])
}

#[test]
fn a_host_has_one_spelling() {
    for (field, expected) in [
        ("example.com", "example.com"),
        ("EXAMPLE.com:8080", "example.com"),
        ("example.com.", "example.com"),
        ("example.com.:80", "example.com"),
        ("example.com:", "example.com"),
        ("example.com:00080", "example.com"),
        ("a_b-c~d", "a_b-c~d"),
        ("127.0.0.1:65535", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[0:0::0001]:443", "[::1]"),
        ("[2001:DB8::A]", "[2001:db8::a]"),
        ("[::FFFF:1.2.3.4]", "[::ffff:1.2.3.4]"),
    ] {
        assert_eq!(of_field(field).as_deref(), Ok(expected), "{field}");
    }
}

#[test]
fn an_invalid_host_or_port_is_refused() {
    let long = "a".repeat(255);
    for field in [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a..",
        ":80",
        "a:b",
        "a:80:80",
        "a:-1",
        "a:+80",
        "a:65536",
        "a:080808",
        "a b",
        "a,b",
        "a/b",
        "a@b",
        "user:password@a",
        "a%62",
        "a?",
        "a#",
        "a\\b",
        "é",
        "a\tb",
        "[::1",
        "::1",
        "[::1]80",
        "[::1]]",
        "[[::1]]",
        "[fe80::1%25eth0]",
        "[v1.x]",
        "[]",
        "[1.2.3.4]",
        "http://a",
        "*",
        "*.a",
        &long,
    ] {
        assert_eq!(of_field(field), Err(HostError::Invalid), "{field}");
    }
}

#[test]
fn the_longest_dns_name_is_accepted() {
    let name = vec!["a".repeat(63); 4].join(".")[..253].to_owned();
    assert_eq!(of_field(&name), Ok(name.clone()));
    assert_eq!(of_field(&format!("{name}.")), Ok(name));
}

#[test]
fn more_than_one_host_is_refused_even_if_they_are_equal() {
    for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
        let both = host(version, "/", &["a", "a"]);
        assert_eq!(both, Err(HostError::Several), "{version:?}");
    }
}

#[test]
fn only_http_1_0_may_leave_the_host_out() {
    assert_eq!(host(Version::HTTP_10, "/", &[]).as_deref(), Ok(""));
    assert_eq!(host(Version::HTTP_11, "/", &[]), Err(HostError::Missing));
    assert_eq!(host(Version::HTTP_2, "/", &[]), Err(HostError::Missing));
    // RFC 9112 section 3.2: an absolute target needs a Host, too.
    let absolute = |version| host(version, "http://a/", &[]);
    assert_eq!(absolute(Version::HTTP_11), Err(HostError::Missing));
    assert_eq!(absolute(Version::HTTP_10).as_deref(), Ok("a"));
    assert_eq!(absolute(Version::HTTP_2).as_deref(), Ok("a"));
}

#[test]
fn the_target_and_host_must_agree() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for (target, field) in [
            ("http://a/x", "a"),
            ("http://a/x", "A"),
            ("http://a:80/x", "a"),
            ("http://a/x", "a:80"),
            ("https://a/x", "a:443"),
            ("http://a.:/x", "a"),
            ("http://[::1]/x", "[0::1]"),
        ] {
            let found = host(version, target, &[field]);
            assert!(found.is_ok(), "{target} {field} {found:?}");
        }
        for (target, field) in [
            ("http://a/x", "b"),
            ("http://a/x", "a.b"),
            ("http://a:81/x", "a"),
            ("http://a/x", "a:443"),
            ("https://a/x", "a:80"),
        ] {
            let found = host(version, target, &[field]);
            assert_eq!(found, Err(HostError::Mismatch), "{target} {field}");
        }
    }
}

#[test]
fn a_target_with_user_information_is_refused() {
    let found = host(Version::HTTP_2, "http://user@a/", &[]);
    assert_eq!(found, Err(HostError::Invalid));
    let found = host(Version::HTTP_11, "http://user@a/", &["user@a"]);
    assert_eq!(found, Err(HostError::Invalid));
}

proptest! {
    #[test]
    fn an_accepted_host_is_in_canonical_spelling(field in "[ -~]{0,40}") {
        if let Ok(found) = of_field(&field) {
            prop_assert_eq!(of_field(&found), Ok(found.clone()));
            prop_assert!(!found.bytes().any(|b| b.is_ascii_uppercase() || b == b'@' || b == b' '));
        }
    }

    #[test]
    fn case_port_and_trailing_dot_make_no_difference(
        name in "[a-z0-9]{1,8}(\\.[a-z0-9]{1,8}){0,3}",
        port in any::<u16>(),
    ) {
        for spelling in [name.to_uppercase(), format!("{name}:{port}"), format!("{name}.:{port}")] {
            prop_assert_eq!(of_field(&spelling), Ok(name.clone()));
        }
    }
}

#[test]
fn hosts_that_differ_in_one_character_have_different_places() {
    for host in ["api.example.com", "a.tenant-0.example.com:8443", "x"] {
        for at in 0..host.len() {
            let mut places: Vec<_> = (b'a'..=b'z')
                .map(|letter| {
                    let mut text = host.as_bytes().to_vec();
                    text[at] = letter;
                    place(&text) % PLACES
                })
                .collect();
            places.sort_unstable();
            places.dedup();
            assert!(places.len() >= 13, "{host} at {at}: {}", places.len());
        }
    }
}
