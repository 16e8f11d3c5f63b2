//! How often, and how long, connections to upstreams are used again.

use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::{Http2Origin, send};
use crate::support::origin::Origin;
use crate::support::wait_for;

fn start(origin: &Origin, connections: &str) -> Gateway {
    Gateway::start(&format!(
        "workers: 1
upstreams: {{ pool: {{ endpoints: [\"{}\"], connections: {connections} }} }}
routes: [{{ upstream: pool }}]
",
        origin.url()
    ))
}

#[test]
fn a_connection_carries_at_most_max_requests() {
    let origin = Origin::plain();
    let gateway = start(&origin, "{ max_requests: 3 }");
    for _ in 0..7 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    let connections: Vec<_> = origin.requests().iter().map(|one| one.connection).collect();
    assert_eq!(connections, [1, 1, 1, 2, 2, 2, 3]);
}

#[test]
fn a_connection_ends_after_max_lifetime() {
    let origin = Origin::plain();
    let gateway = start(&origin, "{ max_lifetime: 1s }");
    wait_for("a second connection", || {
        assert_eq!(get(gateway.address(), "/").status, 200);
        (origin.connections() > 1).then_some(())
    });
    // An idle one ends too.
    let open = "sluicegate_upstream_connections";
    let labels = format!("{{upstream=\"pool\",endpoint=\"{}\"}}", origin.address());
    wait_for("no connection", || {
        (gateway.metric(&format!("{open}{labels}")) == Some(0.0)).then_some(())
    });
}

fn start_http2(origin: &Http2Origin, connections: &str) -> Gateway {
    Gateway::start(&format!(
        "workers: 1
upstreams: {{ pool: {{ endpoints: [\"{}\"], protocol: h2, connections: {connections} }} }}
routes: [{{ upstream: pool }}]
",
        origin.url()
    ))
}

#[test]
fn a_shared_connection_carries_at_most_max_requests() {
    let origin = Http2Origin::plain();
    let gateway = start_http2(&origin, "{ max_requests: 3 }");
    for _ in 0..7 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    let connections: Vec<_> = origin.requests().iter().map(|one| one.connection).collect();
    assert_eq!(connections, [1, 1, 1, 2, 2, 2, 3]);
}

#[test]
fn requests_at_once_share_connections_up_to_max_requests() {
    let origin = Http2Origin::plain();
    let gateway = start_http2(&origin, "{ max_requests: 5 }");
    let address = gateway.address();
    let clients = [(); 8].map(|()| {
        thread::spawn(move || {
            let mut client = Connection::open(address);
            for _ in 0..40 {
                let answer = client.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                assert_eq!(answer.status, 200, "{answer:?}");
            }
        })
    });
    for client in clients {
        client.join().expect("no failure");
    }
    let mut carried = vec![0; origin.connections() + 1];
    for request in origin.requests() {
        carried[request.connection] += 1;
    }
    assert_eq!(carried.iter().sum::<usize>(), 320);
    assert!(carried.iter().all(|&requests| requests <= 5), "{carried:?}");
}

#[test]
fn a_shared_connection_ends_after_max_lifetime_and_its_last_stream() {
    let origin = Http2Origin::start(100, |mut exchange| async move {
        if exchange.head.uri().path() != "/stream" {
            return exchange.answer(b"ok", &[]).await;
        }
        let mut stream = exchange.begin(&[])?;
        for _ in 0..30 {
            send(&mut stream, b"x").await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        stream.send_data(bytes::Bytes::new(), true).ok()
    });
    let gateway = start_http2(&origin, "{ max_lifetime: 1s }");
    let mut client = Connection::open(gateway.address());
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("a second connection", || {
        assert_eq!(get(gateway.address(), "/").status, 200);
        (origin.connections() > 1).then_some(())
    });
    assert_eq!(client.receive().text(), "x".repeat(30));
    let labels = format!("{{upstream=\"pool\",endpoint=\"{}\"}}", origin.address());
    let open = format!("sluicegate_upstream_connections{labels}");
    wait_for("no connection", || {
        (gateway.metric(&open) == Some(0.0)).then_some(())
    });
}
