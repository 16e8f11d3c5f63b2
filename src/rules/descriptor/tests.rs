use http::HeaderValue;
use proptest::prelude::*;

use super::*;
use crate::http::headers::Headers;
use crate::rules::{CaseSensitivity, PathMatch, TrailingSlash};

mod key_text;

const SECRET: Secret = Secret::from_key([1, 2]);
const FOLDING: PathEquivalence = PathEquivalence {
    case: CaseSensitivity::Insensitive,
    trailing_slash: TrailingSlash::Ignore,
    path_match: PathMatch::Exact,
};

/// A request that keys are taken from.
#[derive(Clone, Debug)]
struct Request {
    path: &'static str,
    query: Option<String>,
    headers: Headers,
    client_ip: IpAddr,
}

impl Request {
    fn new() -> Self {
        Request {
            path: "/users/bob/posts",
            query: None,
            headers: Headers::new(),
            client_ip: [192, 0, 2, 1].into(),
        }
    }

    fn path(self, path: &'static str) -> Self {
        Request { path, ..self }
    }

    fn query(self, query: &str) -> Self {
        let query = Some(query.to_owned());
        Request { query, ..self }
    }

    fn field(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.append(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        self
    }

    fn from(self, address: &str) -> Self {
        let client_ip = address.parse().expect("an address");
        Request { client_ip, ..self }
    }

    fn head(&self) -> Head<'_> {
        Head {
            method: &Method::GET,
            host: "a",
            path: self.path,
            query: self.query.as_deref(),
            headers: &self.headers,
            client_ip: self.client_ip,
            local: None,
            scheme: None,
            token: None,
            body: None,
            client: None,
            is_any_target: false,
        }
    }
}

const ADDRESS: KeyPart = KeyPart::ClientIp { ipv6_prefix: 64 };

fn field(name: &'static str) -> KeyPart {
    KeyPart::field(HeaderName::from_static(name))
}

fn query(name: &str) -> KeyPart {
    KeyPart::Query(name.to_owned())
}

fn cookie(name: &str) -> KeyPart {
    KeyPart::Cookie(name.to_owned())
}

fn segment(place: usize) -> KeyPart {
    let form = PathEquivalence::default();
    KeyPart::Segment { place, form }
}

fn key_or(parts: &[KeyPart], on_missing: OnMissingKey, request: &Request) -> Key {
    Descriptor::new(parts.to_vec(), on_missing, 64).fingerprint(&SECRET, &request.head())
}

/// The key of these parts; [`Key::Refuse`] where one is missing.
fn key(parts: &[KeyPart], request: &Request) -> Key {
    key_or(parts, OnMissingKey::Refuse, request)
}

#[test]
fn parts_of_different_kinds_are_never_one() {
    let request = Request::new()
        .path("/x")
        .query("q=x")
        .field("h", "x")
        .field("cookie", "c=x");
    let route = KeyPart::Route(Arc::from("x"));
    let parts = [field("h"), query("q"), cookie("c"), segment(0), route];
    for (place, one) in parts.iter().enumerate() {
        for other in &parts[place + 1..] {
            let [one_key, other_key] =
                [one, other].map(|part| key(std::slice::from_ref(part), &request));
            assert!(matches!(one_key, Key::Bucket(_)), "{one}");
            assert_ne!(one_key, other_key, "{one} {other}");
        }
    }
}

#[test]
fn a_field_that_reads_like_an_address_is_none() {
    let request = Request::new().from("49.46.49.46").field("h", "1.1.");
    // The same four bytes.
    assert_ne!(key(&[field("h")], &request), key(&[ADDRESS], &request));
}

#[test]
fn what_is_absent_or_empty_is_missing() {
    let parts = [field("h"), query("q"), cookie("c")];
    let request = Request::new;
    for missing in [
        request(),
        request().field("h", "").query("q=").field("cookie", "c="),
        request()
            .field("h", "")
            .query("q")
            .field("cookie", "c=\"\""),
        request()
            .field("h2", "1")
            .query("qq=1&%71%71=1")
            .field("cookie", "cc=1; C=1; c"),
    ] {
        for part in &parts {
            assert_eq!(
                key(std::slice::from_ref(part), &missing),
                Key::Refuse,
                "{part} {missing:?}"
            );
        }
    }
    assert_eq!(key(&[segment(3)], &request()), Key::Refuse);
    assert_eq!(key(&[segment(usize::MAX)], &request()), Key::Refuse);
}

