use http::Method;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;
use crate::http::headers::Headers;
use crate::rules::{
    CaseSensitivity, PathCondition, PathEquivalence, PathMatch, StringMatcher, TrailingSlash,
};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const PLAN: HeaderName = HeaderName::from_static("x-plan");

fn network(text: &str) -> Selection {
    Selection::Clients(Selector::Network(text.parse().expect("a network")))
}

fn value(text: &str) -> Selection {
    Selection::Clients(Selector::Value(KeyPart::Header(API_KEY), text.to_owned()))
}

fn prefix(text: &str) -> Selection {
    Selection::Clients(Selector::Prefix(KeyPart::Header(API_KEY), text.to_owned()))
}

/// Requests with this plan, of these clients or of all.
fn plan(text: &str, clients: Option<Selection>) -> Selection {
    let when = Condition::Value(KeyPart::Header(PLAN), StringMatcher::exact(text.as_bytes()));
    let clients = clients.map(|clients| match clients {
        Selection::Clients(selector) => selector,
        Selection::When(..) => panic!("one condition only"),
    });
    Selection::When(when, clients)
}

/// What is excepted about a request for `path` from there with these fields.
fn found(
    exceptions: &Exceptions,
    path: &str,
    fields: &[(HeaderName, &str)],
    from: &str,
) -> Option<Exception> {
    found_under(exceptions, path, fields, from, false)
}

fn found_under(
    exceptions: &Exceptions,
    path: &str,
    fields: &[(HeaderName, &str)],
    from: &str,
    is_any_target: bool,
) -> Option<Exception> {
    let field = |(name, value): &(HeaderName, &str)| {
        let value = HeaderValue::from_str(value).expect("a value");
        (name.clone(), value)
    };
    let headers: Headers = fields.iter().map(field).collect();
    exceptions.find(&Head {
        method: &Method::GET,
        host: "api.example.com",
        path,
        query: None,
        headers: &headers,
        client_ip: from.parse().expect("an address"),
        local: None,
        scheme: None,
        token: None,
        body: None,
        client: None,
        is_any_target,
    })
}

fn overrides(list: Vec<Selection>) -> Exceptions {
    exceptions(Vec::new(), list).expect("there are some")
}

fn exceptions(exempt: Vec<Selection>, overrides: Vec<Selection>) -> Option<Exceptions> {
    let [exempt, overrides] = [exempt, overrides].map(|list| Arc::new(Selectors::new(list)));
    Exceptions::new(Arc::default(), exempt, overrides)
}

#[test]
fn without_exceptions_there_is_nothing_to_ask() {
    assert_eq!(exceptions(Vec::new(), Vec::new()), None);
}

#[test]
fn the_closest_override_is_taken_and_an_exemption_goes_before_all() {
    let list = vec![
        network("10.0.0.0/8"),
        network("10.1.0.0/16"),
        prefix("part"),
        prefix("partner-"),
        value("partner-7"),
    ];
    let exempt = vec![value("partner-1"), network("10.2.0.0/16")];
    let exceptions = exceptions(exempt, list);
    let exceptions = exceptions.expect("there are some");
    for (key, from, expected) in [
        ("partner-7", "10.1.0.1", Some(Exception::Override(4))),
        ("partner-8", "10.1.0.1", Some(Exception::Override(3))),
        ("party", "10.1.0.1", Some(Exception::Override(2))),
        ("other", "10.1.0.1", Some(Exception::Override(1))),
        ("other", "10.9.0.1", Some(Exception::Override(0))),
        ("other", "11.0.0.1", None),
        ("partner-1", "10.1.0.1", Some(Exception::Exempt)),
        ("partner-7", "10.2.0.1", Some(Exception::Exempt)),
        ("Partner-7", "11.0.0.1", None),
    ] {
        let found = found(&exceptions, "/", &[(API_KEY, key)], from);
        assert_eq!(found, expected, "{key} from {from}");
    }
}

#[test]
fn the_closest_override_holds_whatever_part_it_names() {
    let of = |part: KeyPart, text: &str| Selector::Value(part, text.to_owned());
    let starting = |part: KeyPart, text: &str| Selector::Prefix(part, text.to_owned());
    let user = || KeyPart::Header(HeaderName::from_static("x-user"));
    let key = || KeyPart::Header(API_KEY);
    let list = [
        starting(key(), "free-"),
        starting(user(), "paid-gold-"),
        of(user(), "suspended"),
        of(key(), "free-1"),
    ];
    let exceptions = overrides(list.map(Selection::Clients).into());
    for (key, user, expected) in [
        ("free-2", "paid-gold-2", 1),
        ("free-1", "suspended", 2),
        ("free-2", "suspended", 2),
        ("free-1", "paid-gold-1", 3),
        ("free-2", "other", 0),
    ] {
        let fields = [(API_KEY, key), (HeaderName::from_static("x-user"), user)];
        let found = found(&exceptions, "/", &fields, "192.0.2.1");
        assert_eq!(found, Some(Exception::Override(expected)), "{key} {user}");
    }
}

