use http::{HeaderName, HeaderValue, Method};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::http::headers::Headers;
use crate::rules::{CaseSensitivity, Condition, KeyPart, PathMatch, StringMatcher, TrailingSlash};

/// A route for `[METHOD[,METHOD] ][HOST]PATH[?NAME=VALUE]`; `~` in front: any case; `+`: any slash;
/// `%`: loose.
fn route(text: &str) -> RouteMatch {
    let mut route = RouteMatch::default();
    let text = match text.strip_prefix('~') {
        Some(rest) => {
            route.form.case = CaseSensitivity::Insensitive;
            rest
        }
        None => text,
    };
    let text = match text.strip_prefix('+') {
        Some(rest) => {
            route.form.trailing_slash = TrailingSlash::Ignore;
            rest
        }
        None => text,
    };
    let text = match text.strip_prefix('%') {
        Some(rest) => {
            route.form.trailing_slash = TrailingSlash::Ignore;
            route.form.path_match = PathMatch::Loose;
            rest
        }
        None => text,
    };
    let (methods, text) = text.split_once(' ').unwrap_or(("", text));
    let methods = methods.split(',').filter(|method| !method.is_empty());
    let methods: Vec<_> = methods
        .map(|method| method.parse().expect("a method"))
        .collect();
    if !methods.is_empty() {
        route.conditions.push(Condition::Method(methods.into()));
    }
    let (target, query) = text.split_once('?').unwrap_or((text, ""));
    let query = query.split_once('=');
    route
        .conditions
        .extend(query.map(|(name, value)| parameter(name, value)));
    let (host, path) = target.split_at(target.find('/').expect("a path"));
    route.hosts = match host.strip_prefix("*.") {
        Some(domain) => vec![HostPattern::Subdomains(domain.to_owned())],
        None if host.is_empty() => Vec::new(),
        None => vec![HostPattern::Exact(host.to_owned())],
    };
    route.path = pattern(path);
    route
}

fn parameter(name: &str, value: &str) -> Condition {
    Condition::Value(
        KeyPart::Query(name.to_owned()),
        StringMatcher::exact(value.as_bytes()),
    )
}

fn pattern(path: &str) -> PathPattern {
    let (segments, rest) = match path.strip_suffix("/**") {
        Some(before) => (before, true),
        None => (path, false),
    };
    let segment = |text: &str| match text.strip_prefix('{') {
        Some(name) => Segment::Capture(name.trim_end_matches('}').to_owned()),
        None => Segment::Literal(text.to_owned()),
    };
    PathPattern {
        segments: segments.split('/').skip(1).map(segment).collect(),
        is_prefix: rest,
    }
}

/// The route of `texts` that takes this request.
fn taken<'t>(texts: &[&'t str], method: &Method, host: &str, target: &str) -> Option<&'t str> {
    let router = Router::new(texts.iter().map(|text| route(text)).collect());
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let head = Head {
        method,
        host,
        path,
        query,
        headers: &Headers::new(),
        client_ip: [127, 0, 0, 1].into(),
        local: None,
        scheme: None,
        token: None,
        body: None,
        client: None,
        is_any_target: false,
    };
    router.find(&head).map(|place| texts[place])
}

fn get<'t>(texts: &[&'t str], target: &str) -> Option<&'t str> {
    taken(texts, &Method::GET, "a.example", target)
}