#[test]
fn nothing_given_with_different_values_has_a_bucket_or_is_let_through() {
    let new = Request::new;
    for (part, request) in [
        (field("h"), new().field("h", "1").field("h", "2")),
        (field("h"), new().field("h", "").field("h", "1")),
        (query("q"), new().query("q=1&%71=2")),
        (query("q"), new().query("q&q=1")),
        (cookie("c"), new().field("cookie", "c=1; c=2")),
        (
            cookie("c"),
            new().field("cookie", "c=1").field("cookie", "d; c="),
        ),
    ] {
        for on_missing in [
            OnMissingKey::Part(ADDRESS),
            OnMissingKey::Skip,
            OnMissingKey::Shared,
        ] {
            let parts = [part.clone()];
            assert_eq!(
                key_or(&parts, on_missing, &request),
                Key::Refuse,
                "{request:?}"
            );
        }
        // As a stand-in too.
        let on_missing = OnMissingKey::Part(part);
        assert_eq!(key_or(&[field("x")], on_missing, &request), Key::Refuse);
    }
}

#[test]
fn one_value_given_twice_is_one() {
    let twice = Request::new()
        .field("h", "1")
        .field("h", "1")
        .field("cookie", "c=1; c=1")
        .query("q=1&q=1");
    let once = Request::new()
        .field("h", "1")
        .field("cookie", "c=1")
        .query("q=1");
    for part in [field("h"), query("q"), cookie("c")] {
        let parts = [part];
        assert!(matches!(key(&parts, &once), Key::Bucket(_)));
        assert_eq!(key(&parts, &twice), key(&parts, &once));
    }
}

#[test]
fn credentials_are_one_key_however_their_scheme_is_written() {
    let of = |value| {
        let request = Request::new().field("authorization", value);
        key(&[field("authorization")], &request)
    };
    for same in [
        "bearer abc",
        "BEARER   abc",
        "bEaReR abc ",
        "Bearer\tabc",
        "Bearer \t abc x",
    ] {
        assert_eq!(of(same), of("Bearer abc"), "{same}");
    }
    for other in [
        "Bearer ABC",
        "Basic abc",
        "abc",
        "Bearer",
        "a-scheme-that-is-long abc",
    ] {
        assert_ne!(of(other), of("Bearer abc"), "{other}");
    }
}

#[test]
fn invented_methods_are_one_key() {
    let of = |name: &str| {
        let method: Method = name.parse().expect("a method");
        let request = Request::new();
        let head = Head {
            method: &method,
            ..request.head()
        };
        let part = vec![KeyPart::Method];
        Descriptor::new(part, OnMissingKey::Refuse, 64).fingerprint(&SECRET, &head)
    };
    assert_eq!(of("BREW"), of("PROPFIND"));
    assert_ne!(of("GET"), of("BREW"));
    assert_ne!(of("GET"), of("get"));
    assert_ne!(of("GET"), of("HEAD"));
}

#[test]
fn values_are_shown_short_and_without_control_characters() {
    let long = format!("q=%1b[31m{}", "a".repeat(200));
    let descriptor = Descriptor::new(vec![query("q")], OnMissingKey::Skip, 64);
    let shown = |query: &str| {
        let request = Request::new().query(query);
        descriptor.describe(&request.head())[0].to_string()
    };
    let expected = format!("query:q = \\u001b[31m{}…", "a".repeat(75));
    assert_eq!(shown(&long), expected);
    assert_eq!(shown("q=1&q=2"), "query:q is given with different values");
    assert_eq!(shown("x"), "query:q is missing");
}

