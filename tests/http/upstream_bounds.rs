//! `connections.max`: never more requests at an address, whatever worker they come from. Others wait,
//! first in, first out, for a time.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::{fs, thread};

use serde_json::Value;
use tokio::sync::Semaphore;

use crate::support::client::{Connection, get, get_with};
use crate::support::frames::{CANCEL, Http2, RST_STREAM, frame, get_block, request};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::Http2Origin;
use crate::support::origin::{Origin, Step, free_address, ok};
use crate::support::slow::{ALL, Slow};
use crate::support::wait_for;

fn config(endpoints: &[String], connections: &str, options: &str) -> String {
    format!(
        "workers: 4
access_log: {{ path: access.log }}
upstreams: {{ pool: {{ endpoints: {endpoints:?}, connections: {{ {connections} }}{options} }} }}
routes: [{{ upstream: pool }}]
"
    )
}

fn before(slow: &Slow, connections: &str) -> Gateway {
    Gateway::start(&config(&[slow.origin.url()], connections, ""))
}

fn ask(gateway: &Gateway, path: &str) -> Connection {
    let mut connection = Connection::open(gateway.address());
    connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    connection
}

fn pending(gateway: &Gateway) -> usize {
    let series = "sluicegate_upstream_pending{upstream=\"pool\"}";
    gateway.metric(series).unwrap_or(0.0) as usize
}

fn refused(gateway: &Gateway, reason: &str) -> usize {
    let labels = format!("{{upstream=\"pool\",reason=\"{reason}\"}}");
    let series = format!("sluicegate_upstream_pending_refused_total{labels}");
    gateway.metric(&series).unwrap_or(0.0) as usize
}

#[track_caller]
fn wait_until_pending(gateway: &Gateway, expected: usize) {
    wait_for(&format!("{expected} requests that wait"), || {
        (pending(gateway) == expected).then_some(())
    });
}

/// Sends a request, and waits until `expected` requests wait.
#[track_caller]
fn join(gateway: &Gateway, path: &str, expected: usize) -> Connection {
    let client = ask(gateway, path);
    wait_until_pending(gateway, expected);
    client
}

#[track_caller]
fn wait_until_seen(slow: &Slow, requests: usize) {
    wait_for("requests at the origin", || {
        (slow.gate.seen().len() == requests).then_some(())
    });
}

/// The lines of the access log, once there are so many.
fn lines(gateway: &Gateway, count: usize) -> Vec<Value> {
    let path = gateway.dir().join("access.log");
    wait_for("the access log", || {
        let text = fs::read_to_string(&path).ok()?;
        let lines = text.lines().map(serde_json::from_str);
        let lines: Vec<Value> = lines.collect::<Result<_, _>>().ok()?;
        (lines.len() >= count).then_some(lines)
    })
}

fn open_connections(gateway: &Gateway, endpoint: SocketAddr) -> usize {
    let labels = format!("{{upstream=\"pool\",endpoint=\"{endpoint}\"}}");
    let series = format!("sluicegate_upstream_connections{labels}");
    gateway.metric(&series).unwrap_or(0.0) as usize
}

#[test]
fn of_a_burst_over_all_workers_no_more_than_max_are_at_the_origin() {
    let slow = Slow::start();
    let gateway = before(&slow, "max: 5, max_wait: 1m");
    let address = gateway.address();
    let clients: Vec<_> = (0..60)
        .map(|_| thread::spawn(move || get(address, "/").status))
        .collect();
    wait_until_pending(&gateway, 55);
    wait_until_seen(&slow, 5);
    slow.gate.let_pass(ALL);
    for client in clients {
        assert_eq!(client.join().expect("a status"), 200);
    }
    assert_eq!(slow.gate.most(), 5);
    assert_eq!(pending(&gateway), 0);
    assert!(open_connections(&gateway, slow.origin.address()) <= 5);
    let waits = gateway.metric("sluicegate_upstream_pending_seconds_count{upstream=\"pool\"}");
    assert_eq!(waits, Some(55.0));
    let waited = |line: &&Value| line["pending_ms"].as_f64() > Some(0.0);
    assert_eq!(lines(&gateway, 60).iter().filter(waited).count(), 55);
}

