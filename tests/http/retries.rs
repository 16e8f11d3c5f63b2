//! Failed requests are sent to another endpoint where that is safe, within a budget and a deadline.

use std::io::Read;
use std::time::Duration;

use crate::support::client::{Connection, get};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, answer, ok, raw, refusing_address};
use crate::support::{now, wait_for};

/// Endpoints in the order in which the first request tries them, without ejection.
fn config(endpoints: &[String], options: &str) -> String {
    format!(
        "workers: 1
access_log: {{ path: access.log }}
upstreams: {{ pool: {{ endpoints: {endpoints:?}, ejection: off{options} }} }}
routes: [{{ upstream: pool }}]
"
    )
}

fn request(gateway: &Gateway, text: &str) -> (u16, String) {
    let response = Connection::open(gateway.address()).exchange(text);
    (response.status, response.text())
}

fn put(length: usize) -> String {
    let body = "x".repeat(length);
    format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn failing(steps: Vec<Step>) -> Origin {
    Origin::start(move |_| steps.clone())
}

#[test]
fn an_idempotent_request_is_sent_again_with_its_body() {
    let (bad, good) = (failing(vec![Step::Reset]), Origin::plain());
    let gateway = Gateway::start(&config(&[bad.url(), good.url()], ""));
    let chunked = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n";
    for (text, body) in [
        (
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            String::new(),
        ),
        (put(60_000), "x".repeat(60_000)),
        (chunked.to_owned(), "hello!".to_owned()),
    ] {
        good.forget();
        // The bad endpoint has every other turn.
        for _ in 0..2 {
            assert_eq!(request(&gateway, &text), (200, "ok".to_owned()));
        }
        let received = good.requests();
        let bodies = received.iter().map(|one| one.body == body.as_bytes());
        assert_eq!(bodies.collect::<Vec<_>>(), [true, true]);
    }
    assert_eq!(bad.requests().len(), 3);
    let log = wait_for("the access log", || {
        let log = std::fs::read_to_string(gateway.dir().join("access.log")).ok()?;
        (log.lines().count() == 6).then_some(log)
    });
    assert_eq!(log.matches("\"attempts\":2").count(), 3, "{log}");
    let label = format!(
        "{{upstream=\"pool\",endpoint=\"{}\",reason=\"reset\"}}",
        bad.address()
    );
    let retries = gateway.metric(&format!("sluicegate_upstream_retries_total{label}"));
    assert_eq!(retries, Some(3.0));
}

#[test]
fn a_request_that_may_have_been_processed_is_not_repeated() {
    let bad = [failing(vec![Step::Reset]), failing(vec![Step::Reset])];
    let gateway = Gateway::start(&config(&bad.each_ref().map(Origin::url), ""));
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    assert_eq!(request(&gateway, post).0, 502);
    // More than `max_body` cannot be sent again.
    assert_eq!(request(&gateway, &put(100_000)).0, 502);
    assert_eq!(bad[0].requests().len() + bad[1].requests().len(), 2);
}

#[test]
fn any_request_is_sent_elsewhere_if_there_is_no_connection() {
    let (bad, good) = (format!("http://{}", refusing_address()), Origin::plain());
    let gateway = Gateway::start(&config(&[bad, good.url()], ""));
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    for _ in 0..4 {
        assert_eq!(request(&gateway, post).0, 200);
    }
    let bodies = good.requests().into_iter().map(|one| one.body);
    assert_eq!(bodies.collect::<Vec<_>>(), vec![b"hi".to_vec(); 4]);
}

#[test]
fn statuses_are_retried_if_the_list_has_them() {
    let (bad, good) = (failing(answer(503, "busy")), Origin::plain());
    let endpoints = [bad.url(), good.url()];
    let gateway = Gateway::start(&config(&endpoints, ""));
    let mut statuses: Vec<_> = (0..2).map(|_| get(gateway.address(), "/").status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503]);
    gateway.reload(&config(&endpoints, ", retries: { retry_on: [\"503\"] }"));
    for _ in 0..4 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let mut statuses: Vec<_> = (0..2).map(|_| request(&gateway, post).0).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503]);
}

#[test]
fn at_most_so_many_endpoints_are_tried() {
    let bad = [(); 4].map(|()| failing(vec![Step::Reset]));
    let urls = bad.each_ref().map(Origin::url);
    for (options, expected) in [
        ("", 3),
        (", retries: { attempts: 1 }", 2),
        (", retries: { attempts: 0 }", 1),
        (", retries: { attempts: 10 }", 4),
        (", retries: { retry_on: [connect_failure] }", 1),
    ] {
        bad.iter().for_each(Origin::forget);
        let gateway = Gateway::start(&config(&urls, options));
        assert_eq!(get(gateway.address(), "/").status, 502);
        let tried: usize = bad.iter().map(|one| one.requests().len()).sum();
        assert_eq!(tried, expected, "{options}");
    }
}