#[test]
fn one_value_in_several_spellings_is_one_key() {
    let same = |part: KeyPart, one: Request, other: Request| {
        let part = [part];
        assert!(matches!(key(&part, &one), Key::Bucket(_)), "{one:?}");
        assert_eq!(key(&part, &one), key(&part, &other), "{one:?} {other:?}");
    };
    let new = Request::new;
    same(
        query("q"),
        new().query("q=a b"),
        new().query("x=1&%71=%61+b"),
    );
    same(query("q"), new().query("q=a%20b"), new().query("q=a+b&"));
    same(
        cookie("c"),
        new().field("cookie", "c=1"),
        new().field("cookie", "d=2;c = \"%31\" ; e=3"),
    );
    let split = new().field("cookie", "d=2").field("cookie", "c=1");
    same(cookie("c"), new().field("cookie", "c=1"), split);
    same(
        KeyPart::Path(FOLDING),
        new().path("/a/b"),
        new().path("/A/b/"),
    );
    let form = FOLDING;
    same(
        KeyPart::Segment { place: 0, form },
        new().path("/bob"),
        new().path("/Bob/"),
    );
    same(KeyPart::Path(FOLDING), new().path("/"), new().path("/"));
}

#[test]
fn paths_that_differ_to_the_route_differ_in_the_key() {
    let part = [KeyPart::Path(PathEquivalence::default())];
    let of = |path| key(&part, &Request::new().path(path));
    assert_ne!(of("/a"), of("/A"));
    assert_ne!(of("/a"), of("/a/"));
}

#[test]
fn a_segment_is_found_by_its_place_whatever_is_encoded_in_others() {
    let of = |path| key(&[segment(1)], &Request::new().path(path));
    assert_eq!(of("/users/bob"), of("/%C3%A9%20/bob/x"));
    assert_ne!(of("/users/bob"), of("/users/bob%20"));
    assert_ne!(of("/users/bob"), of("/bob/users"));
}

#[test]
fn an_ipv6_client_is_its_network() {
    let of = |bits, address| {
        let part = KeyPart::ClientIp { ipv6_prefix: bits };
        key(&[part], &Request::new().from(address))
    };
    assert_eq!(of(64, "2001:db8::1"), of(64, "2001:db8::ffff:1"));
    assert_ne!(of(64, "2001:db8::1"), of(64, "2001:db8:0:1::1"));
    assert_eq!(of(56, "2001:db8::1"), of(56, "2001:db8:0:ff::1"));
    assert_ne!(of(128, "2001:db8::1"), of(128, "2001:db8::2"));
    assert_eq!(of(1, "::1"), of(1, "7fff::"));
    assert_ne!(of(64, "192.0.2.1"), of(64, "192.0.2.2"));
    assert_ne!(of(128, "192.0.2.1"), of(128, "::c000:201"));
}

#[test]
fn a_missing_part_is_stood_in_for_in_turn() {
    let chain = || OnMissingKey::Part(cookie("c"));
    let of = |request: Request| key_or(&[field("h")], chain(), &request);
    let new = Request::new;
    assert_eq!(
        of(new().field("h", "1").field("cookie", "c=2")),
        of(new().field("h", "1"))
    );
    assert_eq!(
        of(new().field("cookie", "c=1").from("::1")),
        of(new().field("cookie", "c=1"))
    );
    // Dropping everything frees nobody.
    assert_ne!(of(new()), of(new().from("192.0.2.2")));
    assert!(matches!(of(new()), Key::Bucket(_)));
}

#[test]
fn a_value_that_stands_in_is_not_the_value_it_stands_in_for() {
    let chain = || OnMissingKey::Part(field("other"));
    let of = |request: Request| key_or(&[field("h")], chain(), &request);
    assert_ne!(
        of(Request::new().field("h", "1")),
        of(Request::new().field("other", "1"))
    );
}

#[test]
fn who_has_no_key_is_skipped_refused_or_counted_together() {
    let of = |on_missing, request: Request| key_or(&[field("h")], on_missing, &request);
    assert_eq!(of(OnMissingKey::Skip, Request::new()), Key::Skip);
    assert_eq!(of(OnMissingKey::Refuse, Request::new()), Key::Refuse);
    let shared = |request| of(OnMissingKey::Shared, request);
    assert_eq!(shared(Request::new()), shared(Request::new().from("::1")));
    assert_ne!(
        shared(Request::new()),
        shared(Request::new().field("h", "1"))
    );
}

