//! One endpoint, one limit: however a limited path is spelled, its limit is met, and what is forwarded is
//! what was matched.

mod support;

use std::collections::BTreeSet;

use support::client::Connection;
use support::gateway::Gateway;
use support::origin::Origin;

/// The limited path of these tests is `/login`; nothing that is limited is ever admitted.
fn gateway(origin: &Origin) -> Gateway {
    Gateway::start(&format!(
        "routes:
  - {{ match: {{ path: /login }}, upstream: \"{url}\", limits: [{{ quota: 0/1h }}] }}
  - {{ match: {{ path: \"/**\" }}, upstream: \"{url}\" }}
",
        url = origin.url()
    ))
}

/// Every spelling of `word` with some of its letters percent-encoded, in both cases of hexadecimal digits.
fn encodings(word: &str) -> Vec<String> {
    word.chars().fold(vec![String::new()], |starts, letter| {
        let forms = BTreeSet::from([
            letter.to_string(),
            format!("%{:02x}", letter as u32),
            format!("%{:02X}", letter as u32),
        ]);
        starts
            .iter()
            .flat_map(|start| forms.iter().map(move |form| format!("{start}{form}")))
            .collect()
    })
}

/// Spellings of `/login` that mean the same by RFC 3986, or with slashes merged.
fn equal_spellings() -> Vec<String> {
    let dots = encodings(".");
    let twice = encodings("..");
    let mut before = vec!["/".to_owned(), "//".to_owned(), "////".to_owned()];
    before.extend(dots.iter().map(|dot| format!("/{dot}/")));
    before.extend(dots.iter().map(|dot| format!("/{dot}//{dot}/")));
    before.extend(twice.iter().map(|up| format!("/x/{up}/")));
    before.extend(twice.iter().map(|up| format!("/a/b/{up}/{up}/")));
    let words = encodings("login");
    let mut spellings: Vec<String> = before.iter().map(|start| format!("{start}login")).collect();
    spellings.extend(words.iter().map(|word| format!("/{word}")));
    spellings.extend(
        words
            .iter()
            .step_by(17)
            .flat_map(|word| before.iter().map(move |start| format!("{start}{word}"))),
    );
    spellings
        .extend(["", "?", "?a=b", "?a=/x/../y", "?%2e%2e"].map(|query| format!("/login{query}")));
    spellings
}

/// Spellings that a careless origin may take for `/login`.
fn suspicious_spellings() -> Vec<String> {
    let mut spellings = Vec::new();
    for slash in ["%2f", "%2F", "%5c", "%5C", "\\", "%252f", "%c0%af"] {
        for up in ["..", "%2e%2e", ".%2E", "%252e%252e"] {
            spellings.push(format!("/x{slash}{up}{slash}login"));
            spellings.push(format!("/x/{up}{slash}login"));
            spellings.push(format!("/x{slash}{up}/login"));
        }
        spellings.push(format!("{slash}login"));
        spellings.push(format!("/{slash}login"));
        spellings.push(format!("/.{slash}login"));
    }
    for after in [
        "/", "//", "/.", "/./", "/x/..", "/%2e", ";", ";x=1", ".", "..", "%20", "%00", "%09",
        "%0a", "%3f", "%23", "#x",
    ] {
        spellings.push(format!("/login{after}"));
    }
    // Above the root there is nothing: refused, or taken for the root.
    spellings.extend(encodings("..").iter().map(|up| format!("/{up}/login")));
    spellings
        .extend(["/%6", "/%", "/%zz", "/logi%6", "/%256cogin", "/%u006cogin"].map(str::to_owned));
    spellings
}

/// The statuses of GETs over as few connections as the proxy allows.
fn ask(gateway: &Gateway, targets: &[String]) -> Vec<u16> {
    let mut connection = Connection::open(gateway.address());
    let mut statuses = Vec::new();
    for target in targets {
        connection.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = connection.receive();
        statuses.push(answer.status);
        if answer.status == 400 {
            connection = Connection::open(gateway.address());
        }
    }
    statuses
}

/// What a lenient origin may make of a target: decoded once, backslashes turned, parameters and what
/// follows a NUL dropped, empty and dot segments resolved.
fn as_a_lenient_origin_reads(target: &str) -> String {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let once = decoded(path);
    let path = once
        .split('\0')
        .next()
        .unwrap_or_default()
        .replace('\\', "/");
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => _ = segments.pop(),
            name => segments.push(name.to_owned()),
        }
    }
    format!("/{}", segments.join("/"))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn no_spelling_of_a_limited_path_escapes_its_limit() {
    let origin = Origin::plain();
    let gateway = gateway(&origin);
    let spellings = equal_spellings();
    assert!(spellings.len() > 300);
    let statuses = ask(&gateway, &spellings);
    for (spelling, status) in spellings.iter().zip(statuses) {
        assert_eq!(status, 429, "{spelling}");
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn what_a_lenient_origin_may_take_for_a_limited_path_is_not_forwarded() {
    let origin = Origin::plain();
    let gateway = gateway(&origin);
    let spellings = suspicious_spellings();
    let statuses = ask(&gateway, &spellings);
    for (spelling, status) in spellings.iter().zip(statuses) {
        assert!([200, 400, 429].contains(&status), "{spelling}: {status}");
    }
    let trailing =
        |target: &str| target.trim_end_matches('/') == "/login" || target.starts_with("/login;");
    for request in origin.requests() {
        // `/login/` and `/login;x` are other paths unless the route says that they are the same.
        let read = as_a_lenient_origin_reads(&request.target);
        assert!(
            read != "/login" || trailing(&request.target),
            "{} reads as {read}",
            request.target
        );
    }
}

#[test]
fn a_trailing_slash_and_another_case_are_the_same_path_where_the_route_says_so() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "routes:
  - match: {{ path: /login }}
    case_sensitive: false
    trailing_slash: ignore
    upstream: \"{url}\"
    limits: [{{ quota: 0/1h }}]
  - {{ match: {{ path: \"/**\" }}, upstream: \"{url}\" }}
",
        url = origin.url()
    ));
    let spellings = [
        "/login/", "/LOGIN", "/Login/", "/%4cogin", "/lOgIn//", "/login/.",
    ]
    .map(str::to_owned);
    assert_eq!(ask(&gateway, &spellings), [429; 6]);
    assert!(origin.requests().is_empty());
}

#[test]
fn the_absolute_form_meets_the_same_limit() {
    let origin = Origin::plain();
    let gateway = gateway(&origin);
    let spellings = [
        "http://a/login",
        "http://a//login",
        "http://a/%6cogin",
        "HTTP://a/x/../login",
    ]
    .map(str::to_owned);
    assert_eq!(ask(&gateway, &spellings), [429; 4]);
    assert!(origin.requests().is_empty());
}

#[test]
fn the_path_that_is_matched_is_the_path_that_is_forwarded() {
    let origin = Origin::plain();
    let gateway = gateway(&origin);
    for (asked, forwarded) in [
        ("/a//b/./c/../d", "/a/b/d"),
        ("/%61/%7Eb", "/a/~b"),
        ("/a%2fb?x=%2e%2e/..//", "/a%2Fb?x=%2e%2e/..//"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/a/..", "/"),
        ("/a/b/", "/a/b/"),
        ("/?q", "/?q"),
    ] {
        origin.forget();
        let status = ask(&gateway, &[asked.to_owned()])[0];
        // An encoded slash may be refused instead: then nothing is forwarded.
        if status == 400 && asked.contains("%2f") {
            assert!(origin.requests().is_empty());
            continue;
        }
        assert_eq!(status, 200, "{asked}");
        assert_eq!(origin.only_request().target, forwarded, "{asked}");
    }
}