#[test]
fn an_exact_host_goes_before_a_wildcard_before_none() {
    let all = ["/x", "*.example/x", "*.b.example/x", "a.b.example/**"];
    let on = |texts: &[&'static str], host| taken(texts, &Method::GET, host, "/x");
    assert_eq!(on(&all, "a.b.example"), Some("a.b.example/**"));
    assert_eq!(on(&all, "c.b.example"), Some("*.b.example/x"));
    assert_eq!(on(&all, "d.c.b.example"), Some("*.b.example/x"));
    assert_eq!(on(&all, "b.example"), Some("*.example/x"));
    assert_eq!(on(&all, "example"), Some("/x"));
    assert_eq!(on(&all, "xexample"), Some("/x"));
    assert_eq!(on(&all, ""), Some("/x"));
    assert_eq!(on(&all[1..], "example"), None);
}

#[test]
fn a_host_whose_paths_do_not_fit_leaves_the_request_to_the_next() {
    let all = ["a.example/other", "*.example/too", "/x"];
    assert_eq!(get(&all, "/x"), Some("/x"));
    assert_eq!(get(&all, "/too"), Some("*.example/too"));
}

#[test]
fn an_exact_path_goes_before_a_capture_before_a_prefix() {
    let all = ["/a/**", "/a/{x}", "/a/b"];
    assert_eq!(get(&all, "/a/b"), Some("/a/b"));
    assert_eq!(get(&all, "/a/c"), Some("/a/{x}"));
    assert_eq!(get(&all, "/a/b/c"), Some("/a/**"));
    assert_eq!(get(&all, "/a"), Some("/a/**"));
    assert_eq!(get(&all, "/a/"), Some("/a/**"));
    assert_eq!(get(&all, "/ab"), None);
}

#[test]
fn a_longer_prefix_goes_before_a_shorter_and_fewer_captures_before_more() {
    let all = ["/**", "/{x}/b/**", "/a/**", "/a/b/**", "/{x}/{y}/**"];
    assert_eq!(get(&all, "/a/b/c"), Some("/a/b/**"));
    assert_eq!(get(&all, "/c/b/c"), Some("/{x}/b/**"));
    assert_eq!(get(&all, "/c/d"), Some("/{x}/{y}/**"));
    assert_eq!(get(&all, "/a"), Some("/a/**"));
    assert_eq!(get(&all, "/"), Some("/**"));
}

#[test]
fn more_conditions_go_before_fewer_and_what_does_not_fit_falls_through() {
    let all = ["/a", "GET /a", "GET /a?q=1", "POST /a"];
    assert_eq!(get(&all, "/a?q=1"), Some("GET /a?q=1"));
    assert_eq!(get(&all, "/a?q=2"), Some("GET /a"));
    assert_eq!(get(&all, "/a?q=1&q=1"), Some("GET /a?q=1"));
    assert_eq!(get(&all, "/a?q=1&q=2"), Some("GET /a"));
    assert_eq!(get(&all, "/a?%71=%31"), Some("GET /a?q=1"));
    assert_eq!(taken(&all, &Method::PUT, "a.example", "/a?q=1"), Some("/a"));
    // Conditions that are not met hide no other path.
    assert_eq!(get(&["POST /a", "/{x}", "/**"], "/a"), Some("/{x}"));
}

#[test]
fn equal_routes_are_asked_in_the_order_of_the_file() {
    assert_eq!(get(&["/{x}/b", "/a/{y}"], "/a/b"), Some("/{x}/b"));
    assert_eq!(get(&["/a/{y}", "/{x}/b"], "/a/b"), Some("/a/{y}"));
}

#[test]
fn case_and_trailing_slash_count_unless_the_route_says_otherwise() {
    assert_eq!(get(&["/login"], "/Login"), None);
    assert_eq!(get(&["~/login"], "/LOGIN"), Some("~/login"));
    assert_eq!(get(&["~/Login"], "/lOGIN"), Some("~/Login"));
    assert_eq!(get(&["/login"], "/login/"), None);
    assert_eq!(get(&["/login/"], "/login"), None);
    for texts in [["+/login"], ["+/login/"], ["~+/Login"]] {
        assert_eq!(get(&texts, "/login"), Some(texts[0]));
        assert_eq!(get(&texts, "/login/"), Some(texts[0]));
        assert_eq!(get(&texts, "/login/x"), None);
    }
    assert_eq!(get(&["+/"], "/"), Some("+/"));
}

#[test]
fn a_loose_route_takes_what_some_servers_take_for_its_path() {
    for path in [
        "/a/login",
        "/a/login/",
        "/a;x/login;y=1",
        "/a/login%20",
        "/a./login..;x/",
        "/;x/a/;y/login/;z",
        "/a/.../login",
    ] {
        assert_eq!(get(&["%/a/login"], path), Some("%/a/login"), "{path}");
        let canonical = route("%/a/login").form.canonical(path).into_owned();
        assert_eq!(canonical, "/a/login", "{path}");
    }
    for path in ["/a/logins", "/a/Login", "/a/login/x", "/a/%20x/login", "/"] {
        assert_eq!(get(&["%/a/login"], path), None, "{path}");
    }
    assert_eq!(get(&["~%/Login"], "/LOGIN;x"), Some("~%/Login"));
    assert_eq!(get(&["%/a/**"], "/a;x"), Some("%/a/**"));
    assert_eq!(get(&["%/{x}"], "/;x"), None);
    let form = route("%/").form;
    assert_eq!(form.segment("/;x/users;y/7.", 1).as_deref(), Some("7"));
}

#[test]
fn no_empty_segment_is_captured() {
    assert_eq!(get(&["/{x}"], "/"), None);
    assert_eq!(get(&["/a/{x}"], "/a/"), None);
    assert_eq!(get(&["/a/{x}/**"], "/a/"), None);
    assert_eq!(get(&["/a/{x}/"], "/a/b/"), Some("/a/{x}/"));
}

#[test]
fn the_whole_server_is_for_who_takes_every_path() {
    assert_eq!(get(&["/{x}", "/*", "/**"], "*"), Some("/**"));
    assert_eq!(get(&["/{x}", "/*", "/a/**"], "*"), None);
}

/// What is said of the routes that are asked first, for a GET.
fn lacking<'t>(texts: &[&'t str], host: &str, path: &str) -> Vec<(&'t str, String)> {
    let router = Router::new(texts.iter().map(|text| route(text)).collect());
    let head = Head {
        method: &Method::GET,
        host,
        path,
        query: None,
        headers: &Headers::new(),
        client_ip: [127, 0, 0, 1].into(),
        local: None,
        scheme: None,
        token: None,
        body: None,
        client: None,
        is_any_target: false,
    };
    let mismatches = router.mismatches(&head).into_iter();
    mismatches
        .map(|(place, mismatch)| (texts[place], mismatch.to_string()))
        .collect()
}