#[test]
fn idle_connections_of_all_workers_are_within_max() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&config(&[origin.url()], "max: 2", ""));
    // The kernel spreads connections over the workers.
    let mut clients: Vec<_> = (0..32).map(|_| ask(&gateway, "/")).collect();
    for _ in 0..4 {
        for client in &mut clients {
            assert_eq!(client.receive().status, 200);
            assert!(open_connections(&gateway, origin.address()) <= 2);
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
    }
    for client in &mut clients {
        assert_eq!(client.receive().status, 200);
    }
    assert!(origin.connections() > 2, "idle ones gave way");
}

#[test]
fn slots_go_to_waiting_requests_in_order_and_a_client_that_leaves_blocks_none() {
    let slow = Slow::start();
    let gateway = before(&slow, "max: 1, max_pending: 3, max_wait: 1m");
    let mut first = ask(&gateway, "/first");
    wait_until_seen(&slow, 1);
    let leaves_first = join(&gateway, "/0", 1);
    let mut second = join(&gateway, "/second", 2);
    let leaves_last = join(&gateway, "/1", 3);
    assert_eq!(get(gateway.address(), "/full").status, 503);
    leaves_first.reset();
    wait_until_pending(&gateway, 2);
    let mut third = join(&gateway, "/third", 3);
    drop(leaves_last);
    wait_until_pending(&gateway, 2);
    let mut client = Http2::open(gateway.address());
    client.send(&request(1, &get_block()));
    wait_until_pending(&gateway, 3);
    client.send(&frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()));
    wait_until_pending(&gateway, 2);
    for served in [&mut first, &mut second, &mut third] {
        slow.gate.let_pass(1);
        assert_eq!(served.receive().status, 200);
    }
    assert_eq!(slow.gate.seen(), ["/first", "/second", "/third"]);
    assert_eq!(slow.gate.most(), 1);
    let lines = lines(&gateway, 7);
    let left = lines.iter().filter(|line| line["status"] == 499);
    assert!(
        left.clone()
            .all(|line| line["pending_ms"].as_f64() > Some(0.0))
    );
    assert_eq!(left.count(), 3);
}

#[test]
fn more_than_max_pending_are_refused_at_once() {
    let slow = Slow::start();
    let gateway = before(&slow, "max: 1, max_pending: 1, max_wait: 1m");
    let mut first = ask(&gateway, "/");
    wait_until_seen(&slow, 1);
    let mut second = join(&gateway, "/", 1);
    let full = get(gateway.address(), "/full");
    assert_eq!((full.status, full.expect_header("retry-after")), (503, "1"));
    let call = get_with(gateway.address(), "/", "Content-Type: application/grpc\r\n");
    assert_eq!(call.expect_header("grpc-status"), "14", "UNAVAILABLE");
    assert_eq!(refused(&gateway, "full"), 2);
    slow.gate.let_pass(ALL);
    assert_eq!(first.receive().status, 200);
    assert_eq!(second.receive().status, 200);
    let lines = lines(&gateway, 4);
    let line = lines.iter().find(|line| line["path"] == "/full");
    let line = line.expect("a line");
    assert_eq!(line["error"], "pending_full");
    assert_eq!(
        (&line["upstream"], &line["endpoint"]),
        (&"pool".into(), &Value::Null)
    );
    gateway.wait_for_log("no free slot, and 1 requests wait for one (connections.max_pending)");
}

#[test]
fn a_wait_ends_with_503_after_max_wait() {
    let slow = Slow::start();
    let gateway = before(&slow, "max: 1, max_wait: 200ms");
    let mut first = ask(&gateway, "/");
    wait_until_seen(&slow, 1);
    let late = get(gateway.address(), "/late");
    assert_eq!((late.status, late.expect_header("retry-after")), (503, "1"));
    assert_eq!(refused(&gateway, "timeout"), 1);
    slow.gate.let_pass(ALL);
    assert_eq!(first.receive().status, 200);
    let lines = lines(&gateway, 2);
    assert_eq!(lines[0]["error"], "pending_timeout");
    assert!(
        lines[0]["pending_ms"].as_f64() >= Some(200.0),
        "{}",
        lines[0]
    );
    assert_eq!(get(gateway.address(), "/").status, 200);
}

