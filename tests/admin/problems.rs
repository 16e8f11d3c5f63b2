//! What counters have counted lately is a problem in `/v1/status`.

use crate::support::admin::{AdminClient, READER, TOKENS};
use crate::support::client::Connection;
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, answer, refusing_address};
use crate::support::wait_for;

fn problems(gateway: &Gateway) -> Vec<String> {
    let status = AdminClient::new(gateway, READER).get("/v1/status");
    let status: serde_json::Value = serde_json::from_slice(&status.body).unwrap_or_default();
    let problems = status["problems"].as_array().into_iter().flatten();
    problems
        .filter_map(|one| one.as_str().map(str::to_owned))
        .collect()
}

#[test]
fn losses_and_refusals_of_the_last_minutes_are_problems() {
    let collector = refusing_address();
    let gateway = Gateway::start(&format!(
        "{TOKENS}access_log: {{ path: /dev/full }}
tracing: {{ endpoint: 'http://{collector}', timeout: 1s }}
policies: {{ p: {{ key: 'query:k', quota: 1/1h, max_keys: 1024 }} }}
routes: [{{ upstream: echo, limits: [p] }}]
"
    ));
    assert_eq!(problems(&gateway), [""; 0]);
    // Keys that refuse fill the table.
    for _ in 0..2 {
        let mut connection = Connection::open(gateway.address());
        for key in 0..3000 {
            connection.exchange(&format!("GET /?k={key} HTTP/1.1\r\nHost: a\r\n\r\n"));
        }
    }
    for number in 0..21 {
        AdminClient::new(&gateway, &format!("guess-0123456789-{number}")).get("/v1/status");
    }
    let expected = [
        (
            "policy p: ",
            " requests passed without a bucket in the last 15 minutes",
        ),
        (
            "",
            " requests to the admin listener were refused in the last 15 minutes",
        ),
        ("the access log lost 6000 lines", "in the last 15 minutes"),
        ("the export lost", "spans in the last 15 minutes"),
    ];
    let found = wait_for("all problems", || {
        let found = problems(&gateway);
        let is_counted = found
            .iter()
            .any(|problem| problem.contains("lost 6000 lines"));
        (is_counted && found.len() == expected.len()).then_some(found)
    });
    for (problem, (begin, rest)) in found.iter().zip(expected) {
        assert!(
            problem.starts_with(begin) && problem.contains(rest),
            "{found:?}"
        );
    }
}

/// A proxy that `trusted_proxies` lacks looks like one client.
#[test]
fn connections_of_a_client_that_has_too_many_are_a_problem() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}client: {{ max_connections_per_client: 1 }}\nroutes: [{{ upstream: echo }}]\n"
    ));
    let mut first = Connection::open(gateway.address());
    first.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..120 {
        Connection::open(gateway.address()).expect_closed();
    }
    let found = wait_for("the problem", || problems(&gateway).pop());
    assert!(found.contains("120 connections were closed"), "{found}");
}

/// They do not eject its servers, which answer.
#[test]
fn an_upstream_that_answers_many_requests_with_5xx_is_a_problem() {
    let origin = Origin::start(|received| {
        let status = if received.header("x-fail").is_some() {
            500
        } else {
            200
        };
        answer(status, "")
    });
    let url = origin.url();
    let gateway = Gateway::start(&format!(
        "{TOKENS}upstreams: {{ billing: {{ endpoints: ['{url}'] }} }}\nroutes: [{{ upstream: billing }}]\n"
    ));
    let mut connection = Connection::open(gateway.address());
    let mut fail_one_of_four = || {
        for field in ["", "", "", "x-fail: 1\r\n"] {
            connection.exchange(&format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
        }
    };
    (0..10).for_each(|_| fail_one_of_four());
    assert_eq!(problems(&gateway), [""; 0], "too few");
    fail_one_of_four();
    let found = wait_for("the problem", || problems(&gateway).pop());
    let expected =
        "upstream billing: 25 % of its responses in the last 5 minutes were 5xx, 11 of 44";
    assert_eq!(found, expected);
}
