use std::net::IpAddr;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use ipnet::IpNet;
use proptest::prelude::*;

use super::*;
use crate::http::headers::Headers;
use crate::rules::{CaseSensitivity, PathMatch, Segment, StringPattern, TextList, TrailingSlash};

const PLAN: HeaderName = HeaderName::from_static("x-plan");

fn plan(value: &'static str) -> Condition {
    Condition::Value(
        KeyPart::Header(PLAN),
        StringMatcher::exact(value.as_bytes()),
    )
}

fn headers(plans: &[&'static str]) -> Headers {
    let fields = plans
        .iter()
        .map(|plan| (PLAN, HeaderValue::from_static(plan)));
    fields.collect()
}

/// A `GET` with these header fields, for this path, from this address.
fn head<'a>(headers: &'a Headers, path: &'a str, from: &str) -> Head<'a> {
    Head {
        method: &Method::GET,
        host: "a",
        path,
        query: None,
        headers,
        client_ip: from.parse().expect("an address"),
        local: None,
        scheme: None,
        token: None,
        body: None,
        client: None,
        is_any_target: false,
    }
}

fn applies(condition: &Condition, plans: &[&'static str]) -> bool {
    condition.applies(&head(&headers(plans), "/", "192.0.2.1"))
}

#[test]
fn a_field_has_the_value_and_no_other() {
    assert!(applies(&plan("gold"), &["gold"]));
    assert!(applies(&plan("gold"), &["gold", "gold"]));
    assert!(!applies(&plan("gold"), &["Gold"]));
    assert!(!applies(&plan("gold"), &[]));
}

#[test]
fn credentials_match_however_they_are_spelled() {
    let is_met = |pattern: StringPattern, value: &[u8]| {
        let matcher = StringMatcher::new(pattern, false).for_credentials();
        let condition = Condition::Value(KeyPart::field(AUTHORIZATION), matcher);
        let value = HeaderValue::from_bytes(value).expect("a field's value");
        let headers = Headers::from_iter([(AUTHORIZATION, value)]);
        condition.is_certain(&head(&headers, "/", "192.0.2.1"))
    };
    let listed = |text: &str| StringPattern::Listed(TextList::new(["x", text].into_iter(), false));
    let regex = |text| StringPattern::Regex(LinearRegex::new(text, false).expect("a regex"));
    let patterns = [
        StringPattern::Exact(b"Bearer k"[..].into()),
        StringPattern::Exact(b"BEARER\tk"[..].into()),
        StringPattern::Prefix(b"Bearer k"[..].into()),
        StringPattern::Prefix(b"Bearer "[..].into()),
        StringPattern::Suffix(b" k"[..].into()),
        StringPattern::Contains(b"Bearer k"[..].into()),
        listed("Bearer k"),
        listed("ApiKey k"),
        regex("^Bearer k$"),
        regex("^bearer +k$"),
    ];
    for (place, pattern) in patterns.into_iter().enumerate() {
        for scheme in ["Bearer", "bearer", "bEARER"] {
            for rest in [
                &b" k"[..],
                b"\tk",
                b" \t k\t",
                b"\xa0k",
                b"\x85k",
                b"\xc2\xa0k",
                b" k x",
            ] {
                let value = [scheme.as_bytes(), rest].concat();
                let met = is_met(pattern.clone(), &value);
                assert_eq!(met, place != 7, "{pattern:?} {}", value.escape_ascii());
            }
        }
        assert!(!is_met(pattern.clone(), b"Bearerk"), "{pattern:?}");
        assert_eq!(
            is_met(pattern.clone(), b"apikey\tk"),
            [4, 7].contains(&place),
            "{pattern:?}"
        );
    }
}

#[test]
fn a_repeated_field_frees_nobody_whether_the_condition_asks_for_it_or_against_it() {
    let both = ["gold", "free"];
    let not = |condition| Condition::Not(Box::new(condition));
    for condition in [
        plan("gold"),
        not(plan("gold")),
        not(not(plan("gold"))),
        Condition::Any(vec![
            Condition::Method(vec![Method::PUT].into()),
            plan("free"),
        ]),
        Condition::All(vec![
            Condition::Method(vec![Method::GET].into()),
            not(plan("free")),
        ]),
    ] {
        assert!(applies(&condition, &both), "{condition:?}");
    }
    let elsewhere = Condition::All(vec![
        plan("gold"),
        Condition::Method(vec![Method::PUT].into()),
    ]);
    assert!(
        !applies(&elsewhere, &both),
        "it isn't a PUT, whatever the plan"
    );
}

#[test]
fn a_path_is_read_as_its_route_reads_it() {
    let pattern = || PathPattern {
        segments: vec![Segment::Literal("Login".to_owned())],
        is_prefix: false,
    };
    let strict = Condition::Path(PathCondition::new(pattern(), PathEquivalence::default()));
    let form = PathEquivalence {
        case: CaseSensitivity::Insensitive,
        trailing_slash: TrailingSlash::Ignore,
        path_match: PathMatch::Exact,
    };
    let lenient = Condition::Path(PathCondition::new(pattern(), form));
    let none = Headers::new();
    for (path, by_strict, by_lenient) in [
        ("/Login", true, true),
        ("/login", false, true),
        ("/LOGIN/", false, true),
        ("/Login/", false, true),
        ("/Login/x", false, false),
        ("/", false, false),
    ] {
        let head = head(&none, path, "192.0.2.1");
        assert_eq!(strict.applies(&head), by_strict, "{path}");
        assert_eq!(lenient.applies(&head), by_lenient, "{path}");
    }
}

#[test]
fn a_client_is_in_one_of_the_networks_of_its_family() {
    let network = |text: &str| text.parse::<IpNet>().expect("a network");
    let ours = [network("10.0.0.0/8"), network("2001:db8::/32")];
    let ours = Condition::ClientIp(ours.into_iter().collect());
    let none = Headers::new();
    for (from, within) in [
        ("10.255.0.1", true),
        ("11.0.0.1", false),
        ("2001:db8::7", true),
        ("2001:db9::7", false),
        ("::a00:1", false),
    ] {
        assert_eq!(ours.applies(&head(&none, "/", from)), within, "{from}");
    }
}

/// Conditions of any shape, whose leaves ask about the method, the plan and the address.
fn any_condition() -> impl Strategy<Value = Condition> {
    let network = |text: &str| {
        let network: IpNet = text.parse().expect("a network");
        Condition::ClientIp(std::iter::once(network).collect())
    };
    let leaf = prop_oneof![
        Just(Condition::Method(vec![Method::GET].into())),
        Just(Condition::Method(vec![Method::PUT, Method::POST].into())),
        Just(plan("gold")),
        Just(plan("free")),
        Just(network("192.0.2.0/24")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let list = proptest::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            list.clone().prop_map(Condition::Any),
            list.prop_map(Condition::All),
            inner.prop_map(|condition| Condition::Not(Box::new(condition))),
        ]
    })
}

/// The same in two values, for requests of which all is known.
fn model(condition: &Condition, method: &Method, given: Option<&str>, from: IpAddr) -> bool {
    let of = |condition: &Condition| model(condition, method, given, from);
    match condition {
        Condition::Method(methods) => methods.contains(method),
        Condition::Value(_, value) => given.is_some_and(|given| value.matches(given.as_bytes())),
        Condition::ClientIp(networks) => networks.contains(from),
        Condition::Any(list) => list.iter().any(of),
        Condition::All(list) => list.iter().all(of),
        Condition::Not(condition) => !of(condition),
        _ => unreachable!("no leaf asks for it"),
    }
}

proptest! {
    /// Where every field has one value at most, it is plain logic; and a request with two values is
    /// in every limit that it would be in with either of them.
    #[test]
    fn a_limit_applies_as_logic_says_and_to_the_ambiguous_if_to_any_reading(
        condition in any_condition(),
        method in prop_oneof![Just(Method::GET), Just(Method::PUT), Just(Method::PATCH)],
        from in prop_oneof![Just("192.0.2.1"), Just("198.51.100.1")],
    ) {
        let from: IpAddr = from.parse().expect("an address");
        let applies = |plans: &[&'static str]| {
            let headers = headers(plans);
            let text = from.to_string();
            condition.applies(&Head { method: &method, ..head(&headers, "/", &text) })
        };
        for given in [None, Some("gold"), Some("free")] {
            let expected = model(&condition, &method, given, from);
            prop_assert_eq!(applies(given.as_slice()), expected);
        }
        if applies(&["gold"]) || applies(&["free"]) {
            prop_assert!(applies(&["gold", "free"]));
        }
    }

    /// A limit that some request of a client would meet is one that the client may ask about.
    #[test]
    fn a_condition_for_any_target_applies_if_it_does_for_one(
        condition in any_condition(),
        method in prop_oneof![Just(Method::GET), Just(Method::PUT), Just(Method::PATCH)],
        given in prop_oneof![Just(None), Just(Some("gold")), Just(Some("free"))],
    ) {
        let headers = headers(given.as_slice());
        let head = |method| Head { method, ..head(&headers, "/", "192.0.2.1") };
        if condition.applies(&head(&method)) {
            let any = Head { is_any_target: true, ..head(&Method::HEAD) };
            prop_assert!(condition.applies(&any));
        }
    }
}

#[test]
fn an_expression_takes_the_spellings_of_a_path_that_the_route_treats_as_equal() {
    let lenient = PathEquivalence {
        case: CaseSensitivity::Insensitive,
        trailing_slash: TrailingSlash::Ignore,
        ..PathEquivalence::default()
    };
    for (text, form, taken, not) in [
        (
            "^/v[0-9]+/",
            PathEquivalence::default(),
            &["/v1/", "/v12/a/"][..],
            &["/V1/a", "/v1", "/a/v1/"][..],
        ),
        (
            "login$",
            PathEquivalence::default(),
            &["/a/login"],
            &["/a/login/", "/login/x"],
        ),
        ("^/v[0-9]+/A$", lenient, &["/v1/A", "/V1/a/"], &["/v1/a/b"]),
        ("^/v1/$", lenient, &["/v1", "/v1/"], &["/v11"]),
        (".", lenient, &["/", "/a"], &["*"]),
    ] {
        let condition = PathCondition::regex(text, form).expect("an expression");
        let condition = Condition::Path(condition);
        let headers = headers(&[]);
        let is_met = |path: &str| condition.is_certain(&head(&headers, path, "192.0.2.1"));
        assert!(taken.iter().all(|path| is_met(path)), "{text}");
        assert!(!not.iter().any(|path| is_met(path)), "{text}");
    }
    let error = PathCondition::regex("a(", lenient).expect_err("an error");
    assert_eq!(error, "unclosed group");
}
