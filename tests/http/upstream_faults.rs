//! Upstreams that refuse, hang, reset or send garbage, and clients that leave. Each case has a
//! prompt response that names the failure, and leaks nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::support::client::{Connection, Response, get};
use crate::support::gateway::Gateway;
use crate::support::origin::{self, BlackHole, Origin, Step, ok, raw};
use crate::support::{now, wait_for};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn config(url: &str) -> String {
    format!(
        "upstreams:
  origin: {{ endpoints: [\"{url}\"], timeouts: {{ connect: 300ms, response: 500ms, idle: 500ms }} }}
routes: [{{ upstream: origin }}]
"
    )
}

/// Asserts that the response is the proxy's own, with this status and text, and in time.
#[track_caller]
fn expect_error(answer: &Response, status: u16, detail: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("a problem");
    assert_eq!(problem["status"], status);
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|said| said.contains(detail)),
        "{problem}"
    );
}

/// The response if the upstream does this with each request.
fn answer_where(steps: Vec<Step>) -> Response {
    let origin = Origin::start(move |_| steps.clone());
    let gateway = Gateway::start(&config(&origin.url()));
    let asked = now();
    let answer = get(gateway.address(), "/");
    assert!(asked.elapsed() < Duration::from_secs(15), "a bounded wait");
    answer
}

#[test]
fn a_refused_connection_is_a_502() {
    let gateway = Gateway::start(&config(&format!("http://{}", origin::refusing_address())));
    expect_error(&get(gateway.address(), "/"), 502, "accepts no connection");
}

#[test]
fn a_name_that_does_not_resolve_is_a_502() {
    let gateway = Gateway::start(&config("http://nobody.invalid:1"));
    expect_error(&get(gateway.address(), "/"), 502, "does not resolve");
}

#[test]
fn an_unaccepted_connection_is_a_504_after_the_connect_time_out() {
    let hole = BlackHole::open();
    let gateway = Gateway::start(&config(&format!("http://{}", hole.address)));
    expect_error(
        &get(gateway.address(), "/"),
        504,
        "accepted no connection in time",
    );
}

#[test]
fn silence_is_a_504_after_the_response_time_out() {
    expect_error(&answer_where(vec![Step::Hang]), 504, "no response in time");
}

#[test]
fn half_a_head_and_silence_is_a_504() {
    let steps = [raw("HTTP/1.1 200 OK\r\nContent-"), vec![Step::Hang]].concat();
    expect_error(&answer_where(steps), 504, "no response in time");
}

#[test]
fn a_reset_and_an_early_end_are_a_502() {
    expect_error(
        &answer_where(vec![Step::Reset]),
        502,
        "closed the connection",
    );
    expect_error(
        &answer_where(vec![Step::Close]),
        502,
        "closed the connection",
    );
    let steps = [raw("HTTP/1.1 200 OK\r\nContent-"), vec![Step::Close]].concat();
    expect_error(&answer_where(steps), 502, "");
}

#[test]
fn an_invalid_response_is_a_502() {
    for nonsense in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 twohundred OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        "HTTP/3.7 200 OK\r\n\r\n",
        "\0\0\0\0\0\0\0\0\r\n\r\n",
    ] {
        let answer = answer_where([raw(nonsense), vec![Step::Close]].concat());
        assert_eq!(answer.status, 502, "{nonsense:?}: {answer:?}");
    }
}

#[test]
fn an_invalid_response_is_logged_once() {
    let origin = Origin::start(|_| raw("HTTP/3.7 200 OK\r\n\r\n"));
    let gateway = Gateway::start(&config(&origin.url()));
    assert_eq!(get(gateway.address(), "/").status, 502);
    gateway.wait_for_log("it is not valid HTTP: invalid HTTP version");
    gateway.wait_for_log("no response from the upstream");
    let log = gateway.log();
    // One line for the endpoint, and one for the request.
    let mut counts = log
        .lines()
        .map(|line| line.matches("invalid HTTP version").count());
    assert!(counts.all(|count| count <= 1), "{log}");
}

#[test]
fn a_head_without_an_end_is_a_502() {
    let endless = format!(
        "HTTP/1.1 200 OK\r\n{}",
        "x-padding: 0123456789\r\n".repeat(100_000)
    );
    let answer = answer_where([raw(&endless), vec![Step::Close]].concat());
    assert_eq!(answer.status, 502);
}

