//! Rate-limit fields: several styles at once, custom names, and CORS.

use crate::support::client::{Connection, Response, curl, get, get_with};
use crate::support::gateway::Gateway;

/// A proxy with these `responses` and one limit of two an hour.
fn with(responses: &str) -> Gateway {
    Gateway::start(&format!(
        "responses: {responses}
policies: {{ two: {{ quota: 2/1h, algorithm: fixed_window, start: first_request }} }}
routes: [{{ name: all, upstream: echo, limits: [two] }}]
"
    ))
}

fn number(answer: &Response, name: &str) -> u64 {
    let value = answer.expect_header(name);
    value.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
}

#[test]
fn several_styles_stand_side_by_side_under_names_of_their_own() {
    let gateway = with(
        "{ headers: [ietf, draft-6, openai, { style: x-ratelimit, prefix: x-acme }, { style: github, prefix: gh }] }",
    );
    for (status, remaining) in [(200, "1"), (200, "0"), (429, "0")] {
        let answer = get(gateway.address(), "/");
        assert_eq!(answer.status, status);
        assert_eq!(
            answer.expect_header("ratelimit-policy"),
            "\"two\";q=2;w=3600"
        );
        for name in ["ratelimit", "x-acme", "gh"] {
            assert_eq!(answer.expect_header(&format!("{name}-limit")), "2");
            let left = answer.expect_header(&format!("{name}-remaining"));
            assert_eq!(left, remaining, "{name}");
        }
        assert_eq!(answer.expect_header("x-ratelimit-limit-requests"), "2");
        for name in ["ratelimit-reset", "x-acme-reset"] {
            assert!((3590..=3600).contains(&number(&answer, name)), "{name}");
        }
        assert!(number(&answer, "gh-reset") > 1_000_000_000, "since 1970");
        assert_eq!(answer.expect_header("gh-resource"), "two");
        assert_eq!(answer.header("x-ratelimit-limit"), None);
    }
}

#[test]
fn limits_bound_remaining_and_rates_are_exact() {
    let gateway = Gateway::start(
        "responses: { headers: [ietf, github] }
policies:
  burst: { quota: 10/1h, burst: 50 }
  short: { quota: 5/500ms, algorithm: fixed_window }
  none: { quota: 0/1h }
  banned: { quota: 2/1h, penalty: { strikes: 1, within: 1m, for: [5s] } }
routes:
  - { match: { path: /burst }, upstream: echo, limits: [burst] }
  - { match: { path: /short }, upstream: echo, limits: [short] }
  - { match: { path: /none }, upstream: echo, limits: [none] }
  - { match: { path: /banned }, upstream: echo, limits: [banned] }
",
    );
    let ask = |path| get(gateway.address(), path);
    let policy = |answer: &Response| answer.expect_header("ratelimit-policy").to_owned();
    for used in 1..=50 {
        let answer = ask("/burst");
        assert_eq!(number(&answer, "x-ratelimit-limit"), 50);
        assert_eq!(number(&answer, "x-ratelimit-remaining"), 50 - used);
        assert_eq!(number(&answer, "x-ratelimit-used"), used);
        assert_eq!(policy(&answer), "\"burst\";q=50;w=18000");
    }
    assert_eq!(ask("/burst").status, 429);
    assert_eq!(policy(&ask("/short")), "\"short\";q=10;w=1");

    let refused = ask("/none");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.expect_header("ratelimit"), "\"none\";r=0");
    for name in ["x-ratelimit-reset", "retry-after"] {
        assert_eq!(refused.header(name), None, "{name}");
    }

    let mut answers = (0..4).map(|_| ask("/banned"));
    let banned = answers.find(|answer| answer.status == 429).expect("a ban");
    let retry_after = number(&banned, "retry-after");
    assert!(retry_after > 5, "the bucket is empty for longer");
    let told = format!("\"banned\";r=0;t={retry_after}");
    assert_eq!(banned.expect_header("ratelimit"), told);
}

