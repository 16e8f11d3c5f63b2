//! Limits as clients meet them, over real sockets: exact counts, refusals, the connection and the
//! body afterwards.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::client::{Connection, Response, get, get_with};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ok};
use sfv::{BareItem, ListEntry, Parser};

/// Every algorithm in its forms, for a limit L in each window W.
const ALGORITHMS: [&str; 12] = [
    "quota: L/W, algorithm: gcra",
    "quota: L/W, algorithm: token_bucket",
    "capacity: L, refill: L per W, algorithm: token_bucket",
    "quota: L/W, algorithm: fixed_window",
    "quota: L/W, algorithm: fixed_window, start: first_request",
    "quota: L/W, algorithm: fixed_window, start: staggered",
    "quota: L/W, algorithm: sliding_window",
    "quota: L/W, algorithm: sliding_window, oldest: whole",
    "quota: L/W, algorithm: sliding_window, precision: 10",
    "quota: L/W, algorithm: sliding_window, precision: 10, oldest: whole",
    "quota: L/W, algorithm: sliding_window, precision: 10, oldest: ignored",
    "quota: L/W, algorithm: sliding_log",
];

/// The algorithms whose windows begin at no multiple of their length.
const CALENDARS: [&str; 2] = [
    "quota: L/1y, algorithm: fixed_window, time_zone: Europe/Berlin",
    "quota: L/1mo, algorithm: fixed_window, time_zone: Pacific/Apia, anchor: 31",
];

/// A route `/0`, `/1`, .. to the echo upstream for each algorithm, limited by the header `x-key`.
fn a_route_for_each(algorithms: &[&str], limit: u32, window: &str) -> String {
    let routes = algorithms.iter().enumerate().map(|(number, algorithm)| {
        let algorithm = algorithm
            .replace('L', &limit.to_string())
            .replace('W', window);
        format!(
            "  - match: {{ path: /{number} }}\n    upstream: echo\n    \
             limits: [{{ key: \"header:x-key\", {algorithm} }}]\n"
        )
    });
    format!("routes:\n{}", routes.collect::<String>())
}

/// One route to `upstream`, with more of the configuration before it.
fn one_route(upstream: &str, limits: &str, more: &str) -> String {
    format!("{more}\nroutes:\n  - upstream: {upstream}\n    limits: {limits}\n")
}

fn statuses(count: usize, request: impl Fn() -> Response) -> Vec<u16> {
    (0..count).map(|_| request().status).collect()
}

#[test]
fn sixty_parallel_requests_against_seven_units_admit_seven() {
    let algorithms = [&ALGORITHMS[..], &CALENDARS].concat();
    let gateway = Gateway::start(&a_route_for_each(&algorithms, 10, "300d"));
    for (number, algorithm) in algorithms.iter().enumerate() {
        let path = format!("/{number}");
        let request = || get_with(gateway.address(), &path, "x-key: a\r\n");
        assert_eq!(statuses(3, request), [200; 3], "{algorithm}");

        let start = Barrier::new(60);
        let answers: Vec<u16> = thread::scope(|scope| {
            let clients: Vec<_> = (0..60)
                .map(|_| {
                    scope.spawn(|| {
                        let mut connection = Connection::open(gateway.address());
                        start.wait();
                        connection
                            .exchange(&format!(
                                "GET {path} HTTP/1.1\r\nHost: a\r\nx-key: a\r\n\r\n"
                            ))
                            .status
                    })
                })
                .collect();
            clients
                .into_iter()
                .map(|client| client.join().expect("a client"))
                .collect()
        });
        let count = |status| answers.iter().filter(|answer| **answer == status).count();
        assert_eq!(
            (count(200), count(429)),
            (7, 53),
            "{algorithm}: {answers:?}"
        );
        assert_eq!(
            get_with(gateway.address(), &path, "x-key: b\r\n").status,
            200,
            "another key is another bucket"
        );
    }
}

#[test]
fn a_client_that_waits_as_long_as_retry_after_says_is_admitted() {
    let gateway = Gateway::start(&a_route_for_each(&ALGORITHMS, 2, "2s"));
    let address = gateway.address();
    thread::scope(|scope| {
        for (number, algorithm) in ALGORITHMS.iter().enumerate() {
            let request = move || get_with(address, &format!("/{number}"), "x-key: a\r\n");
            scope.spawn(move || {
                for _ in 0..3 {
                    let refusal = (0..50)
                        .map(|_| request())
                        .find(|answer| answer.status == 429);
                    let refusal = refusal.unwrap_or_else(|| panic!("{algorithm} never refuses"));
                    let seconds: u64 = refusal
                        .expect_header("retry-after")
                        .parse()
                        .expect("whole seconds");
                    assert!((1..=4).contains(&seconds), "{algorithm}: {seconds}");
                    thread::sleep(Duration::from_secs(seconds));
                    assert_eq!(request().status, 200, "{algorithm}");
                }
            });
        }
    });
}

