//! `Retry-After` with a jitter: later than the units return, never earlier, and different between
//! clients.

use std::collections::HashSet;

use crate::support::client::{Response, get_with};
use crate::support::gateway::Gateway;

const HOUR: u64 = 3_600;
const JITTER: u64 = 1_800;

fn refused(gateway: &Gateway, key: usize) -> Response {
    let ask = || get_with(gateway.address(), "/", &format!("x-key: {key}\r\n"));
    assert_eq!(ask().status, 200);
    ask()
}

fn number(response: &Response, field: &str) -> u64 {
    response.expect_header(field).parse().expect("a number")
}

#[test]
fn clients_get_retry_after_with_different_parts_of_the_jitter() {
    let gateway = Gateway::start(
        "responses: { headers: [ietf, x-ratelimit] }
policies:
  hourly:
    key: header:x-key
    algorithm: fixed_window
    start: first_request
    quota: 1/1h
    retry_after_jitter: 30m
    on_limit: { format: text, body: '{{retry_after}}' }
  wide: { key: constant, quota: 1000/1h }
routes: [{ upstream: echo, limits: [hourly, wide] }]
",
    );
    let answers: Vec<_> = (0..40).map(|key| refused(&gateway, key)).collect();
    let mut told = HashSet::new();
    for answer in &answers {
        assert_eq!(answer.status, 429);
        let seconds = number(answer, "retry-after");
        assert!((HOUR - 60..=HOUR + JITTER).contains(&seconds), "{seconds}");
        assert_eq!(number(answer, "x-ratelimit-reset"), seconds);
        assert_eq!(answer.text(), seconds.to_string());
        let state = answer.expect_header("ratelimit");
        assert!(
            state.contains(&format!("\"hourly\";r=0;t={seconds}")),
            "{state}"
        );
        told.insert(seconds);
    }
    assert!(told.len() > 30, "{told:?}");
    let above = |part: u64| told.iter().any(|told| *told > HOUR + JITTER * part / 4);
    assert!(
        above(3) && !told.iter().all(|told| *told > HOUR + JITTER / 4),
        "{told:?}"
    );
}

#[test]
fn a_jitter_changes_no_decision_and_no_field_of_allowed_requests() {
    let gateway = Gateway::start(
        "responses: { headers: [x-ratelimit] }
routes: [{ upstream: echo, limits: [{ key: header:x-key, quota: 20/1s, burst: 1, retry_after_jitter: 1h }] }]
",
    );
    let first = get_with(gateway.address(), "/", "x-key: a\r\n");
    assert_eq!(
        (first.status, number(&first, "x-ratelimit-reset")),
        (200, 1)
    );
    crate::support::wait_for("the exact instant", || {
        (get_with(gateway.address(), "/", "x-key: a\r\n").status == 200).then_some(())
    });
}
