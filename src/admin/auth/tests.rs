use axum::body::Body;

use super::*;
use crate::admin::access::AccessSpec;
use crate::http::token_digest::TokenDigest;

fn access(read: &[&str], write: &[&str]) -> Access {
    let digests = |tokens: &[&str]| tokens.iter().map(TokenDigest::of).collect();
    Access::new(
        AccessSpec {
            read: digests(read),
            write: digests(write),
        },
        None,
    )
}

/// The caller that these header fields authorise, or the refusal.
fn call(access: &Access, role: TokenRole, fields: &[(&str, &str)]) -> Result<String, AdminRefusal> {
    let request = fields.iter().fold(Request::builder(), |request, field| {
        request.header(field.0, field.1)
    });
    let request = request.body(Body::empty()).expect("a request");
    authorise(role, access, &request, Timestamp::EPOCH).map(|actor| actor.to_string())
}

#[test]
fn each_token_has_its_role_and_place() {
    let access = access(&["reader-1", "reader-2", "both"], &["writer", "both"]);
    let read = |token: &str| call(&access, TokenRole::Read, &[("authorization", token)]);
    let write = |token: &str| call(&access, TokenRole::Write, &[("authorization", token)]);
    assert_eq!(read("Bearer reader-2"), Ok("read#2".to_owned()));
    assert_eq!(read("bearer  writer"), Ok("write#1".to_owned()));
    assert_eq!(write("Bearer both"), Ok("write#2".to_owned()));
    assert_eq!(write("Bearer reader-1"), Err(AdminRefusal::Forbidden));
    for unknown in [
        "Bearer reader",
        "Bearer ",
        "Basic writer",
        "writer",
        "Bearer writer ",
    ] {
        assert_eq!(
            read(unknown),
            Err(AdminRefusal::Unauthenticated),
            "{unknown}"
        );
    }
}

#[test]
fn two_tokens_are_none() {
    let access = access(&[], &["writer"]);
    let fields = [("authorization", "Bearer writer"); 2];
    let twice = call(&access, TokenRole::Read, &fields);
    assert_eq!(twice, Err(AdminRefusal::Unauthenticated));
}

#[test]
fn pages_of_other_origins_change_nothing() {
    let access = access(&[], &["writer"]);
    for (host, origin, is_own) in [
        ("127.0.0.1:9980", "http://127.0.0.1:9980", true),
        ("admin.example.com", "https://ADMIN.example.com", true),
        ("127.0.0.1:9980", "http://127.0.0.1:3000", false),
        ("127.0.0.1:9980", "https://evil.example", false),
        ("127.0.0.1:9980", "null", false),
        ("127.0.0.1:9980", "", false),
    ] {
        let fields = [
            ("authorization", "Bearer writer"),
            ("host", host),
            ("origin", origin),
        ];
        let write = call(&access, TokenRole::Write, &fields);
        assert_eq!(write.is_ok(), is_own, "{origin}");
        assert!(call(&access, TokenRole::Read, &fields).is_ok(), "{origin}");
    }
    for (site, is_own) in [
        ("same-origin", true),
        ("none", true),
        ("same-site", false),
        ("cross-site", false),
    ] {
        let fields = [("authorization", "Bearer writer"), ("sec-fetch-site", site)];
        let write = call(&access, TokenRole::Write, &fields);
        assert_eq!(write.is_ok(), is_own, "{site}");
        assert!(call(&access, TokenRole::Read, &fields).is_ok(), "{site}");
    }
}
