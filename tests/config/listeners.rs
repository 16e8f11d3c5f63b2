//! Reloads of listeners, of the admin address, and of bounds for clients: they take effect at once,
//! an address in use changes nothing, and no request is lost.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::admin::{AdminClient, READER};
use crate::support::client::{Connection, get};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, free_address, ok};
use crate::support::{tls, wait_for};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A configuration with these listeners.
fn with_listeners(listeners: &[String]) -> String {
    let listeners = listeners.join(", ");
    format!("workers: 2\nlisteners: [{listeners}]\nroutes: [{{ upstream: echo }}]\n")
}

fn plain(address: SocketAddr) -> String {
    format!("{{ address: \"{address}\" }}")
}

fn refuses(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err()
}

/// The open files and the threads of the proxy.
fn files_and_threads(gateway: &Gateway) -> [usize; 2] {
    let pid = gateway.pid().as_raw_nonzero();
    ["fd", "task"].map(|kind| {
        let entries = fs::read_dir(format!("/proc/{pid}/{kind}"));
        entries.expect("a child's files can be listed").count()
    })
}

/// A client that opens another connection after `Connection: close`, as RFC 9112 section 9.6 asks.
fn ask_until(address: SocketAddr, done: &AtomicBool, served: &AtomicUsize) {
    let mut connection = Connection::open(address);
    while !done.load(Ordering::Relaxed) {
        let answer = connection.exchange(GET);
        assert_eq!(answer.status, 200, "{answer:?}");
        if answer.header("connection") == Some("close") {
            connection = Connection::open(address);
        }
        served.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn fifty_changes_under_load_lose_no_request_no_file_and_no_thread() {
    let [steady, changing, passing] = [(); 3].map(|()| free_address());
    let with = |more: &[String]| with_listeners(&[&[plain(steady)], more].concat());
    let gateway = Gateway::start(&with(&[plain(changing)]));
    let h1 = format!("{{ address: \"{changing}\", protocols: [http/1.1] }}");
    let cycle = || {
        gateway.reload(&with(&[h1.clone(), plain(passing)]));
        assert_eq!(get(passing, "/").status, 200);
        gateway.reload(&with(&[plain(changing)]));
        assert!(refuses(passing));
    };
    cycle();
    let before = wait_for("a quiet proxy", || {
        let one = files_and_threads(&gateway);
        thread::sleep(Duration::from_millis(50));
        (one == files_and_threads(&gateway)).then_some(one)
    });
    let (done, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for address in [steady, steady, changing, changing] {
            let (done, served) = (&done, &served);
            scope.spawn(move || ask_until(address, done, served));
        }
        let reloading = scope.spawn(|| (0..50).for_each(|_| cycle()));
        let reloaded = reloading.join();
        done.store(true, Ordering::Relaxed);
        reloaded.expect("every reload succeeds");
    });
    assert!(served.into_inner() > 1_000, "there was load");
    wait_for("no more files and threads than before", || {
        let [files, threads] = files_and_threads(&gateway);
        (files <= before[0] && threads <= before[1]).then_some(())
    });
    let log = gateway.log();
    assert!(
        log.contains(&format!("no longer listening address={passing}")),
        "{log}"
    );
    assert!(!log.contains("take effect at a restart"), "{log}");
}

#[test]
fn requests_at_a_removed_listener_are_finished_or_answered_at_the_deadline() {
    let origin = Origin::start(|request| match request.target.as_str() {
        "/slow" => [vec![Step::Pause(Duration::from_millis(400))], ok("late")].concat(),
        _ => vec![Step::Hang],
    });
    let [kept, removed] = [(); 2].map(|()| free_address());
    let with = |listeners: &[String]| {
        format!(
            "listeners: [{}]\nshutdown: {{ deadline: 2s }}\nroutes: [{{ upstream: \"{}\" }}]\n",
            listeners.join(", "),
            origin.url()
        )
    };
    let gateway = Gateway::start(&with(&[plain(kept), plain(removed)]));
    let [mut slow, mut hanging] = ["/slow", "/hang"].map(|path| {
        let mut connection = Connection::open(removed);
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        connection
    });
    let mut idle = Connection::open(removed);
    let mut other = Connection::open(kept);
    other.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("the requests", || {
        (origin.requests().len() == 3).then_some(())
    });
    gateway.reload(&with(&[plain(kept)]));
    assert!(refuses(removed));
    let answer = slow.receive();
    assert_eq!((answer.status, answer.text().as_str()), (200, "late"));
    assert_eq!(answer.header("connection"), Some("close"));
    idle.expect_closed();
    let answer = hanging.receive();
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.header("connection"), Some("close"));
    hanging.expect_closed();
    assert_eq!(
        gateway.metric(&format!("sluicegate_connections{{listener=\"{kept}\"}}")),
        Some(1.0)
    );
}

