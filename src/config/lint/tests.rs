use super::*;
use crate::config::parse;

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