#[test]
fn a_refused_request_is_charged_to_none_of_its_limits() {
    let gateway = Gateway::start(
        "policies:
  wide: { key: constant, quota: 5/300d }
  narrow: { key: constant, quota: 2/300d }
routes:
  - { match: { path: /both }, upstream: echo, limits: [wide, narrow] }
  - { match: { path: /wide }, upstream: echo, limits: [wide] }
",
    );
    let both = statuses(10, || get(gateway.address(), "/both"));
    assert_eq!(both, [200, 200, 429, 429, 429, 429, 429, 429, 429, 429]);
    assert_eq!(
        statuses(4, || get(gateway.address(), "/wide")),
        [200, 200, 200, 429]
    );
}

#[test]
fn a_cost_is_charged_whole_or_not_at_all() {
    let limits = "[{ key: constant, quota: 10/300d, cost: 4 }]";
    let gateway = Gateway::start(&one_route("echo", limits, ""));
    assert_eq!(
        statuses(4, || get(gateway.address(), "/")),
        [200, 200, 429, 429]
    );
}

#[test]
fn a_quota_of_zero_refuses_without_retry_after() {
    let gateway = Gateway::start(&one_route("echo", "[{ quota: 0/1h }]", ""));
    let answer = get(gateway.address(), "/");
    assert_eq!((answer.status, answer.header("retry-after")), (429, None));
}

#[test]
fn a_request_without_the_key_is_limited_too() {
    let gateway = Gateway::start(&one_route(
        "echo",
        "[{ key: \"header:x-key\", quota: 2/300d }]",
        "",
    ));
    assert_eq!(statuses(3, || get(gateway.address(), "/")), [200, 200, 429]);
    let forged = get_with(gateway.address(), "/", "x-key: 127.0.0.1\r\n");
    assert_eq!(
        forged.status, 200,
        "a header that says the address is not the address"
    );
}

#[test]
fn requests_without_a_route_meet_the_top_level_limits() {
    let gateway = Gateway::start(
        "limits: [{ quota: 2/300d }]\nroutes: [{ match: { path: /known }, upstream: echo }]\n",
    );
    assert_eq!(
        statuses(3, || get(gateway.address(), "/unknown")),
        [404, 404, 429]
    );
    assert_eq!(get(gateway.address(), "/known").status, 429);
}

#[test]
fn a_refusal_leaves_the_connection_usable() {
    let gateway = Gateway::start(&one_route("echo", "[{ quota: 2/300d }]", ""));
    let mut connection = Connection::open(gateway.address());
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let answers: Vec<u16> = (0..5)
        .map(|_| connection.exchange(request).status)
        .collect();
    assert_eq!(answers, [200, 200, 429, 429, 429]);
}

