//! A process without free file descriptors: open connections are served, new ones wait, and one log
//! line says so.

use std::fs;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, connect_from, get};
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::{now, wait_for};
use rustix::process::{Resource, Rlimit, prlimit};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const ECHO: &str = "routes: [{ upstream: echo }]\n";

/// The number of descriptors below `limit` that the proxy does not use.
fn unused(gateway: &Gateway, limit: u64) -> u64 {
    let pid = gateway.pid().as_raw_nonzero();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("a child's files can be listed");
    let number = |file: fs::DirEntry| file.file_name().to_str()?.parse().ok();
    let used = files.map_while(Result::ok).filter_map(number);
    limit - used.filter(|number: &u64| *number < limit).count() as u64
}

/// Lets the proxy open ten files more, and has clients use them all.
fn crowd(gateway: &Gateway) -> Vec<TcpStream> {
    let limit = (0..).find(|limit| unused(gateway, *limit) == 10);
    let limit = limit.expect("few are used");
    let few = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    prlimit(Some(gateway.pid()), Resource::Nofile, few).expect("a child's limits can be lowered");
    let connect = || TcpStream::connect(gateway.address()).expect("the kernel queues it");
    let crowd = std::iter::repeat_with(connect).take(60).collect();
    wait_for("the last descriptor", || {
        (unused(gateway, limit) == 0).then_some(())
    });
    crowd
}

/// The sum of a metric family over its series, read over an open connection.
fn sum(admin: &mut Connection, family: &str) -> f64 {
    let metrics = admin.exchange("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let text = metrics.text();
    let series = text
        .lines()
        .filter(|line| line.starts_with(&format!("{family}{{")));
    let values = series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

/// The number of log lines that contain `text`.
fn lines(gateway: &Gateway, text: &str) -> usize {
    let log = gateway.log();
    log.lines().filter(|line| line.contains(text)).count()
}

#[test]
fn clients_beyond_the_limit_wait_and_the_others_are_served() {
    let gateway = Gateway::start(ECHO);
    let mut admin = Connection::open(gateway.admin);
    let mut served = Connection::open(gateway.address());
    assert_eq!(served.exchange(GET).status, 200);
    // Its connection has a descriptor before there are none.
    assert_eq!(
        admin
            .exchange("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .status,
        200
    );

    let crowd = crowd(&gateway);
    wait_for("failures to accept", || {
        (sum(&mut admin, "sluicegate_accept_errors_total") > 3.0).then_some(())
    });
    assert_eq!(served.exchange(GET).status, 200);

    // One leaves, one comes: each time a connection is accepted, and the next is not.
    let mut crowd = crowd.into_iter();
    for _ in 0..20 {
        drop(crowd.next());
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(served.exchange(GET).status, 200);
    // The admin listener may have a line of its own: Linux looks for a descriptor before it looks for a client.
    let line = format!(
        "Too many open files (os error 24) listener={}",
        gateway.address()
    );
    assert_eq!(lines(&gateway, &line), 1, "{}", gateway.log());

    let left = now();
    drop(crowd);
    assert_eq!(get(gateway.address(), "/").status, 200);
    assert!(left.elapsed() < Duration::from_secs(10), "{left:?}");
    assert_eq!(get(gateway.admin, "/livez").status, 200);
    assert!(gateway.log().lines().count() < 10, "{}", gateway.log());
}

#[test]
fn a_request_without_a_file_for_its_upstream_gets_503_and_blames_no_endpoint() {
    let origin = Origin::plain();
    let port = origin.address().port();
    // A name was resolved at the start, and its address stays in use.
    for host in ["127.0.0.1", "localhost"] {
        let config = format!("routes: [{{ upstream: \"http://{host}:{port}\" }}]\n");
        let gateway = Gateway::start(&config);
        let mut admin = Connection::open(gateway.admin);
        let mut served = Connection::open(gateway.address());
        wait_for("two connections", || {
            (sum(&mut admin, "sluicegate_connections") == 2.0).then_some(())
        });
        wait_for("the address of the name", || {
            (sum(&mut admin, "sluicegate_upstream_hosts") > 0.0).then_some(())
        });
        let crowd = crowd(&gateway);
        for _ in 0..20 {
            let asked = now();
            let refused = served.exchange(GET);
            assert_eq!(refused.status, 503);
            assert_eq!(refused.expect_header("retry-after"), "1");
            assert!(asked.elapsed() < Duration::from_secs(2), "no wait");
        }
        let line = gateway.wait_for_log("no connection, for lack of resources of this machine");
        assert!(line.contains("Too many open files"), "{line}");
        let log = gateway.log();
        assert!(log.matches("no connection").count() < 4, "{log}");
        assert!(
            !log.contains("the endpoint") && !log.contains("no response"),
            "{log}"
        );
        for family in ["failures", "ejections"] {
            let family = format!("sluicegate_upstream_{family}_total");
            assert_eq!(sum(&mut admin, &family), 0.0);
        }
        assert_eq!(sum(&mut admin, "sluicegate_upstream_refused_total"), 20.0);
        let pressure = admin.exchange("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(
            pressure
                .text()
                .contains("\nsluicegate_connection_pressure_ratio 1\n")
        );

        drop(crowd);
        wait_for("an answer of the origin", || {
            (served.exchange(GET).status == 200).then_some(())
        });
    }
}

#[test]
fn the_soft_limit_is_raised_and_a_low_hard_limit_is_reported() {
    let few = format!("workers: 2\n{ECHO}");
    let gateway = Gateway::start_after("ulimit -S -n 64; ulimit -H -n 400", &few);
    assert_eq!(gateway.metric("process_max_fds"), Some(400.0));
    gateway.wait_for_log("151 clients are served at a time");

    let enough = format!("client: {{ max_connections: 151 }}\n{few}");
    let gateway = Gateway::start_after("ulimit -S -n 64; ulimit -H -n 400", &enough);
    assert!(
        !gateway.log().contains("max_connections"),
        "{}",
        gateway.log()
    );
}

#[test]
fn client_connections_leave_descriptors_for_upstreams() {
    let origin = Origin::plain();
    let config = format!(
        "workers: 2\nclient: {{ max_connections_per_client: 200 }}\nroutes: [{{ upstream: \"{}\" }}]\n",
        origin.url()
    );
    let gateway = Gateway::start_after("ulimit -n 200", &config);
    let mut admin = Connection::open(gateway.admin);
    // Requests in flight, each with a connection to the upstream: idle connections would give way.
    let connect = |client| {
        let mut connection = Connection::over(connect_from(client, gateway.address()));
        connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n");
        connection
    };
    let mut served: Vec<_> = (100..120).map(connect).collect();
    wait_for("all who are to be served", || {
        (sum(&mut admin, "sluicegate_connections") == 21.0).then_some(())
    });
    let crowd: Vec<_> = (120..220).map(connect).collect();
    wait_for("as many as there are files for", || {
        (sum(&mut admin, "sluicegate_connections") == 52.0).then_some(())
    });
    for connection in &mut served {
        assert_eq!(connection.exchange("x").status, 200);
    }
    assert_eq!(get(gateway.admin, "/livez").status, 200);
    drop(crowd);
    assert_eq!(get(gateway.address(), "/").status, 200);
}
