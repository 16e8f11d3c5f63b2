//! A budget of tokens as docs/token-budgets.md has it, and clients that spend it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::client::{Connection, Response};
use super::now;
use super::origin::{Origin, Step, raw};

/// The tokens of the budget, in a minute.
pub const BUDGET: u64 = 200_000;
/// The tokens that each call takes.
pub const CALL: u64 = 20_000;

/// A model server whose calls each take [`CALL`] tokens and 0.3 s, and the tokens that it gave.
pub fn model() -> (Origin, Arc<AtomicU64>) {
    let given = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&given);
    let body = format!(r#"{{"choices":[],"usage":{{"total_tokens":{CALL}}}}}"#);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let origin = Origin::start(move |_| {
        counted.fetch_add(CALL, Relaxed);
        let answer = raw(&format!(
            "{head}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        [vec![Step::Pause(Duration::from_millis(300))], answer].concat()
    });
    (origin, given)
}

/// A budget of tokens that each request estimates in a field. The policy has these options, too.
pub fn config(model: &Origin, options: &str) -> String {
    format!(
        "policies:
  calls: {{ key: header:authorization, quota: 500/1m }}
  tokens:
    key: header:authorization
    unit: tokens
{options}    quota: 200000/1m
    cost: {{ settle: openai, reserve: {{ header: x-estimate, default: 500, max: 20000 }}, max: 200000 }}
    count: [200]
responses: {{ headers: [openai] }}
routes:
  - match: {{ path: '/v1/**' }}
    upstream: {}
    limits: [calls, tokens]
",
        model.url()
    )
}

/// One client, with eight calls in flight over these proxies, until each call is refused. Returns
/// the most tokens that it may have got meanwhile.
pub fn spend(proxies: &[SocketAddr], fields: &str) -> u64 {
    const PARALLEL: usize = 8;
    let started = now();
    let addresses = (0..PARALLEL).map(|worker| proxies[worker % proxies.len()]);
    let workers: Vec<_> = addresses
        .map(|address| {
            let fields = fields.to_owned();
            thread::spawn(move || {
                let calls = (0..100).map(|_| call(address, &fields));
                let refused = calls.filter(|answer| answer.status == 429);
                assert!(refused.take(2).count() == 2, "refused after a while");
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("no call fails");
    }
    BUDGET + PARALLEL as u64 * CALL + recovered(started.elapsed())
}

/// The tokens that come back in this time, rounded up.
pub fn recovered(time: Duration) -> u64 {
    (BUDGET as f64 * time.as_secs_f64() / 60.0).ceil() as u64
}

/// One call of that client.
pub fn call(address: SocketAddr, fields: &str) -> Response {
    Connection::open(address).exchange(&format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nauthorization: Bearer a\r\n{fields}Content-Length: 2\r\n\r\n{{}}"
    ))
}