#[test]
fn a_constant_that_stands_in_is_the_value_itself_as_that_part_spells_it() {
    let of = |part: KeyPart, value: &str, request: &Request| {
        key_or(&[part, ADDRESS], OnMissingKey::Value(value.into()), request)
    };
    let new = Request::new;
    let fields = [
        (field("h"), "free", new().field("h", "free")),
        (
            field("authorization"),
            "bearer  a",
            new().field("authorization", "Bearer a"),
        ),
        (
            field("authorization"),
            "FREE",
            new().field("authorization", "free"),
        ),
        (query("q"), "a b", new().query("q=a%20b")),
        (cookie("c"), "free", new().field("cookie", "c=free")),
        (segment(1), "free", new().path("/a/free")),
    ];
    for (part, value, sent) in fields {
        let missing = new().path("/a");
        let stood_in = of(part.clone(), value, &missing);
        assert_eq!(stood_in, of(part.clone(), value, &sent), "{part}");
        assert_ne!(stood_in, of(part.clone(), "other", &missing), "{part}");
    }
    let several = new().field("h", "free").field("h", "other");
    assert_eq!(of(field("h"), "free", &several), Key::Refuse);
}

#[test]
fn keys_do_not_collide_by_concatenation() {
    let parts = [field("a"), field("b")];
    let of = |a, b| key(&parts, &Request::new().field("a", a).field("b", b));
    assert_ne!(of("12", "3"), of("1", "23"));
    assert_ne!(of("1", "2"), of("2", "1"));
    let shared = |request: Request| key_or(&parts, OnMissingKey::Shared, &request);
    let [a, b] = ["a", "b"].map(|name| shared(Request::new().field(name, "1")));
    assert_ne!(a, b);
}

#[test]
fn what_is_shown_is_what_is_counted() {
    let shown = |on_missing, request: &Request| {
        let descriptor = Descriptor::new(vec![field("h"), ADDRESS], on_missing, 48);
        let parts = descriptor.describe(&request.head()).into_iter();
        let text = |part: PartDescription| {
            let value = part.value.as_deref().unwrap_or("-");
            format!("{}={value}", part.part)
        };
        parts.map(text).collect::<Vec<_>>().join(" ")
    };
    let request = Request::new().from("2001:db8:1:2:3::4");
    let chain = || OnMissingKey::Part(cookie("c"));
    assert_eq!(
        shown(chain(), &request),
        "header:h=- cookie:c=- client_ip=2001:db8:1::/48 client_ip=2001:db8:1:2::/64"
    );
    assert_eq!(
        shown(chain(), &request.clone().field("cookie", "c=1")),
        "header:h=- cookie:c=1 client_ip=2001:db8:1:2::/64"
    );
    assert_eq!(
        shown(OnMissingKey::Value("free".into()), &request),
        "header:h=- on_missing_key=free client_ip=2001:db8:1:2::/64"
    );
    assert_eq!(
        shown(OnMissingKey::Skip, &request.field("h", "7")),
        "header:h=7 client_ip=2001:db8:1:2::/64"
    );
    assert_eq!(
        shown(
            OnMissingKey::Skip,
            &Request::new().from("64:ff9b::203.0.113.5")
        ),
        "header:h=- client_ip=203.0.113.5"
    );
}

#[test]
fn clients_of_a_translator_have_the_keys_of_their_ipv4_addresses() {
    let of = |address| key(&[ADDRESS], &Request::new().from(address));
    assert_eq!(of("64:ff9b::203.0.113.5"), of("203.0.113.5"));
    assert_ne!(of("64:ff9b::203.0.113.5"), of("64:ff9b::203.0.113.6"));
    assert_eq!(of("64:ff9b::10.0.0.1"), of("64:ff9b::1"));
}

proptest! {
    #[test]
    fn a_parameter_has_one_key_however_it_is_encoded(value in "[a-z0-9 &=%+é]{1,12}") {
        let every: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let some = form_urlencoded::byte_serialize(value.as_bytes()).collect::<String>();
        let of = |encoded: &str| key(&[query("q")], &Request::new().query(&format!("q={encoded}")));
        prop_assert_eq!(of(&every), of(&some));
    }
}