#[test]
fn what_routes_lack_is_said_in_the_order_in_which_they_are_asked() {
    let texts = ["/**", "/x?q=1", "POST /x", "/y", "*.b/x", "b.example/x"];
    assert_eq!(
        lacking(&texts, "a.example", "/x"),
        [
            ("b.example/x", "another host".to_owned()),
            ("*.b/x", "another host".to_owned()),
            ("/x?q=1", "query:q is absent, or another".to_owned()),
            ("POST /x", "another method".to_owned()),
            ("/y", "another path".to_owned()),
        ]
    );
    assert_eq!(lacking(&texts[..1], "a.example", "/x"), []);
    assert_eq!(lacking(&texts, "b.example", "/x"), []);
}

#[test]
fn where_none_takes_a_request_every_route_lacks_something() {
    let texts = ["POST /x", "b.example/x"];
    assert_eq!(
        lacking(&texts, "a.example", "/x"),
        [
            ("b.example/x", "another host".to_owned()),
            ("POST /x", "another method".to_owned())
        ]
    );
}

/// Pairs of routes that take nothing, and those that take all of it.
fn hidden<'t>(texts: &[&'t str]) -> Vec<(&'t str, &'t str)> {
    let router = Router::new(texts.iter().map(|text| route(text)).collect());
    let pairs = router.unreachable().into_iter();
    pairs
        .map(|(hidden, taker)| (texts[hidden], texts[taker]))
        .collect()
}

#[test]
fn a_route_behind_its_like_takes_nothing() {
    assert_eq!(hidden(&["/{x}/a", "/{y}/a"]), [("/{y}/a", "/{x}/a")]);
    assert_eq!(
        hidden(&["GET,PUT /a", "PUT /a"]),
        [("PUT /a", "GET,PUT /a")]
    );
    assert_eq!(hidden(&["~/a", "/A"]), [("/A", "~/a")]);
    assert_eq!(hidden(&["*.a/**", "*.a/**"]).len(), 1);
    // A longer path is asked first, wherever it stands.
    assert_eq!(hidden(&["/a", "+/a/"]), [("/a", "+/a/")]);
}

#[test]
fn a_route_that_something_is_left_for_is_not_hidden() {
    for texts in [
        &["PUT /a", "GET,PUT /a"][..],
        &["/a", "GET /a"],
        &["/a?q=1", "/a?q=2"],
        &["/A", "~/a"],
        &["/a", "+/a"],
        &["/**", "/a/**"],
        &["*.a/x", "b.a/x", "/x"],
    ] {
        assert_eq!(hidden(texts), [], "{texts:?}");
    }
}

/// What configuration.md says of precedence, asked of every route in turn.
fn scan(routes: &[RouteMatch], head: &Head<'_>) -> Option<usize> {
    let takers = routes.iter().enumerate();
    let takers = takers.filter(|(_, route)| route.mismatch(head).is_none());
    let first = takers.min_by_key(|(place, route)| {
        let host = route.hosts.iter().filter_map(|host| match host {
            HostPattern::Exact(name) => (name == head.host).then_some((0, 0)),
            HostPattern::Subdomains(domain) => head
                .host
                .ends_with(&format!(".{domain}"))
                .then_some((1, usize::MAX - domain.len())),
        });
        let captures = route.path.segments.iter();
        let captures = captures
            .filter(|s| matches!(s, Segment::Capture(_)))
            .count();
        let class = match (route.path.is_prefix, captures) {
            (true, _) => 2,
            (false, 0) => 0,
            (false, _) => 1,
        };
        let length = usize::MAX - route.path.segments.len();
        let conditions = usize::MAX - route.conditions.len();
        (
            host.min().unwrap_or((2, 0)),
            class,
            length,
            captures,
            conditions,
            *place,
        )
    });
    first.map(|(place, _)| place)
}

