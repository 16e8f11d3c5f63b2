//! A request that panics is answered 500 and counted; its connection and its worker go on. No
//! configuration is known to panic: these rulesets are broken by hand after their checks.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::clock::{Clock, Timestamp};
use crate::config;
use crate::limiter::Secret;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::{Gateway, gateway};
use crate::server::Server;
use crate::support::client::Connection;
use crate::support::frames::{DATA, END_HEADERS, END_STREAM, Frame, HEADERS, Http2, field, frame};
use crate::telemetry::metrics::RequestMetrics;
use crate::telemetry::registry::Registry;

/// Requests to `/limited` with `x-key: bad` panic while they are decided on, those to `/forwarded`
/// while they are sent on.
const CONFIG: &str = "
workers: 1
listeners: [{ address: 127.0.0.1:0 }]
policies:
  keyed: { key: header:x-key, on_missing_key: skip, quota: 1000/1s, overrides: [{ value: bad, quota: 1/1s }] }
routes:
  - { match: { path: /limited }, upstream: echo, limits: [keyed] }
  - { match: { path: /forwarded }, upstream: http://127.0.0.1:1 }
";

struct Proxy {
    server: Option<Server>,
    registry: Registry,
}

impl Proxy {
    fn start() -> Self {
        let loaded = config::parse("test.yaml", CONFIG.to_owned(), &|_| None);
        let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
        let compiled = config::compile(&loaded).unwrap_or_else(|report| panic!("{report}"));
        let mut rules = compiled.rules;
        // The limit makes an exception that its policy does not have.
        rules.policies[0].overrides.clear();
        let (registry, clock) = (Registry::default(), Arc::new(Clock::system()));
        let context = BuildContext {
            // No worker has a pool of connections.
            workers: 0,
            registry: registry.clone(),
            clock: Arc::clone(&clock),
            secret: Secret::from_key([1, 2]),
        };
        let snapshot =
            PreparedRuleset::new(rules, &context, None).migrate_buckets(Timestamp::EPOCH);
        let metrics = Arc::new(RequestMetrics::new(&registry));
        let gateway = Arc::new(Gateway::new(snapshot, clock, metrics, 0));
        let server = Server::start(compiled.process.server, &registry, move |connection| {
            gateway::service(&gateway, connection)
        });
        Proxy {
            server: Some(server.expect("a free port")),
            registry,
        }
    }

    fn address(&self) -> SocketAddr {
        self.server.as_ref().expect("it runs").addresses()[0]
            .tcp()
            .expect("it listens on TCP")
    }

    fn has(&self, series: &str) -> bool {
        self.registry.render().lines().any(|line| line == series)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown().abort();
            server.join();
        }
    }
}

#[test]
fn a_panic_is_a_500_and_keeps_the_connection() {
    let proxy = Proxy::start();
    let mut client = Connection::open(proxy.address());
    let mut ask = |path: &str, field: &str| {
        client.exchange(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n"))
    };
    for round in 1..=3 {
        let decided = ask("/limited", "x-key: bad\r\n");
        assert_eq!(decided.status, 500);
        assert!(decided.text().contains("The proxy failed on this request."));
        assert_eq!(ask("/limited", "x-key: good\r\n").status, 200);
        assert_eq!(ask("/forwarded", "").status, 500);
        assert_eq!(ask("/limited", "").status, 200);
        let panics = 2 * round;
        assert!(proxy.has(&format!("sluicegate_http_request_panics_total {panics}")));
    }
    assert!(proxy.has("sluicegate_http_requests_total{code=\"500\",method=\"GET\"} 6"));
}

/// The field block of a request for this path.
fn block(method: u8, path: &str) -> Vec<u8> {
    let path_field = [&[0x04, path.len() as u8], path.as_bytes()].concat();
    [&[method, 0x86][..], &path_field, &[0x01, 1, b'a']].concat()
}

#[test]
fn the_other_streams_of_a_connection_outlive_a_panic() {
    const GET: u8 = 0x82;
    const POST: u8 = 0x83;
    let proxy = Proxy::start();
    let mut client = Http2::open(proxy.address());
    // It is echoed while it is sent.
    client.send(&frame(HEADERS, END_HEADERS, 1, &block(POST, "/limited")));
    client.send(&frame(DATA, 0, 1, b"first"));
    let is_echo = |frame: &Frame, text: &[u8]| {
        frame.stream == 1 && frame.kind == DATA && frame.payload.ends_with(text)
    };
    assert!(client.frames().any(|frame| is_echo(&frame, b"first")));
    let bad = [block(GET, "/limited"), field("x-key", "bad")].concat();
    assert_eq!(client.status_of(3, &bad), 500);
    assert_eq!(client.status_of(5, &block(GET, "/forwarded")), 500);
    assert_eq!(client.status_of(7, &block(GET, "/limited")), 200);
    client.send(&frame(DATA, END_STREAM, 1, b"last"));
    assert!(client.frames().any(|frame| is_echo(&frame, b"last")));
    assert!(proxy.has("sluicegate_http_request_panics_total 2"));
}