#[test]
fn who_gives_two_values_has_neither() {
    let exceptions = overrides(vec![value("a"), prefix("b")]);
    let of = |fields: &[_]| found(&exceptions, "/", fields, "192.0.2.1");
    assert_eq!(
        of(&[(API_KEY, "a"), (API_KEY, "a")]),
        Some(Exception::Override(0))
    );
    assert_eq!(of(&[(API_KEY, "a"), (API_KEY, "b")]), None);
    assert_eq!(of(&[]), None);
}

#[test]
fn credentials_paths_and_hosts_are_compared_as_they_are_hashed() {
    let form = PathEquivalence {
        case: CaseSensitivity::Insensitive,
        trailing_slash: TrailingSlash::Ignore,
        path_match: PathMatch::Exact,
    };
    let authorization = KeyPart::field(AUTHORIZATION);
    let list = [
        Selector::Value(authorization, "Bearer AbC".to_owned()),
        Selector::Value(KeyPart::Path(form), "/Users/".to_owned()),
        Selector::Prefix(KeyPart::Path(form), "/Admin/".to_owned()),
        Selector::Value(KeyPart::Host, "Other.example.com".to_owned()),
    ];
    let exceptions = overrides(list.map(Selection::Clients).into());
    for (authorization, path, expected) in [
        ("Bearer AbC", "/", Some(0)),
        ("bEARER   AbC", "/", Some(0)),
        ("Bearer\tAbC", "/", Some(0)),
        ("Bearer \t AbC", "/", Some(0)),
        ("Bearer abc", "/", None),
        ("", "/users", Some(1)),
        ("", "/USERS/", Some(1)),
        ("", "/ADMIN/x", Some(2)),
        ("", "/administration", None),
    ] {
        let fields = [(AUTHORIZATION, authorization)];
        let found = found(&exceptions, path, &fields, "192.0.2.1");
        assert_eq!(
            found,
            expected.map(Exception::Override),
            "{authorization} {path}"
        );
    }
}

#[test]
fn an_exception_with_a_condition_goes_first_and_must_certainly_be_met() {
    let exceptions = overrides(vec![
        value("partner-7"),
        plan("gold", Some(network("10.0.0.0/8"))),
        plan("gold", Some(prefix("partner-"))),
        plan("gold", None),
    ]);
    for (key, plans, from, expected) in [
        ("partner-7", &["gold"][..], "10.0.0.1", Some(1)),
        ("partner-7", &["gold"], "11.0.0.1", Some(2)),
        ("other", &["gold", "gold"], "11.0.0.1", Some(3)),
        ("partner-7", &["silver"], "10.0.0.1", Some(0)),
        ("other", &["silver"], "10.0.0.1", None),
        ("other", &[], "10.0.0.1", None),
        // Which plan the upstream uses is unknown.
        ("other", &["gold", "silver"], "10.0.0.1", None),
        ("partner-7", &["gold", "silver"], "10.0.0.1", Some(0)),
    ] {
        let plans = plans.iter().map(|plan| (PLAN, *plan));
        let fields: Vec<_> = plans.chain([(API_KEY, key)]).collect();
        let found = found(&exceptions, "/", &fields, from);
        assert_eq!(
            found,
            expected.map(Exception::Override),
            "{fields:?} {from}"
        );
    }
    let inputs: Vec<_> = exceptions.inputs().map(|part| part.to_string()).collect();
    assert_eq!(
        inputs,
        [
            "header:x-api-key",
            "header:x-plan",
            "header:x-plan",
            "header:x-api-key",
            "header:x-plan"
        ]
    );
}

#[test]
fn a_path_that_is_not_known_yet_meets_no_condition() {
    let condition = |path| {
        let path = PathCondition::regex(path, PathEquivalence::default());
        Condition::Path(path.expect("an expression"))
    };
    let exceptions = overrides(vec![
        Selection::When(Condition::Not(Box::new(condition("^/x"))), None),
        value("partner-7"),
    ]);
    let fields = [(API_KEY, "partner-7")];
    let of = |is_any| found_under(&exceptions, "/status", &fields, "192.0.2.1", is_any);
    assert_eq!(of(false), Some(Exception::Override(0)));
    assert_eq!(of(true), Some(Exception::Override(1)));
}

proptest! {
    /// Of all that fit, the value, else the longest prefix, whatever the order they are written in.
    #[test]
    fn the_longest_of_what_fits_is_found(
        list in proptest::collection::btree_set("[ab]{0,3}", 0..8),
        exact in proptest::collection::btree_set("[ab]{1,3}", 0..4),
        key in "[ab]{1,4}",
    ) {
        let selectors: Vec<_> = list.iter().map(|text| prefix(text)).chain(exact.iter().map(|text| value(text))).collect();
        prop_assume!(!selectors.is_empty());
        let expected = match exact.iter().position(|text| *text == key) {
            Some(place) => Some(list.len() + place),
            None => {
                let fits = list.iter().enumerate().filter(|(_, text)| key.starts_with(text.as_str()));
                fits.max_by_key(|(_, text)| text.len()).map(|(place, _)| place)
            }
        };
        let found = found(&overrides(selectors), "/", &[(API_KEY, &key)], "192.0.2.1");
        prop_assert_eq!(found, expected.map(|place| Exception::Override(place as u32)));
    }
}