#[test]
fn retries_of_an_outage_are_bounded_by_the_budget() {
    const REQUESTS: usize = 200;
    let bad = [(); 3].map(|()| failing(vec![Step::Reset]));
    let urls = bad.each_ref().map(Origin::url);
    let gateway = Gateway::start(&config(&urls, ", retries: { min_per_second: 1 }"));
    for _ in 0..REQUESTS {
        assert_eq!(get(gateway.address(), "/").status, 502);
    }
    let tried: usize = bad.iter().map(|one| one.requests().len()).sum();
    assert!(tried > REQUESTS, "{tried}");
    // A fifth of the requests, and one a second in reserve for each second.
    assert!(tried <= REQUESTS * 6 / 5 + 60, "{tried}");
    let denied = bad.each_ref().map(|one| {
        let label = format!("{{upstream=\"pool\",endpoint=\"{}\"}}", one.address());
        gateway.metric(&format!("sluicegate_upstream_retries_denied_total{label}"))
    });
    assert!(denied.iter().flatten().sum::<f64>() > 100.0, "{denied:?}");
}

#[test]
fn a_reload_does_not_renew_the_budget() {
    let bad = [(); 2].map(|()| failing(vec![Step::Reset]));
    let urls = bad.each_ref().map(Origin::url);
    let config = |max_body: usize| {
        let retries = format!("budget: 0%, min_per_second: 1, max_body: {max_body}B");
        config(&urls, &format!(", retries: {{ {retries} }}"))
    };
    let gateway = Gateway::start(&config(0));
    let started = now();
    let mut requests = 0;
    for reload in 1..=8 {
        for _ in 0..15 {
            assert_eq!(get(gateway.address(), "/").status, 502);
            requests += 1;
        }
        gateway.reload(&config(reload));
    }
    let tried: usize = bad.iter().map(|one| one.requests().len()).sum();
    let retries = tried - requests;
    // 10 in any ten seconds.
    let most = 10 * (2 + started.elapsed().as_secs() as usize / 10);
    assert!((10..=most).contains(&retries), "{retries} of {most}");
}

#[test]
fn a_request_that_is_retried_is_charged_once() {
    let (bad, good) = (failing(vec![Step::Reset]), Origin::plain());
    let limit = "limits: [{ quota: 10/1h, algorithm: fixed_window, key: constant }]\n";
    let config = format!("{limit}{}", config(&[bad.url(), good.url()], ""));
    let gateway = Gateway::start(&config);
    let statuses: Vec<_> = (0..12)
        .map(|_| get(gateway.address(), "/").status)
        .collect();
    assert_eq!(statuses[..10], [200; 10]);
    assert_eq!(statuses[10..], [429; 2]);
    assert_eq!(bad.requests().len(), 5);
}

#[test]
fn each_attempt_has_its_own_time() {
    let (bad, good) = (failing(vec![Step::Hang]), Origin::plain());
    let options = ", timeouts: { attempt: 200ms }";
    let gateway = Gateway::start(&config(&[bad.url(), good.url()], options));
    for _ in 0..2 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    assert_eq!(bad.requests().len(), 1);
    // A request that may have been processed is not sent again, but ends.
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let mut statuses: Vec<_> = (0..2).map(|_| request(&gateway, post).0).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 504]);
}

#[test]
fn the_deadline_bounds_all_attempts_and_the_response() {
    let slow = || {
        Origin::start(|request| match request.target.as_str() {
            "/hang" => vec![Step::Hang],
            "/drip" => {
                let head = raw("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
                let drop = [
                    Step::Pause(Duration::from_millis(50)),
                    Step::Send(b"x".to_vec()),
                ];
                head.into_iter()
                    .chain(std::iter::repeat_n(drop, 1000).flatten())
                    .collect()
            }
            _ => ok("ok"),
        })
    };
    let endpoints = [slow(), slow()];
    let options = ", timeouts: { attempt: 300ms, request: 500ms }";
    let gateway = Gateway::start(&config(&endpoints.each_ref().map(Origin::url), options));
    let asked = now();
    assert_eq!(get(gateway.address(), "/hang").status, 504);
    assert!(asked.elapsed() < Duration::from_secs(15), "a bounded wait");
    assert_eq!(get(gateway.address(), "/").status, 200);
    let mut connection = Connection::open(gateway.address());
    connection.send("GET /drip HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(connection.receive_head().status, 200);
    let mut rest = Vec::new();
    connection.writer().read_to_end(&mut rest).ok();
    assert!(rest.len() < 1000, "the response is cut");
    assert!(asked.elapsed() < Duration::from_secs(15), "a bounded wait");
    let log = wait_for("the access log", || {
        let log = std::fs::read_to_string(gateway.dir().join("access.log")).ok()?;
        (log.lines().count() == 3).then_some(log)
    });
    assert_eq!(
        log.matches("\"error\":\"request_timeout\"").count(),
        2,
        "{log}"
    );
}
