use proptest::prelude::*;

use super::*;
use crate::support::spellings::{LIMITED, lenient, variants};

fn normalise(path: &str) -> Result<Cow<'_, str>, PathError> {
    super::normalise(path, EncodedSlashes::Refuse)
}

#[test]
fn an_encoded_slash_may_be_kept_as_a_part_of_its_segment() {
    let keep = |path| super::normalise(path, EncodedSlashes::Keep);
    for (path, normal) in [
        ("/@scope%2fname", "/@scope%2Fname"),
        ("/vhosts/%2F/queues", "/vhosts/%2F/queues"),
        ("/a/../b%2fc", "/b%2Fc"),
        ("/a%2f..b", "/a%2F..b"),
        ("/a%252fb", "/a%252fb"),
    ] {
        assert_eq!(keep(path).as_deref(), Ok(normal), "{path}");
        assert_eq!(comparable(normal), normal);
        assert_eq!(has_encoded_slash(normal), !path.contains("%25"));
    }
    for (path, error) in [
        ("/a%2f..%2fb", PathError::HiddenDots),
        ("/..%2fb", PathError::HiddenDots),
        ("/a%2F%2e", PathError::HiddenDots),
        ("/a%2f..;x", PathError::HiddenDots),
        ("/a%5cb", PathError::Separator),
    ] {
        assert_eq!(keep(path), Err(error), "{path}");
    }
}

#[test]
fn every_spelling_of_a_path_is_one() {
    for spelling in [
        "/v1/login",
        "//v1//login",
        "/./v1/./login",
        "/v1/x/../login",
        "/%76%31/%6Cogin",
        "/v1/%2e/login",
        "/x/%2E%2e/v1/login",
    ] {
        assert_eq!(
            normalise(spelling).as_deref(),
            Ok("/v1/login"),
            "{spelling}"
        );
    }
}

#[test]
fn a_trailing_slash_is_another_path_and_stays() {
    assert_eq!(normalise("/a/").as_deref(), Ok("/a/"));
    assert_eq!(normalise("/a/.").as_deref(), Ok("/a/"));
    assert_eq!(normalise("/a/b/..").as_deref(), Ok("/a/"));
    assert_eq!(normalise("/").as_deref(), Ok("/"));
    assert_eq!(normalise("///").as_deref(), Ok("/"));
}

#[test]
fn necessary_encodings_stay_in_upper_case() {
    assert_eq!(
        normalise("/a%20b%3f%c3%a9").as_deref(),
        Ok("/a%20b%3F%C3%A9")
    );
    assert_eq!(normalise("/%252e%252e/a").as_deref(), Ok("/%252e%252e/a"));
}

#[test]
fn invalid_characters_are_encoded() {
    assert_eq!(normalise("/café").as_deref(), Ok("/caf%C3%A9"));
    assert_eq!(normalise("/caf%c3é").as_deref(), Err(&PathError::NotUtf8));
    assert_eq!(
        normalise("/a|b^c`d{e}\"<f>[g]").as_deref(),
        Ok("/a%7Cb%5Ec%60d%7Be%7D%22%3Cf%3E%5Bg%5D")
    );
}

#[test]
fn reserved_characters_stay_as_sent_and_compare_equal() {
    for (sent, normal, compared) in [
        ("/a@b:c", "/a@b:c", "/a@b:c"),
        ("/a%40b%3ac", "/a%40b%3Ac", "/a@b:c"),
        (
            "/%21%24%26%27%28%29%2a%2b%2c%3b%3d",
            "/%21%24%26%27%28%29%2A%2B%2C%3B%3D",
            "/!$&'()*+,;=",
        ),
        ("/a%3Fb%23c%25d", "/a%3Fb%23c%25d", "/a%3Fb%23c%25d"),
        // Decoded once only.
        ("/a%2540b", "/a%2540b", "/a%2540b"),
        ("/%C3%A9%40%41", "/%C3%A9%40A", "/%C3%A9@A"),
    ] {
        assert_eq!(normalise(sent).as_deref(), Ok(normal), "{sent}");
        assert_eq!(comparable(normal), compared, "{sent}");
    }
}

#[test]
fn bytes_that_are_no_utf_8_are_refused() {
    for path in [
        "/%c0%ae%c0%ae/a",
        "/%c0%af",
        "/%e0%80%af",
        "/%ff",
        "/%e9",
        "/%c3/%a9",
        "/%ed%a0%80",
    ] {
        assert_eq!(normalise(path), Err(PathError::NotUtf8), "{path}");
    }
}

#[test]
fn paths_that_servers_read_differently_are_refused() {
    for (path, error) in [
        ("", PathError::Relative),
        ("*", PathError::Relative),
        ("a/b", PathError::Relative),
        ("/a%", PathError::Encoding),
        ("/a%4", PathError::Encoding),
        ("/a%zz", PathError::Encoding),
        ("/a%+4", PathError::Encoding),
        ("/a%2fb", PathError::Separator),
        ("/a%5Cb", PathError::Separator),
        ("/a\\b", PathError::Separator),
        ("/a%00", PathError::Control),
        ("/a%0d%0a", PathError::Control),
        ("/a%7F", PathError::Control),
        ("/..", PathError::AboveRoot),
        ("/a/../..", PathError::AboveRoot),
        ("/a/..;/b", PathError::DotParameters),
        ("/a/%2e%2E;x=1/b", PathError::DotParameters),
        ("/.;/a", PathError::DotParameters),
        ("/a/..%3b/b", PathError::DotParameters),
        ("/a/.%3Bx", PathError::DotParameters),
    ] {
        assert_eq!(normalise(path), Err(error), "{path}");
    }
}

proptest! {
    #[test]
    fn a_normal_form_is_its_own_normal_form(path in "/[a-c/.%2eEfF5;~ -]{0,24}") {
        if let Ok(normal) = normalise(&path) {
            prop_assert_eq!(normalise(&normal), Ok(Cow::Borrowed(&*normal)));
            prop_assert!(!normal.contains("//") && !normal.contains("/./"));
        }
    }

    #[test]
    fn encoding_unreserved_characters_changes_nothing(path in "(/[a-z0-9._~-]{1,8}){1,4}") {
        let encoded: String = path
            .chars()
            .map(|c| if c == '/' { "/".to_owned() } else { format!("%{:02x}", c as u32) })
            .collect();
        prop_assert_eq!(normalise(&path), normalise(&encoded));
    }

    #[test]
    fn no_path_panics(path in "\\PC{0,40}") {
        let _ = normalise(&path);
    }

    #[test]
    fn a_normal_form_is_ascii_without_dot_segments(path in "/[ -~é./%]{0,24}") {
        if let Ok(normal) = normalise(&path) {
            prop_assert!(normal.is_ascii() && normal.starts_with('/'));
            prop_assert!(!normal.contains("//"));
            let dots = |segment| matches!(segment, "." | "..");
            prop_assert!(!normal.split('/').any(dots));
            let compared = comparable(&normal);
            prop_assert_eq!(compared.split('/').count(), normal.split('/').count());
            prop_assert!(!compared.split('/').any(dots));
            prop_assert_eq!(comparable(&compared), compared.clone());
        }
    }
}

#[test]
fn another_path_is_another_path_to_a_lenient_server_too() {
    for variant in variants() {
        let Ok(normal) = normalise(&variant) else {
            continue;
        };
        if comparable(&normal) == LIMITED {
            continue;
        }
        // A slash at the end is another path, as configured; everything else has to differ.
        let is_other = lenient(&normal) != LIMITED || normal.ends_with('/');
        assert!(is_other, "{variant} is forwarded as {normal}");
    }
}
