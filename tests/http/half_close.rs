//! Clients that half-close (FIN) before their response: `client.half_close` in clear text and over
//! TLS.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::client::Connection;
use crate::support::frames::{Http2, get_block, request};
use crate::support::gateway::{Gateway, with_free_ports};
use crate::support::origin::{Origin, Step, ok};
use crate::support::{now, tls, wait_for};

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// An origin that answers after this time.
fn late(time: Duration) -> Origin {
    Origin::start(move |_| [vec![Step::Pause(time)], ok("late")].concat())
}

fn before(url: &str, half_close: &str) -> Gateway {
    Gateway::start(&format!(
        "client: {{ half_close: {half_close} }}\nroutes: [{{ upstream: '{url}' }}]\n"
    ))
}

/// An origin that never answers, and how many connections to it have been closed.
fn silent() -> (Origin, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&left);
    let origin = Origin::raw(move |mut stream| {
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
        seen.fetch_add(1, Ordering::Relaxed);
    });
    (origin, left)
}

#[test]
fn serve_waits_for_a_late_response() {
    let origin = late(Duration::from_millis(1500));
    let gateway = before(&origin.url(), "serve");
    let mut connection = Connection::open(gateway.address());
    connection.send(GET);
    connection.finish_sending();
    assert_eq!(connection.receive().text(), "late");
    connection.expect_closed();
}

#[test]
fn a_response_within_the_grace_is_delivered() {
    let origin = late(Duration::from_millis(200));
    let gateway = before(&origin.url(), "1h");
    let mut connection = Connection::open(gateway.address());
    connection.send(GET.repeat(2));
    connection.finish_sending();
    assert_eq!(connection.receive().text(), "late");
    assert_eq!(connection.receive().text(), "late");
    connection.expect_closed();
}

#[test]
fn after_the_grace_the_request_is_cancelled() {
    let (origin, left) = silent();
    for (half_close, grace) in [("0s", 0), ("300ms", 300), ("1s", 1000)] {
        let gateway = before(&origin.url(), half_close);
        let (arrived, before) = (origin.connections(), left.load(Ordering::Relaxed));
        let mut connection = Connection::open(gateway.address());
        connection.send(GET);
        wait_for("the request", || {
            (origin.connections() > arrived).then_some(())
        });
        let ended = now();
        connection.finish_sending();
        connection.expect_closed();
        assert!(
            ended.elapsed() >= Duration::from_millis(grace),
            "{half_close}"
        );
        wait_for("the cancellation", || {
            (left.load(Ordering::Relaxed) > before).then_some(())
        });
    }
}

/// A client that half-closes during the response is served as long as writes succeed.
#[test]
fn without_grace_a_begun_response_is_cancelled() {
    let origin = Origin::raw(|mut stream| {
        let mut head = [0; 4096];
        let _ = stream.read(&mut head);
        let begun = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun";
        let _ = stream.write_all(begun.as_bytes());
        // Until the proxy closes.
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
    });
    let gateway = before(&origin.url(), "0s");
    let mut connection = Connection::open(gateway.address());
    connection.send(GET);
    connection.receive_head();
    assert_eq!(connection.read_exactly(5), b"begun");
    connection.finish_sending();
    connection.expect_closed();
}

fn over_tls(origin: &Origin, half_close: &str) -> Gateway {
    let dir = tempfile::tempdir().expect("a temporary directory");
    tls::certify(dir.path(), "a", &["a.example"]);
    let config = format!(
        "client: {{ half_close: {half_close} }}\n\
         listeners: [{{ address: 127.0.0.1:0, tls: {{ certificates: [{{ certificate: a.pem, key: a.key }}] }} }}]\n\
         routes: [{{ upstream: '{}' }}]\n",
        origin.url()
    );
    std::fs::write(dir.path().join("sluicegate.yaml"), with_free_ports(&config))
        .expect("the directory is writable");
    Gateway::start_with(dir, ["run", "--config", "sluicegate.yaml"])
}

/// close_notify ends one direction only (RFC 8446 section 6.1).
#[test]
fn close_notify_is_a_half_close() {
    let origin = late(Duration::from_millis(1500));
    let gateway = over_tls(&origin, "serve");
    let certificate = gateway.dir().join("a.pem");
    let mut session = tls::connect(gateway.address(), "a.example", &certificate, &[]);
    session.write_all(GET.as_bytes()).expect("it is open");
    session.conn.send_close_notify();
    session.flush().expect("it is open");
    let mut answer = String::new();
    session
        .read_to_string(&mut answer)
        .expect("it ends in order");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.ends_with("late"), "{answer}");
}

/// Also in both directions of a WebSocket: the origin closes first, and receives the client's later
/// bytes.
#[test]
fn close_notify_passes_through_a_tunnel() {
    static HEARD: AtomicUsize = AtomicUsize::new(0);
    let origin = Origin::raw(|mut stream| {
        let mut head = [0; 4096];
        let _ = stream.read(&mut head);
        let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
            Connection: upgrade\r\nSec-WebSocket-Accept: x\r\n\r\ngoodbye";
        let _ = stream.write_all(switched.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut heard = Vec::new();
        if stream.read_to_end(&mut heard).is_ok() && heard == b"and goodbye" {
            HEARD.fetch_add(1, Ordering::Relaxed);
        }
    });
    let gateway = over_tls(&origin, "0s");
    let certificate = gateway.dir().join("a.pem");
    let mut session = tls::connect(gateway.address(), "a.example", &certificate, &[]);
    let handshake = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    session.write_all(handshake.as_bytes()).expect("it is open");
    let mut answer = String::new();
    session
        .read_to_string(&mut answer)
        .expect("it ends in order");
    assert!(answer.ends_with("\r\n\r\ngoodbye"), "{answer}");
    session
        .write_all(b"and goodbye")
        .expect("it is open this way");
    session.conn.send_close_notify();
    session.flush().expect("it is open this way");
    wait_for("the origin to hear it", || {
        (HEARD.load(Ordering::Relaxed) > 0).then_some(())
    });
}

/// A FIN without close_notify is a truncation (RFC 8446 section 6.1): the request is cancelled.
#[test]
fn a_tls_connection_that_is_cut_off_ends_at_once() {
    let (origin, left) = silent();
    let gateway = over_tls(&origin, "serve");
    let certificate = gateway.dir().join("a.pem");
    let mut session = tls::connect(gateway.address(), "a.example", &certificate, &[]);
    session.write_all(GET.as_bytes()).expect("it is open");
    session.flush().expect("it is open");
    wait_for("the request", || (origin.connections() > 0).then_some(()));
    let shut = session.sock.shutdown(std::net::Shutdown::Write);
    shut.expect("a connected socket");
    wait_for("the cancellation", || {
        (left.load(Ordering::Relaxed) > 0).then_some(())
    });
}

/// In HTTP/2 streams half-close (END_STREAM), not connections.
#[test]
fn an_http2_connection_ends_when_the_client_closes() {
    let (origin, left) = silent();
    let gateway = before(&origin.url(), "serve");
    let mut connection = Http2::open(gateway.address());
    connection.send(&request(1, &get_block()));
    wait_for("the request", || (origin.connections() > 0).then_some(()));
    connection.finish_sending();
    wait_for("the cancellation", || {
        (left.load(Ordering::Relaxed) > 0).then_some(())
    });
}
