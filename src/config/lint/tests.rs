use super::*;
use crate::config::{Code, parse};

/// The printed warnings of a configuration with these routes.
fn warnings(routes: &str) -> String {
    let text = format!("upstreams: {{}}\nroutes:\n{routes}");
    let loaded = parse("test.yaml", text, &|_| None);
    let loaded = loaded.unwrap_or_else(|report| panic!("{report:?}"));
    lint(loaded, Timestamp::EPOCH).to_string()
}

#[test]
fn an_unreachable_route_is_reported_with_the_route_before_it() {
    let shown = warnings(
        "  - { name: all, match: { path: '/a/{id}', methods: [GET, POST] }, upstream: echo }\n\
         \x20 - { name: some, match: { path: '/a/{name}', methods: [POST] }, upstream: echo }\n",
    );
    assert!(shown.contains("unreachable-route"), "{shown}");
    assert!(
        shown.contains("`some` never takes a request: `all` is asked first"),
        "{shown}"
    );
    assert!(shown.contains("the route that takes them"), "{shown}");
}

#[test]
fn unreachable_routes_are_reported_beside_errors_elsewhere() {
    let routes = "routes:
  - { name: a, match: { path: /a }, upstream: echo }
  - { name: b, match: { path: /a }, upstream: nowhere, limits: [{ quota: 1 }] }
  - { name: c, match: { path: '/a/{' }, upstream: echo }
  - { name: d, match: { path: '/b/**' }, upstream: echo }
  - { name: e, mtach: { path: /b/c }, upstream: echo }
  - { name: f, match: { path: '/b/**', methods: [get] }, upstream: echo }
";
    let report = parse("test.yaml", routes.to_owned(), &|_| None).expect_err("it has errors");
    let shown = report.to_string();
    let hidden = shown.matches("unreachable-route").count();
    assert_eq!(hidden, 1, "{shown}");
    assert!(shown.contains("`b` never takes a request"), "{shown}");
    assert!(shown.contains("5 errors, 1 warning"), "{shown}");
}

#[test]
fn different_routes_get_no_warning() {
    let shown = warnings(
        "  - { match: { path: /a, methods: [GET] }, upstream: echo }\n\
         \x20 - { match: { path: /a }, upstream: echo }\n\
         \x20 - { match: { path: '/**' }, upstream: echo }\n",
    );
    assert!(!shown.contains("unreachable-route"), "{shown}");
}

/// Tells which of `tight` and `wide` is said to never refuse, on these routes.
fn shielded(routes: &str) -> [bool; 2] {
    let text =
        format!("policies:\n  tight: {{ quota: 50/1h }}\n  wide: {{ quota: 90/1h }}\n{routes}");
    let loaded = parse("test.yaml", text, &|_| None);
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    let report = lint(loaded, Timestamp::EPOCH);
    ["policies.tight.quota", "policies.wide.quota"].map(|path| {
        let mut found = report.reported().iter();
        found.any(|problem| problem.code == Code::NeverRefuses && problem.path == path)
    })
}

#[test]
fn a_policy_is_shielded_by_another_that_applies_wherever_it_does() {
    let a = "{ match: { path: /a }, upstream: echo, limits: ";
    let b = "{ match: { path: /b }, upstream: echo, limits: ";
    for (routes, is_shielded) in [
        (
            format!("routes: [{a} [wide, tight] }}, {b} [tight, wide] }}]"),
            true,
        ),
        (
            format!("routes: [{a} [wide, tight] }}, {b} [wide] }}]"),
            false,
        ),
        (
            format!("limits: [tight]\nroutes: [{a} [wide] }}, {b} [wide] }}]"),
            true,
        ),
        (
            format!("limits: [tight]\nroutes: [{a} [wide] }}, {b} [wide], inherit: false }}]"),
            false,
        ),
        (
            format!(
                "limits: [tight]\nroutes: [{a} [wide] }}, {b} [wide, tight], inherit: false }}]"
            ),
            true,
        ),
        (
            format!("limits: [wide]\nroutes: [{a} [tight] }}, {b} [tight] }}]"),
            false,
        ),
        (
            format!("limits: [wide, tight]\nroutes: [{a} [] }}, {b} [] }}]"),
            true,
        ),
    ] {
        assert_eq!(shielded(&routes), [false, is_shielded], "{routes}");
    }
}

/// Comparing all pairs on all routes, or listing the policies of each, would take hours here, and
/// gigabytes.
#[test]
fn many_policies_on_many_routes_are_looked_at_without_listing_all_pairs() {
    const MANY: usize = 2_000;
    let policies = (0..MANY).map(|n| format!("  p{n}: {{ quota: {}/1h }}\n", n + 1));
    let names: Vec<_> = (0..MANY).map(|n| format!("p{n}")).collect();
    let routes = (0..MANY).map(|n| format!("  - {{ match: {{ path: /{n} }}, upstream: echo }}\n"));
    let text = format!(
        "policies:\n{}limits: [{}]\nroutes:\n{}",
        policies.collect::<String>(),
        names.join(", "),
        routes.collect::<String>()
    );
    let loaded = parse("test.yaml", text, &|_| None);
    let found = lint_text(loaded.unwrap_or_else(|report| panic!("{report}")));
    let found = found.reported();
    let shielded = found.iter().filter(|one| one.code == Code::NeverRefuses);
    // The first is the tightest, and the file's first 1000 problems are reported.
    assert!(shielded.count() > 400, "{}", found.len());
}
