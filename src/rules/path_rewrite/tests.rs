use proptest::prelude::*;

use super::*;
use crate::rules::matcher::PathMatch;

fn rewrite(strip: &str, add: &str) -> PathRewrite {
    PathRewrite {
        strip: strip.to_owned(),
        add: add.to_owned(),
        ..PathRewrite::default()
    }
}

fn replacing(regex: &str, text: &str) -> PathRewrite {
    let regex = LinearRegex::new(regex, false).expect("an expression");
    PathRewrite {
        replace: Some((regex, text.as_bytes().into())),
        ..PathRewrite::default()
    }
}

#[test]
fn whole_segments_are_stripped_however_they_are_spelled() {
    for (strip, path, forwarded) in [
        ("", "/a", "/a"),
        ("/v1", "/v1/a", "/a"),
        ("/v1", "/V1/a", "/a"),
        ("/a@b", "/a%40b/c", "/c"),
        ("/v1", "/v1", "/"),
        ("/v1", "/v1/", "/"),
        ("/v1/api", "/v1/api/x/", "/x/"),
    ] {
        let path = rewrite(strip, "").forwarded(path);
        assert_eq!(path.as_deref(), Ok(forwarded));
    }
}

#[test]
fn segments_that_a_loose_route_passes_over_are_not_counted() {
    let mut loose = rewrite("/v1", "");
    loose.form.path_match = PathMatch::Loose;
    let forwarded = |path| loose.forwarded(path);
    assert_eq!(forwarded("/;x/v1;y/a;z").as_deref(), Ok("/a;z"));
    assert_eq!(forwarded("/.../v1").as_deref(), Ok("/"));
    assert_eq!(forwarded("/%3Bx/v1/a").as_deref(), Ok("/a"));
}

#[test]
fn a_prefix_is_added() {
    assert_eq!(rewrite("", "/app").forwarded("/a").as_deref(), Ok("/app/a"));
    assert_eq!(
        rewrite("/v1", "/v2").forwarded("/v1/a").as_deref(),
        Ok("/v2/a")
    );
    assert_eq!(rewrite("/v1", "/v2").forwarded("/v1").as_deref(), Ok("/v2"));
    assert_eq!(rewrite("", "/app").forwarded("/").as_deref(), Ok("/app/"));
}

#[test]
fn captures_are_put_into_the_replacement() {
    for (regex, text, path, forwarded) in [
        ("^/users/([^/]+)$", "/u?/$1", "/users/7", "/u%3F/7"),
        (
            "^/(?<org>[^/]+)/(?<id>.+)",
            "/${id}/${org}",
            "/a/b/c",
            "/b/c/a",
        ),
        ("b", "x", "/abba", "/axxa"),
        ("^/a", "//evil", "/a/b", "/evil/b"),
        ("$", "é b", "/a", "/a%C3%A9%20b"),
        ("^/none", "/x", "/a", "/a"),
    ] {
        let path = replacing(regex, text).forwarded(path);
        assert_eq!(path.as_deref(), Ok(forwarded), "{regex}");
    }
}

#[test]
fn a_result_that_is_no_path_is_refused() {
    for (regex, text, path, error) in [
        ("^/", "", "/a", PathError::Relative),
        ("a(..)b", "x/$1", "/a..b", PathError::HiddenDots),
        ("%25", "%", "/x/%252e", PathError::HiddenDots),
        ("%25", "%", "/x/%25z", PathError::Encoding),
        ("%25(2e)", "%$1", "/x/%252e", PathError::HiddenDots),
        ("%25", "%0d%0a", "/%25", PathError::Control),
        ("a", "%2f", "/a", PathError::Separator),
        ("a", "\\", "/a", PathError::Separator),
    ] {
        let result = replacing(regex, text).forwarded(path);
        assert_eq!(result, Err(error), "{regex}");
    }
    let long = format!("/{}", "a".repeat(9_000));
    let grown = replacing("^(.*)$", "$1$1$1$1$1$1$1$1").forwarded(&long);
    assert_eq!(grown, Err(PathError::TooLong));
}

#[test]
fn references_are_restored_at_segments() {
    let both = rewrite("/v1", "/app");
    for (path, restored) in [
        ("/app/a?b#c", Some("/v1/a?b#c")),
        ("/app", Some("/v1")),
        ("/app/", Some("/v1/")),
        ("/app?b", Some("/v1?b")),
        ("/apple", None),
        ("/other", None),
        ("/app//host", Some("/v1//host")),
    ] {
        assert_eq!(both.restored(path).as_deref(), restored, "{path}");
    }
    assert_eq!(rewrite("", "/app").restored("/app//evil.example"), None);
    assert_eq!(rewrite("", "/app").restored("/app/\\evil.example"), None);
    assert_eq!(rewrite("/v1", "").restored("/").as_deref(), Some("/v1/"));
    assert_eq!(
        rewrite("/v1", "").restored_cookie_path("/").as_deref(),
        Some("/v1")
    );
    assert_eq!(
        rewrite("/v1", "").restored_cookie_path("/a/").as_deref(),
        Some("/v1/a/")
    );
}

proptest! {
    #[test]
    fn every_result_is_normal(
        regex in "[a-c./%]{0,4}|\\([a-c.]{1,3}\\)",
        text in "[a-c./%$1?#\\\\\r\n]{0,6}",
        path in "(/[a-c.%25]{0,4}){1,4}",
    ) {
        if let Ok(regex) = LinearRegex::new(&regex, false)
            && let Ok(path) = path::normalise(&path, EncodedSlashes::Refuse)
        {
            let rewrite = PathRewrite {
                replace: Some((regex, text.as_bytes().into())),
                ..PathRewrite::default()
            };
            if let Ok(result) = rewrite.forwarded(&path) {
                let normal = path::normalise(&result, EncodedSlashes::Refuse);
                prop_assert_eq!(normal.as_deref(), Ok(&*result));
            }
        }
    }

    #[test]
    fn what_is_forwarded_is_restored(path in "(/[a-c]{1,3}){1,3}", strip in "(/[a-c]{1,2}){0,2}", add in "(/[a-c]{1,2}){0,2}") {
        let rewrite = rewrite(&strip, &add);
        let sent = format!("{strip}{path}");
        let forwarded = rewrite.forwarded(&sent).expect("a path");
        let restored = rewrite.restored(&forwarded).unwrap_or(forwarded);
        prop_assert_eq!(restored, sent);
    }
}