/// Reads a truncated response: its head, and how the connection ended.
fn cut_off(steps: Vec<Step>) {
    let origin = Origin::start(move |_| steps.clone());
    let gateway = Gateway::start(&config(&origin.url()));
    let mut connection = Connection::open(gateway.address());
    connection.send(GET);
    let asked = now();
    let ended = connection.try_receive();
    assert!(
        ended.is_err(),
        "a body that was cut off looks whole: {ended:?}"
    );
    assert!(asked.elapsed() < Duration::from_secs(15), "a bounded wait");
}

#[test]
fn a_truncated_body_never_looks_whole() {
    cut_off(
        [
            raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
            vec![Step::Close],
        ]
        .concat(),
    );
    cut_off(
        [
            raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
            vec![Step::Reset],
        ]
        .concat(),
    );
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    cut_off([raw(chunked), vec![Step::Close]].concat());
    cut_off([raw(&format!("{chunked}nonsense\r\n")), vec![Step::Close]].concat());
}

#[test]
fn a_body_that_stops_is_cut_off_after_the_idle_time_out() {
    cut_off(
        [
            raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
            vec![Step::Hang],
        ]
        .concat(),
    );
}

#[test]
fn a_body_that_is_slow_but_steady_arrives() {
    let mut steps = raw("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n");
    for letter in ["s", "t", "e", "a", "d", "y"] {
        steps.extend([
            Step::Pause(Duration::from_millis(200)),
            Step::Send(letter.into()),
        ]);
    }
    assert_eq!(answer_where(steps).text(), "steady");
}

#[test]
fn a_body_until_the_end_of_the_connection_arrives() {
    let steps = [raw("HTTP/1.1 200 OK\r\n\r\nall of it"), vec![Step::Close]].concat();
    assert_eq!(answer_where(steps).text(), "all of it");
}

#[test]
fn an_upstream_that_closes_after_each_answer_costs_no_request() {
    let origin = Origin::start(|_| [ok("ok"), vec![Step::Close]].concat());
    let gateway = Gateway::start(&config(&origin.url()));
    let mut connection = Connection::open(gateway.address());
    for number in 0..100 {
        assert_eq!(connection.exchange(GET).status, 200, "request {number}");
    }
}

/// An upstream that closes its idle connections, as in a restart, costs a request one try.
#[test]
fn stale_connections_cost_one_try() {
    const KEPT: usize = 20;
    let (tries, together) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(KEPT)));
    let (tried, all) = (Arc::clone(&tries), Arc::clone(&together));
    let begun = AtomicUsize::new(0);
    let origin = Origin::raw(move |mut stream| {
        let mut bytes = [0; 4096];
        let _ = stream.read(&mut bytes);
        if begun.fetch_add(1, Ordering::Relaxed) < KEPT {
            all.wait();
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        if let Ok(1..) = stream.read(&mut bytes) {
            tried.fetch_add(1, Ordering::Relaxed);
        }
    });
    let patient = config(&origin.url()).replace(
        "connect: 300ms, response: 500ms, idle: 500ms",
        "connect: 10s, response: 1h, idle: 1h",
    );
    let gateway = Gateway::start(&format!("workers: 1\n{patient}"));
    let mut clients: Vec<_> = (0..KEPT)
        .map(|_| Connection::open(gateway.address()))
        .collect();
    clients.iter_mut().for_each(|client| client.send(GET));
    for client in &mut clients {
        assert_eq!(client.receive().status, 200);
    }
    assert_eq!(get(gateway.address(), "/").status, 200);
    assert_eq!(tries.load(Ordering::Relaxed), 1);
}

#[test]
fn an_early_response_is_forwarded() {
    let origin = Origin::raw(|mut stream: TcpStream| {
        let mut head = [0; 64];
        let read = stream.read(&mut head);
        assert!(read.is_ok_and(|read| read > 0));
        let answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig";
        std::io::Write::write_all(&mut stream, answer).expect("the proxy reads");
        // Not read to its end: leaving now would reset the connection.
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
    });
    let gateway = Gateway::start(&config(&origin.url()));
    let mut connection = Connection::open(gateway.address());
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nthe beginning");
    let answer = connection.receive();
    assert_eq!((answer.status, answer.text().as_str()), (413, "big"));
}