#[test]
fn requests_and_tokens_stand_side_by_side() {
    let gateway = Gateway::start(
        "responses: { headers: [openai, ietf] }
policies:
  calls: { quota: 3/6m }
  tokens: { unit: tokens, quota: 1000/1m, cost: { header: x-estimate, max: 1000 } }
  budget: { unit: tokens, quota: 5000/1m, cost: { header: x-estimate, max: 1000 } }
routes:
  - { match: { path: /both }, upstream: echo, limits: [calls, budget, tokens] }
  - { match: { path: /tokens }, upstream: echo, limits: [tokens] }
",
    );
    let ask = |path, estimate| {
        let field = format!("x-estimate: {estimate}\r\n");
        get_with(gateway.address(), path, &field)
    };
    let both = ask("/both", 600);
    for (name, value) in [
        ("x-ratelimit-limit-requests", "3"),
        ("x-ratelimit-remaining-requests", "2"),
        ("x-ratelimit-reset-requests", "2m0s"),
        ("x-ratelimit-limit-tokens", "1000"),
        ("x-ratelimit-remaining-tokens", "400"),
        ("x-ratelimit-reset-tokens", "36s"),
    ] {
        assert_eq!(both.expect_header(name), value, "{name}");
    }
    assert_eq!(
        both.expect_header("ratelimit-policy"),
        "\"calls\";q=3;w=360, \"budget\";q=5000;w=60;qu=\"tokens\", \"tokens\";q=1000;w=60;qu=\"tokens\""
    );
    let refused = ask("/both", 500);
    assert_eq!(refused.status, 429);
    assert_eq!(refused.expect_header("x-ratelimit-remaining-requests"), "2");
    let wait = refused.expect_header("x-ratelimit-reset-tokens");
    assert!(
        wait.starts_with("5.") || wait == "6s",
        "a tenth of a minute: {wait}"
    );
    let alone = ask("/tokens", 1);
    assert_eq!(alone.header("x-ratelimit-limit-requests"), None);
    assert_eq!(alone.expect_header("x-ratelimit-limit-tokens"), "1000");
}

#[test]
fn an_inline_limit_is_named_after_its_quota() {
    let config = |place: &str| {
        format!(
            "routes: [{{ name: all, upstream: echo, limits: [{place}{{ name: burst, quota: 2/1h }}] }}]\n"
        )
    };
    let gateway = Gateway::start(&config(""));
    let first = get(gateway.address(), "/");
    assert_eq!(
        first.expect_header("ratelimit-policy"),
        "\"burst\";q=2;w=3600"
    );
    gateway.reload(&config("{ quota: 1000/1h }, "));
    let second = get(gateway.address(), "/");
    let told = second.expect_header("ratelimit");
    assert!(
        told.contains("\"burst\";r=0;"),
        "found again by name: {told}"
    );
}

#[test]
fn draft_7_reports_the_deciding_limit() {
    let gateway = with("{ headers: [draft-7] }");
    let answer = get(gateway.address(), "/");
    assert_eq!(answer.expect_header("ratelimit-policy"), "2;w=3600");
    let told = answer.expect_header("ratelimit");
    let reset = told.strip_prefix("limit=2, remaining=1, reset=");
    let reset: u64 = reset.and_then(|text| text.parse().ok()).expect(told);
    assert!((3590..=3600).contains(&reset), "{told}");
}

#[test]
fn cors_exposes_the_fields_to_scripts() {
    const EXPOSE: &str = "access-control-expose-headers";
    let gateway = with(
        "{ headers: [ietf, { style: x-ratelimit, prefix: a }], cors: { expose_headers: true } }",
    );
    for status in [200, 200, 429] {
        let answer = get(gateway.address(), "/");
        assert_eq!(answer.status, status);
        assert_eq!(
            answer.expect_header(EXPOSE),
            "retry-after, ratelimit-policy, ratelimit, a-limit, a-remaining, a-reset"
        );
    }
    assert_eq!(get(with("{}").address(), "/").header(EXPOSE), None);
}

#[test]
fn a_cors_preflight_can_be_exempt() {
    let preflight = |gateway: &Gateway| {
        Connection::open(gateway.address()).exchange(
            "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: https://b.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n",
        )
    };
    let gateway = with("{ cors: { limit_preflight: false } }");
    for _ in 0..5 {
        let answer = preflight(&gateway);
        assert_eq!((answer.status, answer.header("ratelimit")), (200, None));
    }
    let output = curl(&[
        "-X",
        "OPTIONS",
        "-H",
        "Origin: https://b.example",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        &gateway.url("/"),
        &gateway.url("/"),
        &gateway.url("/"),
    ]);
    assert!(output.stdout.ends_with("429"), "no preflight: {output}");
    assert_eq!(preflight(&gateway).status, 200);

    let limited = with("{}");
    let statuses = [(); 3].map(|()| preflight(&limited).status);
    assert_eq!(statuses, [200, 200, 429]);
}