#[test]
fn an_address_in_use_changes_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = (taken.local_addr().expect("bound"), taken);
    let [first, second] = [(); 2].map(|()| free_address());
    let admin = format!("admin: {{ address: 127.0.0.1:0, tokens: {{ read: [{READER}] }} }}\n");
    let with = |addresses: &[SocketAddr], quota: usize| {
        let addresses: Vec<_> = addresses.iter().map(|one| plain(*one)).collect();
        format!(
            "{admin}policies: {{ all: {{ key: constant, quota: {quota}/300d }} }}
listeners: [{}]\nroutes: [{{ upstream: echo, limits: [all] }}]\n",
            addresses.join(", ")
        )
    };
    let gateway = Gateway::start(&with(&[first], 1));
    gateway.replace_config(&with(&[second, taken.0], 9));
    let line = gateway.wait_for_log("the configuration is not reloaded");
    assert!(
        line.contains(&format!("address in use: something listens on {}", taken.0)),
        "{line}"
    );
    assert!(refuses(second));
    let statuses = [(); 2].map(|()| get(first, "/").status);
    assert_eq!(statuses, [200, 429], "the quota stays");
    let shown = AdminClient::new(&gateway, READER)
        .read("/v1/config")
        .to_string();
    assert!(shown.contains("quota: 1/300d"), "{shown}");
    // The address that was bound in vain is free again, and so is the other.
    drop(taken.1);
    gateway.reload(&with(&[second, taken.0], 9));
    assert!(refuses(first));
    assert_eq!(
        [second, taken.0].map(|address| get(address, "/").status),
        [200, 200]
    );
    let shown = AdminClient::new(&gateway, READER)
        .read("/v1/config")
        .to_string();
    assert!(shown.contains("quota: 9/300d"), "{shown}");
}

#[test]
fn a_listener_moves_from_one_address_of_its_port_to_all_and_back() {
    let one = free_address();
    let all = SocketAddr::from(([0, 0, 0, 0], one.port()));
    let gateway = Gateway::start(&with_listeners(&[plain(one)]));
    for address in [all, one, all] {
        gateway.reload(&with_listeners(&[plain(address)]));
        assert_eq!(get(one, "/").status, 200);
        let other = SocketAddr::from(([127, 0, 0, 2], one.port()));
        assert_eq!(refuses(other), address == one);
    }
}

#[test]
fn unix_sockets_come_and_go() {
    let tcp = plain(free_address());
    let gateway = Gateway::start(&with_listeners(std::slice::from_ref(&tcp)));
    let path = gateway.dir().join("s");
    let unix = format!("{{ address: \"unix:{}\" }}", path.display());
    for _ in 0..3 {
        gateway.reload(&with_listeners(&[tcp.clone(), unix.clone()]));
        UnixStream::connect(&path).expect("it listens");
        gateway.reload(&with_listeners(std::slice::from_ref(&tcp)));
        assert!(!path.exists());
    }
}

