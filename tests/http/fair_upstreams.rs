//! Requests that hang at an upstream take no files from other clients, other upstreams or the admin
//! listener: each client and each upstream has a share.

use std::net::SocketAddr;

use crate::support::client::{Connection, connect_from, get};
use crate::support::frames::{Http2, field, get_block, request};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step};
use crate::support::wait_for;

/// The files of the proxy, and how many of them are for clients, and as many for upstreams.
const LIMIT: &str = "ulimit -n 256";
const FILES: f64 = 79.0;

const HEALTHY: &str = "GET /healthy HTTP/1.1\r\nHost: a\r\n\r\n";
const HANGING: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A proxy with few files, a server that answers nothing and one that answers all.
struct Scene {
    gateway: Gateway,
    hanging: Origin,
    _healthy: Origin,
}

impl Scene {
    fn new(more: &str) -> Self {
        let (hanging, healthy) = (Origin::start(|_| vec![Step::Hang]), Origin::plain());
        let gateway = Gateway::start_after(
            LIMIT,
            &format!(
                "{more}
workers: 2
upstreams:
  hanging: {{ endpoints: [\"{}\"] }}
  healthy: {{ endpoints: [\"{}\"] }}
routes:
  - {{ match: {{ path: /healthy }}, upstream: healthy }}
  - {{ upstream: hanging }}
",
                hanging.url(),
                healthy.url()
            ),
        );
        Self {
            gateway,
            hanging,
            _healthy: healthy,
        }
    }

    fn refused(&self, reason: &str) -> f64 {
        let series = format!(
            "sluicegate_upstream_refused_total{{upstream=\"hanging\",reason=\"{reason}\"}}"
        );
        self.gateway.metric(&series).unwrap_or(0.0)
    }

    fn pressure(&self) -> f64 {
        let pressure = self.gateway.metric("sluicegate_connection_pressure_ratio");
        pressure.expect("a gauge")
    }

    /// Waits until so many requests are refused for this reason.
    fn wait_for_refused(&self, reason: &str, count: f64) {
        wait_for("refused requests", || {
            (self.refused(reason) >= count).then_some(())
        });
    }

    /// Checks that another client, the healthy upstream and the admin listener are served, and that
    /// no endpoint is blamed.
    fn expect_service(&self, mut other: Connection) {
        for _ in 0..3 {
            assert_eq!(other.exchange(HEALTHY).status, 200);
        }
        for path in ["/readyz", "/livez", "/metrics"] {
            assert_eq!(get(self.gateway.admin, path).status, 200, "{path}");
        }
        let log = self.gateway.log();
        assert!(!log.contains("the endpoint"), "{log}");
        assert!(!log.contains("Too many open files"), "{log}");
    }

    /// Waits until all that the attack held is free again.
    fn expect_relief(&self) {
        wait_for("the end of the attack", || {
            (self.pressure() < 0.2).then_some(())
        });
    }
}

/// Sends requests that hang over connections of HTTP/2, 100 on each, with the fields that `more`
/// returns for each.
fn hang(connection: Http2, more: impl Fn(u32) -> Vec<u8>) -> Http2 {
    let mut connection = connection;
    for stream in (1..200).step_by(2) {
        let block = [get_block(), more(stream)].concat();
        connection.send(&request(stream, &block));
    }
    connection
}

fn from(client: u8, address: SocketAddr) -> Connection {
    Connection::over(connect_from(client, address))
}

#[test]
fn a_client_with_many_connections_leaves_files_to_others() {
    let scene = Scene::new("");
    let address = scene.gateway.address();
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut connection = from(3, address);
        // The client may have too many connections.
        let _ = connection.try_send(HANGING);
        held.push(connection);
    }
    wait_for("requests that hang", || {
        (scene.hanging.requests().len() as f64 >= FILES * 0.6).then_some(())
    });
    scene.expect_service(from(2, address));
    assert!(scene.pressure() >= 0.7, "{}", scene.pressure());
    drop(held);
    scene.expect_relief();
}

#[test]
fn a_client_with_many_streams_leaves_files_to_others() {
    let scene = Scene::new("");
    let address = scene.gateway.address();
    let attack: Vec<_> = (0..4)
        .map(|_| hang(Http2::over(connect_from(3, address)), |_| Vec::new()))
        .collect();
    scene.wait_for_refused("client_share", 400.0 - FILES * 0.7);
    let line = scene
        .gateway
        .wait_for_log("too many requests in flight at upstreams");
    assert!(line.contains("client=127.0.0.3"), "{line}");
    scene.expect_service(from(2, address));
    assert!(scene.pressure() >= 0.6, "{}", scene.pressure());

    // Others may still use the upstream that hangs; the client is refused at once.
    let before = scene.hanging.requests().len();
    let mut other = from(2, address);
    other.send(HANGING);
    wait_for("the request of another client", || {
        (scene.hanging.requests().len() > before).then_some(())
    });
    let refused = from(3, address).exchange(HANGING);
    assert_eq!(refused.status, 503);
    assert_eq!(refused.expect_header("retry-after"), "1");
    drop((attack, other));
    scene.expect_relief();
    assert_eq!(from(3, address).exchange(HEALTHY).status, 200);
}

#[test]
fn a_client_behind_a_proxy_leaves_files_to_others() {
    let scene = Scene::new("client_ip: { trusted_proxies: [127.0.0.1] }");
    let address = scene.gateway.address();
    // Of IPv6 a client has a whole network.
    let attack: Vec<_> = (0..4)
        .map(|_| {
            hang(Http2::open(address), |stream| {
                field("x-forwarded-for", &format!("2001:db8::{stream}"))
            })
        })
        .collect();
    scene.wait_for_refused("client_share", 400.0 - FILES * 0.7);
    scene.expect_service(from(2, address));
    let ask = |request: &str, client: &str| {
        let request = request.replace("Host", &format!("X-Forwarded-For: {client}\r\nHost"));
        let mut connection = Connection::open(address);
        connection.send(request);
        connection
    };
    assert_eq!(ask(HEALTHY, "2001:db8:0:1::1").receive().status, 200);
    assert_eq!(ask(HANGING, "2001:db8::ffff").receive().status, 503);
    drop(attack);
    scene.expect_relief();
}

/// Many clients ask an upstream that hangs: it takes no more than its share.
#[test]
fn an_upstream_that_hangs_leaves_files_to_others() {
    let scene = Scene::new("client_ip: { trusted_proxies: [127.0.0.1] }");
    let address = scene.gateway.address();
    let attack: Vec<_> = (0..3)
        .map(|connection| {
            hang(Http2::open(address), |stream| {
                let client = format!("198.51.{connection}.{stream}");
                field("x-forwarded-for", &client)
            })
        })
        .collect();
    scene.wait_for_refused("upstream_share", 300.0 - FILES * 0.8);
    scene.expect_service(from(2, address));
    let request = HEALTHY.replace("Host", "X-Forwarded-For: 198.51.0.1\r\nHost");
    let answer = Connection::open(address).exchange(&request);
    assert_eq!(answer.status, 200, "its clients may use the others");
    drop(attack);
    scene.expect_relief();
}
