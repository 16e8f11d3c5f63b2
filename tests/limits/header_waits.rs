//! Clients that wait as long as one header field says are allowed at their first retry, for each
//! style and algorithm.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::client::{Response, get};
use crate::support::gateway::Gateway;

/// Two units a second.
const ALGORITHMS: [&str; 13] = [
    "quota: 2/1s",
    "quota: 2/1s, burst: 1",
    "quota: 2/1s, algorithm: token_bucket, burst: 4",
    "algorithm: token_bucket, capacity: 2, refill: 2 per 1s",
    "quota: 2/1s, algorithm: fixed_window",
    "quota: 2/1s, algorithm: fixed_window, start: first_request",
    "quota: 2/1s, algorithm: fixed_window, start: staggered",
    "quota: 2/1s, algorithm: sliding_window",
    "quota: 2/1s, algorithm: sliding_window, oldest: whole",
    "quota: 2/1s, algorithm: sliding_window, precision: 4",
    "quota: 2/1s, algorithm: sliding_window, precision: 4, oldest: ignored",
    "quota: 2/1s, algorithm: sliding_log",
    "quota: 2/1s, algorithm: leaky_bucket, queue: 0",
];

/// The field that a client of one style reads, and its parser.
struct Style {
    field: &'static str,
    wait: fn(&str) -> Duration,
}

const STYLES: [Style; 6] = [
    Style {
        field: "ratelimit",
        wait: |text| seconds(text.rsplit_once(";t=").expect("a time").1),
    },
    Style {
        field: "ratelimit-reset",
        wait: seconds,
    },
    Style {
        field: "x-acme-reset",
        wait: seconds,
    },
    Style {
        field: "x-ratelimit-reset",
        wait: |text| {
            let reset = UNIX_EPOCH + seconds(text);
            reset.duration_since(now()).unwrap_or_default()
        },
    },
    Style {
        field: "x-ai-reset-requests",
        wait: duration,
    },
    Style {
        field: "retry-after-ms",
        wait: |text| Duration::from_millis(text.parse().expect("milliseconds")),
    },
];

const DRAFT_7: Style = Style {
    field: "ratelimit",
    wait: |text| seconds(text.rsplit_once("reset=").expect("a reset").1),
};

fn seconds(text: &str) -> Duration {
    Duration::from_secs(text.parse().expect("whole seconds"))
}

/// Parses a duration of Go below a minute: `1.5s`, `250ms`.
fn duration(text: &str) -> Duration {
    if let Some(millis) = text.strip_suffix("ms") {
        return Duration::from_millis(millis.parse().expect("milliseconds"));
    }
    let seconds = text.strip_suffix('s').expect("seconds");
    Duration::from_secs_f64(seconds.parse().expect("a number"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a client reads a clock of its own"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

/// A proxy with a route, and so a bucket, for each algorithm and client.
fn gateway(headers: &str, clients: usize) -> Gateway {
    let mut config = format!("responses: {{ headers: [{headers}] }}\nroutes:\n");
    for (number, algorithm) in ALGORITHMS.iter().enumerate() {
        for client in 0..clients {
            writeln!(config, "  - {{ match: {{ path: /{number}/{client} }}, upstream: echo, limits: [{{ {algorithm} }}] }}").expect("text");
        }
    }
    Gateway::start(&config)
}

fn refused(address: SocketAddr, path: &str) -> Response {
    let mut answers = (0..100).map(|_| get(address, path));
    let refused = answers.find(|answer| answer.status == 429);
    refused.expect("a limit that refuses")
}

/// Sends requests until one is refused, waits as told, and sends one more: twice.
fn obey(address: SocketAddr, path: &str, style: &Style, algorithm: &str) {
    for _ in 0..2 {
        let refused = refused(address, path);
        let told = refused.expect_header(style.field);
        thread::sleep((style.wait)(told));
        let status = get(address, path).status;
        assert_eq!(status, 200, "{}: {told}, of {{ {algorithm} }}", style.field);
    }
}

fn obey_each(headers: &str, styles: &[Style]) {
    let gateway = gateway(headers, styles.len());
    let address = gateway.address();
    thread::scope(|scope| {
        for (number, algorithm) in ALGORITHMS.iter().enumerate() {
            for (client, style) in styles.iter().enumerate() {
                let path = format!("/{number}/{client}");
                scope.spawn(move || obey(address, &path, style, algorithm));
            }
        }
    });
}

#[test]
fn a_client_that_waits_as_long_as_any_field_says_is_admitted() {
    let styles = "ietf, draft-6, { style: x-ratelimit, prefix: x-acme }, github, { style: openai, prefix: x-ai }";
    obey_each(styles, &STYLES);
}

#[test]
fn a_client_that_waits_as_long_as_draft_7_says_is_admitted() {
    obey_each("draft-7", &[DRAFT_7]);
}