#[test]
fn a_listener_changes_to_tls_and_back() {
    let address = free_address();
    let gateway = Gateway::start(&with_listeners(&[plain(address)]));
    tls::certify(gateway.dir(), "a", &["a.example"]);
    let files = "{ certificate: a.pem, key: a.key }";
    let secured = |options: &str| {
        format!("{{ address: \"{address}\", tls: {{ certificates: [{files}]{options} }} }}")
    };
    let mut before = Connection::open(address);
    assert_eq!(before.exchange(GET).status, 200);
    for options in ["", ", min_version: tls1.3"] {
        gateway.reload(&with_listeners(&[secured(options)]));
        let mut session = tls::connect(address, "a.example", &gateway.dir().join("a.pem"), &[]);
        session
            .write_all(GET.as_bytes())
            .expect("the listener speaks TLS");
        let mut status = [0; 15];
        session.read_exact(&mut status).expect("an answer");
        assert_eq!(&status, b"HTTP/1.1 200 OK");
    }
    before.expect_closed();
    gateway.reload(&with_listeners(&[plain(address)]));
    assert_eq!(get(address, "/").status, 200);
}

#[test]
fn bounds_of_clients_take_effect_with_the_next_connection() {
    let with =
        |client: &str| format!("workers: 2\nclient: {client}\nroutes: [{{ upstream: echo }}]\n");
    let ample = "{ max_connections: 8, max_connections_per_client: 8 }";
    let gateway = Gateway::start(&with(ample));
    let open = || {
        let mut connection = Connection::open(gateway.address());
        connection.send(GET);
        connection
    };
    let mut all: Vec<_> = (0..7).map(|_| open()).collect();
    for connection in &mut all {
        assert_eq!(connection.receive().status, 200);
    }
    // Idle connections beyond a lowered bound end.
    gateway.reload(&with(
        "{ max_connections: 2, max_connections_per_client: 2 }",
    ));
    wait_for("five to end", || {
        let open = gateway.metric(&format!(
            "sluicegate_connections{{listener=\"{}\"}}",
            gateway.address()
        ));
        (open == Some(2.0)).then_some(())
    });
    let closed = all
        .iter_mut()
        .map(|one| one.try_send(GET).and_then(|()| one.try_receive()));
    let closed = closed
        .filter(|answer| !matches!(answer, Ok(Some(_))))
        .count();
    assert!(closed >= 5, "{closed}");
    drop(all);
    // A raised bound lets clients in.
    gateway.reload(&with(ample));
    let mut all: Vec<_> = (0..7).map(|_| open()).collect();
    for connection in &mut all {
        assert_eq!(connection.receive().status, 200);
    }
    drop(all);
    // Connections keep the bounds with which they began.
    let mut old = open();
    assert_eq!(old.receive().header("connection"), None);
    gateway.reload(&with("{ max_requests: 1 }"));
    assert_eq!(old.exchange(GET).header("connection"), None);
    assert_eq!(open().receive().header("connection"), Some("close"));
}

#[test]
fn the_admin_listener_moves() {
    let [first, second] = [(); 2].map(|()| free_address());
    let with = |admin: SocketAddr| {
        format!("admin: {{ address: \"{admin}\" }}\nroutes: [{{ upstream: echo }}]\n")
    };
    let gateway = Gateway::start(&with(first));
    gateway.replace_config(&with(second));
    gateway.wait_for_log("the configuration is reloaded");
    assert_eq!(get(second, "/readyz").status, 200);
    assert!(refuses(first));
    assert_eq!(get(gateway.address(), "/").status, 200);
}

#[test]
fn only_workers_wait_for_a_restart() {
    let with = |workers: usize| {
        format!(
            "workers: {workers}\nadmin: {{ address: 127.0.0.1:0, tokens: {{ read: [{READER}] }} }}\n\
             routes: [{{ upstream: echo }}]\n"
        )
    };
    let gateway = Gateway::start(&with(1));
    let problems = || AdminClient::new(&gateway, READER).read("/v1/status")["problems"].to_string();
    gateway.reload(&with(2));
    gateway.wait_for_log("changes of workers take effect at a restart");
    assert!(
        problems().contains("restart pending: changes of workers"),
        "{}",
        problems()
    );
    gateway.reload(&with(1));
    assert!(!problems().contains("restart pending"), "{}", problems());
}