#[test]
fn the_time_for_the_whole_request_includes_the_wait() {
    let slow = Slow::start();
    let config = config(
        &[slow.origin.url()],
        "max: 1, max_wait: 1m",
        ", timeouts: { request: 300ms }",
    );
    let gateway = Gateway::start(&config);
    let first = ask(&gateway, "/");
    wait_until_seen(&slow, 1);
    assert_eq!(get(gateway.address(), "/late").status, 504);
    drop(first);
    slow.gate.let_pass(ALL);
}

/// A client that reads nothing holds its slot no longer than the request may take, over both versions
/// of HTTP.
#[test]
fn the_time_for_the_whole_request_ends_for_clients_that_do_not_read() {
    let large = "x".repeat(32 << 20);
    let origin = Origin::start(move |request| match &*request.target {
        "/small" => ok("ok"),
        _ => ok(&large),
    });
    let options = ", timeouts: { request: 500ms }";
    let config = config(&[origin.url()], "max: 1, max_wait: 1m", options);
    let gateway = Gateway::start(&config);
    let unread = ask(&gateway, "/");
    let first = lines(&gateway, 1).remove(0);
    let mut http2 = Http2::open(gateway.address());
    http2.send(&request(1, &get_block()));
    let second = lines(&gateway, 2).remove(1);
    for line in [first, second] {
        assert_eq!(line["error"], "request_timeout", "{line}");
    }
    assert_eq!(get(gateway.address(), "/small").status, 200);
    drop((unread, http2));
}

#[test]
fn a_reload_raises_and_lowers_the_bound() {
    let slow = Slow::start();
    let url = [slow.origin.url()];
    let bounded = |max| config(&url, &format!("max: {max}, max_wait: 1m"), "");
    let gateway = Gateway::start(&bounded(1));
    let mut clients = vec![ask(&gateway, "/")];
    wait_until_seen(&slow, 1);
    clients.extend((0..5).map(|number| join(&gateway, "/", number + 1)));
    gateway.reload(&bounded(4));
    wait_until_seen(&slow, 4);
    assert_eq!(pending(&gateway), 2);
    gateway.reload(&bounded(2));
    slow.gate.let_pass(2);
    wait_for("two ends", || (lines(&gateway, 2).len() == 2).then_some(()));
    assert_eq!((pending(&gateway), slow.gate.seen().len()), (2, 4));
    clients.push(join(&gateway, "/", 3));
    slow.gate.let_pass(1);
    wait_until_seen(&slow, 5);
    slow.gate.let_pass(ALL);
    for client in &mut clients {
        assert_eq!(client.receive().status, 200);
    }
    assert_eq!(slow.gate.most(), 4);
}

#[test]
fn requests_that_wait_go_to_the_hosts_that_are_left() {
    let (breaks, held) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (is_broken, counted) = (Arc::clone(&breaks), Arc::clone(&held));
    let bad = Origin::start(move |_| {
        counted.fetch_add(1, SeqCst);
        wait_for("the test", || is_broken.load(SeqCst).then_some(()));
        vec![Step::Reset]
    });
    let good = Slow::start();
    let gateway = Gateway::start(&config(
        &[bad.url(), good.origin.url()],
        "max: 1, max_wait: 1m",
        ", ejection: { consecutive_failures: 1, for: 1h, max_for: 1h }",
    ));
    let mut clients = vec![ask(&gateway, "/"), ask(&gateway, "/")];
    wait_for("a request at each", || {
        (held.load(SeqCst) == 1 && good.gate.seen().len() == 1).then_some(())
    });
    clients.extend((0..3).map(|number| join(&gateway, "/", number + 1)));
    breaks.store(true, SeqCst);
    // The request that was reset waits for the other host, behind those that have waited before.
    wait_until_pending(&gateway, 4);
    good.gate.let_pass(ALL);
    for client in &mut clients {
        assert_eq!(client.receive().status, 200);
    }
    assert_eq!((held.load(SeqCst), good.gate.seen().len()), (1, 5));
    assert_eq!(good.gate.most(), 1);
}