#[test]
fn a_failing_upstream_does_not_spoil_the_connection() {
    let asked = Arc::new(AtomicUsize::new(0));
    let origin = Origin::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) % 2 {
        0 => vec![Step::Reset],
        _ => ok("well"),
    });
    let gateway = Gateway::start(&config(&origin.url()));
    let mut connection = Connection::open(gateway.address());
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let answers: Vec<u16> = (0..4).map(|_| connection.exchange(post).status).collect();
    assert_eq!(answers, [502, 200, 502, 200]);
}

#[test]
fn a_client_that_leaves_cancels_the_request_upstream() {
    let left = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&left);
    let origin = Origin::raw(move |mut stream| {
        // Ends when the proxy closes; no answer is ever sent.
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
        seen.fetch_add(1, Ordering::Relaxed);
    });
    let patient = config(&origin.url()).replace("response: 500ms", "response: 1h");
    let gateway = Gateway::start(&patient);
    for leave in [Connection::reset as fn(Connection), drop] {
        let (before, arrived) = (left.load(Ordering::Relaxed), origin.connections());
        let mut connection = Connection::open(gateway.address());
        connection.send(GET);
        wait_for("the request", || {
            (origin.connections() > arrived).then_some(())
        });
        leave(connection);
        wait_for("the cancellation", || {
            (left.load(Ordering::Relaxed) > before).then_some(())
        });
    }
}

#[test]
fn a_client_that_stops_within_its_body_times_out() {
    let origin = Origin::plain();
    let client = "client: { timeouts: { head: 300ms, body: 300ms, idle: 300ms } }\n";
    let gateway = Gateway::start(&format!("{client}{}", config(&origin.url())));
    let mut connection = Connection::open(gateway.address());
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    let asked = now();
    if let Ok(Some(answer)) = connection.try_receive() {
        assert_eq!(answer.status, 408);
    }
    connection.expect_closed();
    assert!(asked.elapsed() < Duration::from_secs(15), "a bounded wait");
    assert!(origin.requests().is_empty(), "no body was made of a half");
}

#[test]
fn bodies_and_heads_beyond_their_bounds_are_refused() {
    let origin = Origin::plain();
    let client = "client: { max_body: 1KiB, max_head: 8KiB }\n";
    let gateway = Gateway::start(&format!("{client}{}", config(&origin.url())));
    let announced = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\n";
    assert_eq!(
        Connection::open(gateway.address())
            .exchange(announced)
            .status,
        413
    );
    let body = "x".repeat(1024);
    let fits = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n{body}");
    assert_eq!(
        Connection::open(gateway.address()).exchange(&fits).status,
        200
    );
    let chunked = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n{body}\r\n1\r\nx\r\n0\r\n\r\n"
    );
    assert_eq!(
        Connection::open(gateway.address())
            .exchange(&chunked)
            .status,
        413
    );
    let head = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nx-long: {}\r\n\r\n",
        "x".repeat(9000)
    );
    assert_eq!(
        Connection::open(gateway.address()).exchange(&head).status,
        431
    );
    assert_eq!(origin.requests().len(), 1, "only the one that fits");
}

#[test]
fn the_time_for_a_response_starts_with_the_end_of_the_request() {
    let origin = Origin::start(|_| ok("done"));
    let gateway = Gateway::start(&config(&origin.url()));
    let mut connection = Connection::open(gateway.address());
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    // Longer than `timeouts.response` in all.
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(200));
        connection.send("x");
    }
    assert_eq!(connection.receive().text(), "done");
}

/// The upstream takes nothing of a body that is larger than the sockets hold.
#[test]
fn an_upstream_that_stops_taking_the_request_is_a_504() {
    let hole = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let gateway = Gateway::start(&config(&format!(
        "http://{}",
        hole.local_addr().expect("bound")
    )));
    let mut connection = Connection::open(gateway.address());
    let asked = now();
    let length = 64 << 20;
    connection.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
    ));
    let mut writer = connection.writer();
    let sending = std::thread::spawn(move || {
        use std::io::Write;
        let part = vec![b'x'; 1 << 20];
        (0..64).all(|_| writer.write_all(&part).is_ok())
    });
    let answer = connection.receive();
    expect_error(&answer, 504, "sent no response in time");
    assert!(asked.elapsed() < Duration::from_secs(15), "a bounded wait");
    drop(connection);
    drop(sending.join());
}