#[test]
fn a_refused_body_is_never_read_as_the_next_request() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&one_route(&origin.url(), "[{ quota: 0/1h }]", ""));
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for length in [smuggled.len(), 200_000, 50_000_000] {
        let mut connection = Connection::open(gateway.address());
        connection.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
        ));
        assert_eq!(
            connection.receive().status,
            429,
            "the answer does not wait for the body"
        );
        let body = smuggled.repeat(1 + length / smuggled.len());
        // The proxy may have closed: then what is left of the body goes nowhere.
        let next = connection
            .try_send(&body[..length])
            .and_then(|()| connection.try_send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n"))
            .and_then(|()| connection.try_receive());
        if let Ok(Some(answer)) = next {
            assert_eq!(answer.status, 429);
            let more =
                connection.try_send("GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            assert!(more.is_ok() && connection.receive().status == 429);
            connection.expect_closed();
        }
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn a_refused_chunked_body_is_drained_or_the_connection_closed() {
    let gateway = Gateway::start(&one_route("echo", "[{ quota: 0/1h }]", ""));
    let mut connection = Connection::open(gateway.address());
    connection
        .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    assert_eq!(connection.receive().status, 429);
    let rest = connection.try_send("0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    if let Ok(Some(answer)) = rest.and_then(|()| connection.try_receive()) {
        assert_eq!(answer.status, 429);
    }
}

#[test]
fn a_refused_upload_gets_no_100_continue() {
    let origin = Origin::start(|request| ok(&request.body.len().to_string()));
    let gateway = Gateway::start(&one_route(&origin.url(), "[{ quota: 1/300d }]", ""));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";

    let mut admitted = Connection::open(gateway.address());
    admitted.send(head);
    assert_eq!(admitted.read_exactly(25), b"HTTP/1.1 100 Continue\r\n\r\n");
    admitted.send("hello");
    assert_eq!(admitted.receive().text(), "5");

    let mut refused = Connection::open(gateway.address());
    refused.send(head);
    let refusal = refused.receive();
    assert_eq!((refusal.status, refusal.informational), (429, vec![]));
}

#[test]
fn a_refusal_has_the_media_type_that_accept_prefers() {
    let more = "responses: { on_limit: { docs_url: \"https://example.com/limits\" } }";
    let gateway = Gateway::start(&one_route("echo", "[{ quota: 0/1h }]", more));
    for (accept, media_type) in [
        ("", "application/problem+json"),
        ("Accept: */*\r\n", "application/problem+json"),
        ("Accept: application/json\r\n", "application/problem+json"),
        ("Accept: text/plain\r\n", "text/plain"),
        (
            "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n",
            "text/html",
        ),
        (
            "Accept: text/html;q=0.2, application/json\r\n",
            "application/problem+json",
        ),
        ("Accept: image/png\r\n", "application/problem+json"),
    ] {
        let refusal = get_with(gateway.address(), "/", accept);
        assert_eq!(refusal.status, 429);
        let found = refusal.expect_header("content-type");
        assert!(found.starts_with(media_type), "{accept:?}: {found}");
        assert!(
            refusal.text().contains("https://example.com/limits"),
            "{}",
            refusal.text()
        );
        assert_eq!(
            refusal.expect_header("link"),
            "<https://example.com/limits>; rel=\"help\""
        );
        assert_eq!(refusal.expect_header("cache-control"), "no-store");
        assert!(refusal.header("date").is_some());
    }
}

#[test]
fn a_problem_names_the_policy_that_was_violated() {
    let gateway = Gateway::start(
        "policies: { per-client: { quota: 0/1h } }\nroutes: [{ upstream: echo, limits: [per-client] }]\n",
    );
    let refusal = get(gateway.address(), "/");
    let problem: serde_json::Value = serde_json::from_slice(&refusal.body).expect("JSON");
    assert_eq!(problem["type"], "about:blank");
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["title"], "Too Many Requests");
    assert_eq!(
        problem["violated-policies"],
        serde_json::json!(["per-client"])
    );
}

#[test]
fn a_refused_head_request_has_no_body() {
    let gateway = Gateway::start(&one_route("echo", "[{ quota: 0/1h }]", ""));
    let mut connection = Connection::open(gateway.address());
    let refusal = connection.exchange("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(refusal.status, 429);
    let next = connection.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        next.status, 429,
        "nothing of a body was left on the connection"
    );
    assert_eq!(
        refusal.header("content-length"),
        next.header("content-length")
    );
}

#[test]
fn the_refusal_body_is_configurable_by_policy() {
    let limits = "[{ quota: 0/1h, on_limit: { status: 503, format: text, body: \"later\", headers: { x-why: limit } } }]";
    let gateway = Gateway::start(&one_route("echo", limits, ""));
    let refusal = get(gateway.address(), "/");
    assert_eq!((refusal.status, refusal.text().as_str()), (503, "later"));
    assert_eq!(refusal.expect_header("x-why"), "limit");
    assert!(
        refusal
            .expect_header("content-type")
            .starts_with("text/plain")
    );
}

/// The responses to three requests against a quota of two an hour, with these header styles.
fn three_answers(styles: &str) -> [Response; 3] {
    let gateway = Gateway::start(&format!(
        "responses: {{ headers: {styles} }}
policies: {{ per-client: {{ quota: 2/1h, algorithm: fixed_window, start: first_request }} }}
routes: [{{ upstream: echo, limits: [per-client] }}]
"
    ));
    let answers = [0, 1, 2].map(|_| get(gateway.address(), "/"));
    assert_eq!(
        answers.each_ref().map(|answer| answer.status),
        [200, 200, 429]
    );
    answers
}

/// The items of a structured-field list: each one's string and its integer parameters.
fn items(text: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let list: Vec<ListEntry> = Parser::new(text)
        .parse::<sfv::List>()
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    let entries = list.into_iter().map(|entry| {
        let ListEntry::Item(item) = entry else {
            panic!("an inner list in {text}")
        };
        let BareItem::String(name) = item.bare_item else {
            panic!("no string in {text}")
        };
        let parameters = item.params.into_iter().map(|(key, value)| match value {
            BareItem::Integer(number) => (key.to_string(), number.into()),
            other => panic!("{other:?} in {text}"),
        });
        (name.to_string(), parameters.collect())
    });
    entries.collect()
}

#[test]
fn the_ietf_fields_are_structured_and_count_down() {
    for (answer, remaining) in three_answers("[ietf]").iter().zip([1, 0, 0]) {
        let policy = items(answer.expect_header("ratelimit-policy"));
        assert_eq!(
            policy,
            [(
                "per-client".to_owned(),
                vec![("q".to_owned(), 2), ("w".to_owned(), 3600)]
            )]
        );
        let limit = items(answer.expect_header("ratelimit"));
        let [(name, parameters)] = &limit[..] else {
            panic!("{limit:?}")
        };
        assert_eq!(name, "per-client");
        let value = |key| {
            parameters
                .iter()
                .find(|(found, _)| found == key)
                .map(|(_, value)| *value)
        };
        assert_eq!(value("r"), Some(remaining));
        assert!(
            value("t").is_some_and(|t| (3590..=3600).contains(&t)),
            "{parameters:?}"
        );
        if answer.status == 429 {
            let retry: i64 = answer
                .expect_header("retry-after")
                .parse()
                .expect("whole seconds");
            assert!(Some(retry) >= value("t"), "never earlier than t");
        }
    }
}

#[test]
fn the_x_ratelimit_fields_reset_in_seconds_from_now() {
    for (answer, remaining) in three_answers("[x-ratelimit]").iter().zip(["1", "0", "0"]) {
        assert_eq!(answer.expect_header("x-ratelimit-limit"), "2");
        assert_eq!(answer.expect_header("x-ratelimit-remaining"), remaining);
        let reset: u64 = answer
            .expect_header("x-ratelimit-reset")
            .parse()
            .expect("a number");
        assert!((3590..=3600).contains(&reset), "{reset}");
        assert_eq!(
            answer.header("ratelimit"),
            None,
            "only the style that was asked for"
        );
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "compares a wall-clock instant that the proxy announces"
)]
fn the_github_fields_reset_at_an_instant() {
    for (answer, remaining) in three_answers("[github]").iter().zip([1, 0, 0]) {
        assert_eq!(answer.expect_header("x-ratelimit-limit"), "2");
        assert_eq!(
            answer.expect_header("x-ratelimit-remaining"),
            remaining.to_string()
        );
        assert_eq!(
            answer.expect_header("x-ratelimit-used"),
            (2 - remaining).to_string()
        );
        assert_eq!(answer.expect_header("x-ratelimit-resource"), "per-client");
        let reset: u64 = answer
            .expect_header("x-ratelimit-reset")
            .parse()
            .expect("a number");
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_secs();
        assert!(
            (now + 3590..=now + 3601).contains(&reset),
            "{reset} at {now}"
        );
    }
}

#[test]
fn the_openai_fields_are_durations() {
    let answers = three_answers("[openai]");
    for (answer, remaining) in answers.iter().zip(["1", "0", "0"]) {
        assert_eq!(answer.expect_header("x-ratelimit-limit-requests"), "2");
        assert_eq!(
            answer.expect_header("x-ratelimit-remaining-requests"),
            remaining
        );
        let reset = answer.expect_header("x-ratelimit-reset-requests");
        assert!(
            reset.starts_with("59m5") || reset.starts_with("1h0m0"),
            "{reset}"
        );
    }
    let milliseconds: u64 = answers[2]
        .expect_header("retry-after-ms")
        .parse()
        .expect("a number");
    assert!(
        (3_590_000..=3_600_000).contains(&milliseconds),
        "{milliseconds}"
    );
}

#[test]
fn no_style_means_no_fields() {
    let [_, admitted, refused] = three_answers("[]");
    for answer in [admitted, refused] {
        let names = answer.headers.iter().map(|(name, _)| name.to_lowercase());
        assert!(
            names.into_iter().all(|name| !name.contains("ratelimit")),
            "{:?}",
            answer.headers
        );
    }
}

#[test]
fn fields_of_the_upstream_are_kept_beside_those_of_the_proxy() {
    let origin = Origin::start(|_| {
        crate::support::origin::raw(
            "HTTP/1.1 200 OK\r\nRateLimit-Policy: \"theirs\";q=9;w=1\r\nRateLimit: \"theirs\";r=8;t=1\r\n\
             Content-Length: 0\r\n\r\n",
        )
    });
    let gateway = Gateway::start(&one_route(&origin.url(), "[{ quota: 5/1h }]", ""));
    let answer = get(gateway.address(), "/");
    let names = |field| {
        items(&answer.headers_of(field).join(", "))
            .into_iter()
            .map(|(name, _)| name)
    };
    assert_eq!(names("ratelimit").count(), 2, "{answer:?}");
    assert!(names("ratelimit").any(|name| name == "theirs"));
    assert!(names("ratelimit-policy").any(|name| name == "theirs"));
}