fn some_route() -> impl Strategy<Value = RouteMatch> {
    let hosts = ["a", "b.a", "c.b.a", "*.a", "*.b.a"];
    let segment = select(vec!["x", "X", "y", "{p}"]);
    let path = (vec(segment, 0..4), select(vec!["", "/", "/**"]));
    let conditions = (
        subsequence(vec![Method::GET, Method::PUT], 0..=2),
        proptest::option::of(select(vec!["1", "2"])),
        proptest::option::of(select(vec!["1", "2"])),
    );
    let form = (any::<bool>(), any::<bool>(), any::<bool>());
    (subsequence(hosts.to_vec(), 0..=2), path, conditions, form).prop_map(
        |(hosts, (segments, end), (methods, field, parameter), (any_case, any_slash, loose))| {
            let below = |host: &str| match host.strip_prefix("*.") {
                Some(domain) => HostPattern::Subdomains(domain.to_owned()),
                None => HostPattern::Exact(host.to_owned()),
            };
            let path: String = segments.iter().map(|text| format!("/{text}")).collect();
            let mut route = RouteMatch {
                hosts: hosts.into_iter().map(below).collect(),
                path: pattern(&format!("{path}{end}")),
                ..RouteMatch::default()
            };
            if !methods.is_empty() {
                route.conditions.push(Condition::Method(methods.into()));
            }
            let name = HeaderName::from_static("h");
            route.conditions.extend(field.map(|value| {
                Condition::Value(
                    KeyPart::Header(name),
                    StringMatcher::exact(value.as_bytes()),
                )
            }));
            route
                .conditions
                .extend(parameter.map(|value| self::parameter("q", value)));
            if any_case {
                route.form.case = CaseSensitivity::Insensitive;
            }
            if loose {
                route.form.path_match = PathMatch::Loose;
            }
            if any_slash || loose {
                route.form.trailing_slash = TrailingSlash::Ignore;
            }
            route
        },
    )
}

type Request = (
    &'static str,
    String,
    Method,
    Option<&'static str>,
    Option<&'static str>,
);

fn some_request() -> impl Strategy<Value = Request> {
    (
        select(vec!["a", "b.a", "c.b.a", "d.c.b.a", "z", ""]),
        "(/([xXyz];?|;)){0,4}/?",
        select(vec![Method::GET, Method::PUT, Method::POST]),
        proptest::option::of(select(vec!["1", "2"])),
        proptest::option::of(select(vec!["q=1", "q=2", "q=1&q=1", ""])),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_router_finds_what_asking_every_route_finds(
        routes in vec(some_route(), 0..24),
        requests in vec(some_request(), 1..24),
    ) {
        let router = Router::new(routes.clone());
        let hidden: HashMap<_, _> = router.unreachable().into_iter().collect();
        for (host, path, method, field, query) in &requests {
            let path = if path.is_empty() { "/" } else { path };
            let mut headers = Headers::new();
            headers.extend(field.map(|value| {
                (HeaderName::from_static("h"), HeaderValue::from_static(value))
            }));
            let client_ip = [127, 0, 0, 1].into();
            let head = Head { method, host, path, query: *query, headers: &headers, client_ip, local: None,
            scheme: None,
            token: None,
            body: None,
            client: None,
            is_any_target: false, };
            let found = router.find(&head);
            prop_assert_eq!(found, scan(&routes, &head));
            prop_assert!(!found.is_some_and(|place| hidden.contains_key(&place)));
            let lacking = router.mismatches(&head);
            prop_assert!(lacking.iter().all(|(place, _)| Some(*place) != found));
            prop_assert!(found.is_some() || lacking.len() == routes.len());
        }
    }
}

#[test]
fn get_leaves_head_to_a_route_that_names_it() {
    let taken = |routes: &[&str], path: &str| {
        let router = Router::new(routes.iter().map(|text| route(text)).collect());
        let headers = Headers::new();
        router.find(&Head {
            method: &Method::HEAD,
            host: "a",
            path,
            query: None,
            headers: &headers,
            client_ip: [127, 0, 0, 1].into(),
            local: None,
            scheme: None,
            token: None,
            body: None,
            client: None,
            is_any_target: false,
        })
    };
    assert_eq!(taken(&["GET /a", "/**"], "/a"), Some(0));
    assert_eq!(taken(&["PUT,POST /a", "/**"], "/a"), Some(1));
    assert_eq!(taken(&["GET /a", "HEAD /a", "/**"], "/a"), Some(1));
    assert_eq!(taken(&["GET /a", "PUT,HEAD /a"], "/a"), Some(1));
    // A route that takes some of them only, or other paths, leaves no hole.
    assert_eq!(taken(&["GET /a", "HEAD /a?q=1", "/**"], "/a"), Some(0));
    assert_eq!(taken(&["GET /a", "HEAD /**"], "/a"), Some(0));
    let router = Router::new(vec![route("GET /a"), route("HEAD /a")]);
    assert_eq!(router.unreachable(), []);
    let router = Router::new(vec![route("GET /a"), route("GET,HEAD /a"), route("GET /a")]);
    assert_eq!(router.unreachable(), [(2, 0)]);
}