#[test]
fn a_response_that_may_be_retried_is_passed_on_if_no_other_host_has_a_slot() {
    let busy = Origin::start(|_| crate::support::origin::answer(503, "busy"));
    let slow = Slow::start();
    let gateway = Gateway::start(&config(
        &[busy.url(), slow.origin.url()],
        "max: 1, max_wait: 1m",
        ", ejection: off, retries: { retry_on: [\"503\"] }",
    ));
    let mut first = ask(&gateway, "/");
    wait_until_seen(&slow, 1);
    let second = get(gateway.address(), "/");
    assert_eq!((second.status, second.text().as_str()), (503, "busy"));
    slow.gate.let_pass(ALL);
    assert_eq!(first.receive().status, 200);
}

/// Answers requests over HTTP/2 once `gate` has a permit for each, and counts those inside.
fn gated(gate: &Arc<Semaphore>, most: &Arc<AtomicUsize>) -> Http2Origin {
    let inside = Arc::new(AtomicUsize::new(0));
    let (gate, most) = (Arc::clone(gate), Arc::clone(most));
    Http2Origin::start(100, move |mut exchange| {
        let (gate, inside, most) = (Arc::clone(&gate), Arc::clone(&inside), Arc::clone(&most));
        async move {
            most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
            gate.acquire().await.ok()?.forget();
            inside.fetch_sub(1, SeqCst);
            exchange.answer(b"ok", &[]).await
        }
    })
}

#[test]
fn over_http2_the_requests_are_bounded() {
    let (gate, most) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let origin = gated(&gate, &most);
    let gateway = Gateway::start(&config(
        &[origin.url()],
        "max: 3, max_wait: 1m",
        ", protocol: h2",
    ));
    let mut clients: Vec<_> = (0..20).map(|_| ask(&gateway, "/")).collect();
    wait_until_pending(&gateway, 17);
    wait_for("three requests", || {
        (origin.requests().len() == 3).then_some(())
    });
    gate.add_permits(20);
    for client in &mut clients {
        assert_eq!(client.receive().status, 200);
    }
    assert_eq!(most.load(SeqCst), 3);
}

#[test]
fn a_websocket_keeps_its_slot() {
    let origin = Origin::start(|request| match request.target.as_str() {
        "/chat" => {
            let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                        Upgrade: websocket\r\n\r\n";
            vec![Step::Send(head.into()), Step::Hang]
        }
        _ => ok("ok"),
    });
    let gateway = Gateway::start(&config(&[origin.url()], "max: 1, max_wait: 1m", ""));
    let mut socket = Connection::open(gateway.address());
    let upgrade = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.send(upgrade);
    assert_eq!(socket.read_exactly(12), b"HTTP/1.1 101");
    let mut waits = join(&gateway, "/", 1);
    drop(socket);
    assert_eq!(waits.receive().status, 200);
}

/// A server that takes requests and answers none, until it is killed.
struct Silent {
    stopped: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    address: SocketAddr,
}

impl Silent {
    fn start() -> Self {
        let address = free_address();
        let listener = TcpListener::bind(address).expect("a free port");
        let stopped = Arc::new(AtomicBool::new(false));
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (stop, taken) = (Arc::clone(&stopped), Arc::clone(&streams));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stop.load(SeqCst) {
                    return;
                }
                taken.lock().expect("no holder panics").push(stream);
            }
        });
        Silent {
            stopped,
            streams,
            address,
        }
    }

    fn connections(&self) -> usize {
        self.streams.lock().expect("no holder panics").len()
    }

    fn kill(&self) {
        self.stopped.store(true, SeqCst);
        drop(TcpStream::connect(self.address));
        wait_for("the port to be closed", || {
            TcpStream::connect(self.address).is_err().then_some(())
        });
        for stream in self.streams.lock().expect("no holder panics").iter() {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

#[test]
fn many_that_wait_for_a_server_that_dies_are_answered_and_its_slots_come_back() {
    let server = Silent::start();
    let url = format!("http://{}", server.address);
    let gateway = Gateway::start(&config(&[url], "max: 2, max_wait: 1m", ""));
    let mut clients: Vec<_> = (0..40).map(|_| ask(&gateway, "/")).collect();
    wait_until_pending(&gateway, 38);
    wait_for("two connections", || {
        (server.connections() == 2).then_some(())
    });
    server.kill();
    for client in &mut clients {
        assert_eq!(client.receive().status, 502);
    }
    assert_eq!(pending(&gateway), 0);
    let back = Origin::plain_at(server.address);
    for _ in 0..4 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    assert_eq!(back.requests().len(), 4);
}
