//! Upgrades: SIGUSR2 replaces the running binary. No request fails, buckets are kept, and a new process
//! that doesn't start changes nothing.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use tungstenite::Message;

use crate::support::admin::{self, AdminClient};
use crate::support::client::{Connection, get, get_with};
use crate::support::frames::{
    ACK, DATA, END_STREAM, GOAWAY, Http2, PING, WINDOW_UPDATE, frame, get_block, request,
};
use crate::support::gateway::{BINARY, Gateway, directory_of, has_ended};
use crate::support::origin::{Origin, answer, ok};
use crate::support::{DEADLINE, steering, tls, wait_for};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const CLOSE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// A client that sends requests until it is stopped, and panics when one fails.
struct Client {
    name: &'static str,
    served: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

/// Clients of many kinds at the same time.
#[derive(Default)]
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<Client>,
}

impl Load {
    fn add(&mut self, name: &'static str, mut exchange: impl FnMut() + Send + 'static) {
        let served = Arc::new(AtomicUsize::new(0));
        let (stop, count) = (Arc::clone(&self.stop), Arc::clone(&served));
        let thread = thread::spawn(move || {
            while !stop.load(Relaxed) {
                exchange();
                count.fetch_add(1, Relaxed);
            }
        });
        self.clients.push(Client {
            name,
            served,
            thread,
        });
    }

    /// Waits until each client has been served anew.
    fn wait_for_all(&self) {
        for client in &self.clients {
            let before = client.served.load(Relaxed);
            wait_for(client.name, || {
                let has_failed = client.thread.is_finished();
                (has_failed || client.served.load(Relaxed) > before + 2).then_some(())
            });
        }
    }

    /// Ends the load. Returns the number of requests.
    fn finish(self) -> usize {
        self.stop.store(true, Relaxed);
        let ended = self.clients.into_iter().map(|client| {
            let ended = client.thread.join();
            assert!(ended.is_ok(), "a request failed: {}", client.name);
            client.served.load(Relaxed)
        });
        ended.sum()
    }
}

/// Requests over a connection that is kept as long as the proxy keeps it.
fn keep_alive(address: SocketAddr, pause: Duration) -> impl FnMut() {
    let mut kept: Option<Connection> = None;
    move || {
        // As any client does, it notices a connection that was closed while it was idle.
        let mut connection = kept
            .take()
            .filter(is_open)
            .unwrap_or_else(|| Connection::open(address));
        let response = connection.exchange(GET);
        assert_eq!(response.status, 200);
        if response.header("connection") != Some("close") {
            kept = Some(connection);
        }
        thread::sleep(pause);
    }
}

fn is_open(connection: &Connection) -> bool {
    let stream = connection.writer();
    stream.set_nonblocking(true).expect("a socket");
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).expect("a socket");
    matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Streams of a connection with HTTP/2, one at a time. A stream after the last that GOAWAY names is sent again
/// over the next connection (RFC 9113 section 6.8).
fn http2(address: SocketAddr) -> impl FnMut() {
    let mut kept: Option<(Http2, u32)> = None;
    move || {
        loop {
            let (mut connection, stream) = kept.take().unwrap_or_else(|| (Http2::open(address), 1));
            let mut is_going = connection.try_send(&request(stream, &get_block())).is_err();
            let is_served = loop {
                let next = connection.receive();
                let Some(next) = next else {
                    assert!(is_going, "closed without GOAWAY");
                    break false;
                };
                match next.kind {
                    GOAWAY => {
                        is_going = true;
                        let last = next.payload[..4].try_into().expect("four bytes");
                        if u32::from_be_bytes(last) < stream {
                            break false;
                        }
                    }
                    PING if next.flags & ACK == 0 => {
                        let _ = connection.try_send(&frame(PING, ACK, 0, &next.payload));
                    }
                    _ if next.stream == stream => {
                        if next.kind == DATA && !next.payload.is_empty() {
                            // Without it, the connection's 64 KiB are used up once.
                            let taken = (next.payload.len() as u32).to_be_bytes();
                            let _ = connection.try_send(&frame(WINDOW_UPDATE, 0, 0, &taken));
                        }
                        assert!(next.status().is_none_or(|status| status == 200), "{next:?}");
                        assert!(next.error().is_none(), "{next:?}");
                        if next.flags & END_STREAM != 0 {
                            break true;
                        }
                    }
                    _ => {}
                }
            };
            if !is_going {
                kept = Some((connection, stream + 2));
            }
            if is_served {
                return;
            }
        }
    }
}

/// A request over this stream, until it ends.
fn exchange(mut stream: impl Read + Write) {
    stream.write_all(CLOSE.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // Without a close_notify after the response is whole.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
        read => drop(read.expect("an answer")),
    }
    assert!(
        answer.starts_with(b"HTTP/1.1 200 OK\r\n"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

fn free_port() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("bound")
}

#[test]
fn no_request_fails_in_four_upgrades_with_other_numbers_of_workers() {
    let dir = tempfile::tempdir().expect("a directory");
    tls::certify(dir.path(), "cert", &["localhost"]);
    let (tls_address, path) = (free_port(), dir.path().join("s"));
    let config = |workers: usize| {
        format!(
            "workers: {workers}
listeners:
  - {{ address: 127.0.0.1:0 }}
  - {{ address: {tls_address}, tls: {{ certificates: [{{ certificate: {dir}/cert.pem, key: {dir}/cert.key }}] }} }}
  - {{ address: \"unix:{dir}/s\" }}
routes: [{{ upstream: echo }}]
",
            dir = dir.path().display()
        )
    };
    let mut gateway = Gateway::start(&config(1));
    let address = gateway.address();
    let mut load = Load::default();
    for name in ["kept one", "kept two", "kept three"] {
        load.add(name, keep_alive(address, Duration::ZERO));
    }
    load.add(
        "kept with pauses",
        keep_alive(address, Duration::from_millis(100)),
    );
    load.add("new connections", move || {
        assert_eq!(get(address, "/").status, 200)
    });
    load.add("more new connections", move || {
        exchange(TcpStream::connect(address).expect("it listens"))
    });
    load.add("HTTP/2", http2(address));
    load.add("more HTTP/2", http2(address));
    let certificate = dir.path().join("cert.pem");
    load.add("TLS", move || {
        exchange(tls::connect(tls_address, "localhost", &certificate, &[]))
    });
    let socket = path.clone();
    load.add("Unix socket", move || {
        exchange(UnixStream::connect(&socket).expect("it listens"))
    });
    let admin = gateway.admin;
    load.add("probe", move || {
        assert_eq!(get(admin, "/readyz").status, 200)
    });
    load.wait_for_all();
    for workers in [4, 2, 2, 3] {
        gateway.replace_config(&config(workers));
        gateway.upgrade();
        load.wait_for_all();
    }
    let served = load.finish();
    assert!(served > 100, "{served}");
    assert!(gateway.children().is_empty());
    let log = gateway.log();
    assert!(!log.contains("ERROR"), "{log}");
    // The file is the last process's to remove.
    assert!(path.exists());
    gateway.signal(Signal::TERM);
    wait_for("its end", || has_ended(gateway.pid()).then_some(()));
    assert!(!path.exists());
}

/// An origin that sends the rest of its response to `/events` once it is told to.
fn held() -> (Origin, Sender<()>) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    let origin = Origin::raw(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let first = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: first\n\n";
        let _ = stream.write_all(first.as_bytes());
        let _ = released
            .lock()
            .map(|released| released.recv_timeout(DEADLINE));
        let _ = stream.write_all(b"data: second\n\n");
    });
    (origin, release)
}

/// A connection, and the beginning of a response that [`held`] sends.
fn begun(address: SocketAddr) -> (TcpStream, String) {
    let mut events = TcpStream::connect(address).expect("it listens");
    events.set_read_timeout(Some(DEADLINE)).expect("a socket");
    events
        .write_all(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("it reads");
    let (mut stream, mut byte) = (String::new(), [0]);
    while !stream.contains("data: first") {
        events.read_exact(&mut byte).expect("it begins");
        stream.push(byte[0].into());
    }
    (events, stream)
}

/// The process that serves instead, as the log names it.
fn successor(gateway: &mut Gateway) -> Pid {
    let line = gateway.wait_for_log("the new process serves");
    let pid = line
        .split_once("pid=")
        .and_then(|(_, pid)| pid.split_whitespace().next()?.parse().ok());
    pid.and_then(Pid::from_raw).expect("the id of a process")
}

#[test]
fn exchanges_in_flight_end_in_the_old_process() {
    let origin = Origin::raw(|stream| {
        let Ok(mut socket) = tungstenite::accept(stream) else {
            return;
        };
        while let Ok(message) = socket.read() {
            if message.is_text() && socket.send(message).is_err() {
                return;
            }
        }
    });
    let (streaming, release) = held();
    let uploading = Origin::start(|received| ok(&received.body.len().to_string()));
    let config = format!(
        "shutdown: {{ deadline: 1h }}
routes:
  - {{ match: {{ path: /chat }}, upstream: '{}' }}
  - {{ match: {{ path: /events }}, upstream: '{}' }}
  - {{ upstream: '{}' }}
",
        origin.url(),
        streaming.url(),
        uploading.url()
    );
    let mut gateway = Gateway::start(&config);
    let address = gateway.address();
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    let (mut socket, _) =
        tungstenite::client(format!("ws://{address}/chat"), stream).expect("switched");
    let mut echoed = |text: &str| {
        socket.send(Message::text(text)).expect("it is open");
        let answer = socket.read().expect("there is an answer");
        assert_eq!(answer.into_text().expect("text").as_str(), text);
    };
    echoed("before");
    let mut upload = Connection::open(address);
    upload.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    upload.send(vec![b'x'; 100_000]);
    let (mut events, mut stream) = begun(address);

    gateway.signal(Signal::USR2);
    gateway.wait_for_log("the new process serves");
    echoed("after");
    release.send(()).expect("the origin waits");
    events.read_to_string(&mut stream).expect("it ends");
    assert!(stream.contains("data: second"), "{stream}");
    upload.send(vec![b'x'; 100_000]);
    let response = upload.receive();
    assert_eq!((response.status, &*response.text()), (200, "200000"));
    assert_eq!(response.header("connection"), Some("close"));
    assert!(gateway.is_running(), "the WebSocket is open");
    echoed("once more");
    drop(socket);
    let successor = successor(&mut gateway);
    assert!(gateway.wait().success(), "nothing is left to do");
    assert_eq!(get(address, "/upload").status, 200);
    kill_process(successor, Signal::KILL).expect("it lives");
}

#[test]
fn a_socket_whose_file_is_gone_is_bound_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let listener = format!("\"unix:{}\"", path.display());
    let config = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}, {{ address: {listener} }}]\nroutes: [{{ upstream: echo }}]\n"
    );
    let mut gateway = Gateway::start(&config);
    std::fs::remove_file(&path).expect("it is there");
    gateway.signal(Signal::USR2);
    let successor = successor(&mut gateway);
    exchange(UnixStream::connect(&path).expect("it listens again"));
    kill_process(successor, Signal::KILL).expect("it lives");
}

#[test]
fn a_process_that_is_told_to_end_waits_for_the_one_before_it() {
    let (origin, release) = held();
    let mut gateway = Gateway::start(&format!(
        "shutdown: {{ delay: 0s, deadline: 1h }}\nroutes: [{{ upstream: '{}' }}]\n",
        origin.url()
    ));
    let (mut events, mut stream) = begun(gateway.address());
    gateway.signal(Signal::USR2);
    let successor = successor(&mut gateway);
    // `systemctl stop` tells both.
    for process in [successor, gateway.pid()] {
        kill_process(process, Signal::TERM).expect("it lives");
    }
    wait_for("two drains", || {
        (gateway.log().matches("draining").count() == 2).then_some(())
    });
    thread::sleep(Duration::from_millis(300));
    assert!(!has_ended(successor), "the one before still has a request");
    release.send(()).expect("the origin waits");
    events.read_to_string(&mut stream).expect("it ends");
    assert!(stream.contains("data: second"), "{stream}");
    assert!(gateway.wait().success());
    wait_for("its end", || has_ended(successor).then_some(()));
    let log = gateway.log();
    assert!(!log.contains("second signal"), "{log}");
}

#[test]
fn under_systemd_a_process_ends_with_the_one_that_has_replaced_it() {
    let (origin, release) = held();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("notify");
    let _notified = UnixDatagram::bind(&path).expect("a free path");
    let mut gateway = Gateway::start_after(
        &format!("export NOTIFY_SOCKET={}", path.display()),
        &format!(
            "shutdown: {{ deadline: 1h }}\nroutes: [{{ upstream: '{}' }}]\n",
            origin.url()
        ),
    );
    let (mut events, mut stream) = begun(gateway.address());
    gateway.signal(Signal::USR2);
    let successor = successor(&mut gateway);
    kill_process(successor, Signal::KILL).expect("it lives");
    assert!(gateway.wait().success());
    let rest = events.read_to_string(&mut stream);
    assert!(
        rest.is_err() || !stream.contains("data: second"),
        "{stream}"
    );
    let log = gateway.log();
    assert!(log.contains("the new process has ended"), "{log}");
    drop(release);
}

const LIMITS: &str = "admin: { address: 127.0.0.1:0, tokens: { read: [reader-0123456789], write: [writer-0123456789] } }
policies:
  few: { key: header:x-key, quota: 10/1h, penalty: { strikes: 2, within: 1h, for: [1d] } }
  log: { key: header:x-key, quota: 10/1h, algorithm: sliding_log }
routes:
  - { match: { path: /few }, upstream: echo, limits: [few] }
  - { match: { path: /log }, upstream: echo, limits: [log] }
";

/// The number of requests that pass until one is refused.
fn passing(gateway: &Gateway, path: &str, key: &str) -> usize {
    let ask = || get_with(gateway.address(), path, &format!("x-key: {key}\r\n")).status == 200;
    (0..20).take_while(|_| ask()).count()
}

#[test]
fn buckets_bans_grants_and_the_snapshot_are_the_new_process_s() {
    let dir = tempfile::tempdir().expect("a directory");
    let snapshot = dir.path().join("buckets");
    for store in ["", "snapshot"] {
        let store = match store {
            "" => String::new(),
            _ => format!(
                "store: {{ memory: {{ snapshot: {{ path: {}, every: 1d }} }} }}\n",
                snapshot.display()
            ),
        };
        let mut gateway = Gateway::start(&format!("{store}{LIMITS}"));
        for path in ["/few", "/log"] {
            for key in 0..9_usize {
                for _ in 0..key {
                    let key = format!("x-key: {key}\r\n");
                    assert_eq!(get_with(gateway.address(), path, &key).status, 200);
                }
            }
        }
        let admin = AdminClient::writer(&gateway);
        let ask = |call: &str, body: serde_json::Value| {
            let answer = admin.post(&format!("/v1/keys/{call}"), &body);
            assert_eq!(answer.status, 200, "{answer:?}");
        };
        ask(
            "ban",
            json!({ "policy": "few", "key": "banned", "for": "1h", "reason": "tests" }),
        );
        ask(
            "grant",
            json!({ "policy": "few", "key": "granted", "units": 5, "until": *steering::UNTIL }),
        );
        assert_eq!(passing(&gateway, "/few", "striker"), 10);
        assert_eq!(passing(&gateway, "/few", "striker"), 0);
        for _ in 0..2 {
            gateway.upgrade();
        }
        for path in ["/few", "/log"] {
            for key in 0..9_usize {
                assert_eq!(
                    passing(&gateway, path, &key.to_string()),
                    10 - key,
                    "{path} {key}"
                );
            }
        }
        let refused = get_with(gateway.address(), "/few", "x-key: striker\r\n");
        let wait: u64 = refused
            .expect_header("retry-after")
            .parse()
            .expect("seconds");
        assert!(wait > 3_600, "banned for a day: {wait}");
        assert_eq!(passing(&gateway, "/few", "banned"), 0);
        assert_eq!(passing(&gateway, "/few", "granted"), 15);
        if store.is_empty() {
            continue;
        }
        // The file is the new process's at once: no warning of another owner.
        wait_for("a save", || {
            gateway
                .metric("sluicegate_snapshots_total{result=\"success\"}")
                .filter(|saves| *saves > 0.0)
        });
        let log = gateway.log();
        assert!(!log.contains("another process"), "{log}");
        gateway.signal(Signal::TERM);
        wait_for("its end", || has_ended(gateway.pid()).then_some(()));
        let again = Gateway::start(&format!("{store}{LIMITS}"));
        assert_eq!(passing(&again, "/few", "5"), 0);
    }
}

#[test]
fn under_load_an_upgrade_admits_the_quota() {
    const CLIENTS: usize = 16;
    const QUOTA: usize = 8_000;
    /// Those whose request takes longer than the pause before the buckets are copied.
    const LATE: usize = 2;
    let config = format!(
        "policies: {{ few: {{ key: host, quota: {QUOTA}/300d }} }}\nroutes: [{{ upstream: echo, limits: [few] }}]\n"
    );
    let mut gateway = Gateway::start(&config);
    let address = gateway.address();
    let admitted = Arc::new(AtomicUsize::new(0));
    let clients = (0..CLIENTS).map(|_| {
        let admitted = Arc::clone(&admitted);
        thread::spawn(move || {
            let mut kept: Option<Connection> = None;
            loop {
                let mut connection = kept.take().unwrap_or_else(|| Connection::open(address));
                let response = connection.exchange(GET);
                match response.status {
                    200 => admitted.fetch_add(1, Relaxed),
                    status => return assert_eq!(status, 429),
                };
                if response.header("connection") != Some("close") {
                    kept = Some(connection);
                }
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    wait_for("some requests", || {
        (admitted.load(Relaxed) > QUOTA / 10).then_some(())
    });
    gateway.upgrade();
    clients
        .into_iter()
        .for_each(|client| client.join().expect("no request fails"));
    let admitted = admitted.load(Relaxed);
    assert!((QUOTA..=QUOTA + LATE).contains(&admitted), "{admitted}");
}

#[test]
fn drained_endpoints_and_unhealthy_hosts_stay_left_out() {
    let [good, drained] = [(); 2].map(|()| Origin::plain());
    let sick = Origin::start(|received| {
        answer(
            if received.target == "/health" {
                503
            } else {
                200
            },
            "x",
        )
    });
    let config = format!(
        "{}upstreams:
  some:
    endpoints: ['{}', '{}', '{}']
    health: {{ path: /health, every: 1s, unhealthy_after: 1 }}
policies: {{ few: {{ key: host, quota: 1/300d }} }}
routes: [{{ upstream: some, limits: [few] }}]
",
        admin::TOKENS,
        good.url(),
        drained.url(),
        sick.url()
    );
    let mut gateway = Gateway::start(&config);
    let states = |gateway: &Gateway| {
        let status = AdminClient::writer(gateway).read("/v1/upstreams");
        let endpoints = status["upstreams"][0]["endpoints"]
            .as_array()
            .expect("endpoints")
            .clone();
        endpoints
            .iter()
            .map(|one| {
                one["hosts"][0]["state"]
                    .as_str()
                    .expect("a state")
                    .to_owned()
            })
            .collect::<Vec<_>>()
    };
    let label = drained.address().to_string();
    let path = format!("/v1/upstreams/some/endpoints/{label}/drain");
    let drain =
        AdminClient::writer(&gateway).post(&path, &json!({ "drain": true, "reason": "tests" }));
    assert_eq!(drain.status, 200, "{drain:?}");
    let expected = ["available", "draining", "unhealthy"];
    wait_for("the failed check", || {
        (states(&gateway) == expected).then_some(())
    });
    let mode = |gateway: &Gateway| {
        let status = AdminClient::writer(gateway).read("/v1/policies");
        status["policies"][0]["mode"].to_string()
    };
    let set = json!({ "mode": "shadow", "reason": "tests" });
    let set = AdminClient::writer(&gateway).post("/v1/policies/few/mode", &set);
    assert_eq!(set.status, 200, "{set:?}");
    let before = mode(&gateway);
    gateway.upgrade();
    assert_eq!(states(&gateway), expected);
    assert_eq!(mode(&gateway), before);
    assert!(before.contains("shadow"), "{before}");
    gateway.replace_config(&config.replace("1/300d", "2/300d"));
    gateway.upgrade();
    assert!(!mode(&gateway).contains("shadow"), "{}", mode(&gateway));
}

#[test]
fn a_made_token_stays_valid_and_a_text_of_the_command_line_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let arguments = [
        "run",
        "--upstream",
        "echo",
        "--limit",
        "100/1m",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ];
    let mut gateway = Gateway::start_with(dir, arguments);
    let line = gateway.wait_for_log("this file has a token");
    let file = line
        .split_once("file=")
        .expect("the file")
        .1
        .trim()
        .to_owned();
    let token = fs::read_to_string(&file).expect("a token");
    gateway.upgrade();
    assert_eq!(fs::read_to_string(&file).expect("it stays"), token);
    let status = AdminClient::new(&gateway, token.trim()).read("/v1/status");
    assert_eq!(status["problems"].to_string(), "[]");
    gateway.signal(Signal::TERM);
    wait_for("its end", || has_ended(gateway.pid()).then_some(()));
    assert!(!Path::new(&file).exists());
}

/// A gateway whose binary is `link`, which leads to another program later.
fn linked(config: &str) -> (Gateway, PathBuf) {
    let dir: TempDir = directory_of(config);
    let link = dir.path().join("current");
    symlink(BINARY, &link).expect("a link");
    (Gateway::start_program(&link, dir), link)
}

/// Leads the link to a script.
fn replace(link: &Path, script: &str) {
    let file = link.with_file_name("script");
    fs::write(&file, script).expect("writable");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its owner");
    let _ = fs::remove_file(link);
    symlink(file, link).expect("a link");
}

/// A program that speaks the protocol up to some step.
fn stub(steps: &str) -> String {
    format!(
        "#!/usr/bin/env python3
import json, os, socket, sys, time
s = socket.socket(fileno=0)
def receive():
    message, files, _, _ = socket.recv_fds(s, 300000, 200)
    return json.loads(message)
def send(message):
    s.send(json.dumps(message).encode())
names = []
def start():
    while (message := receive()) != 'Complete':
        if 'Listener' in message:
            names.append(message['Listener']['name'])
def ready():
    send({{'Ready': {{'pid': os.getpid(), 'version': '9', 'taken': names}}}})
{steps}
"
    )
}

#[test]
fn whatever_is_wrong_with_the_new_process_the_old_one_serves_on() {
    let config = format!("workers: 2\n{LIMITS}");
    let (mut gateway, link) = linked(&config);
    let address = gateway.address();
    let mut load = Load::default();
    load.add("kept", keep_alive_at(address, "/log"));
    load.add("new connections", move || {
        assert!([200, 429].contains(&get(address, "/log").status))
    });
    let admin = gateway.admin;
    load.add("probe", move || {
        assert_eq!(get(admin, "/readyz").status, 200)
    });
    for _ in 0..7 {
        assert_eq!(get_with(address, "/few", "x-key: used\r\n").status, 200);
    }
    let failures = |gateway: &Gateway| gateway.log().matches("the upgrade has failed").count();
    let mut expected = 0;
    let scripts = [
        // Ends at once, without a word.
        "#!/bin/sh\n".to_owned(),
        "#!/bin/sh\nexec /bin/echo a program that prints\n".to_owned(),
        // Its interpreter is missing.
        "#!/nowhere/at/all\n".to_owned(),
        // Sends what is no message.
        stub("s.send(b'hello'); time.sleep(60)"),
        // Is killed while it starts, when it is ready, and when it has the buckets.
        stub("receive(); os.kill(os.getpid(), 9)"),
        stub("start(); ready(); os.kill(os.getpid(), 9)"),
        stub("start(); ready(); receive(); os.kill(os.getpid(), 9)"),
        stub("start(); ready(); receive(); s.close(); time.sleep(60)"),
        // Stalls with the buckets.
        stub("start(); ready(); receive(); time.sleep(60)"),
        // Ends when it serves.
        stub("start(); ready(); receive(); send('Serving')"),
        stub(
            "start(); ready(); receive(); send('Serving'); time.sleep(0.2); os.kill(os.getpid(), 9)",
        ),
        // Says the wrong thing at the wrong time.
        stub("start(); send('Serving'); time.sleep(60)"),
        stub("start(); ready(); receive(); ready(); time.sleep(60)"),
        stub("s.send(b'x' * 200000); time.sleep(60)"),
    ];
    for script in scripts {
        replace(&link, &script);
        gateway.signal(Signal::USR2);
        expected += 1;
        wait_for(&script, || (failures(&gateway) == expected).then_some(()));
        load.wait_for_all();
        wait_for("the end of its children", || {
            gateway.children().is_empty().then_some(())
        });
    }
    fs::set_permissions(
        link.with_file_name("script"),
        fs::Permissions::from_mode(0o644),
    )
    .expect("its owner");
    gateway.signal(Signal::USR2);
    expected += 1;
    wait_for("the refusal of a file", || {
        (failures(&gateway) == expected).then_some(())
    });
    // The right program, with a wrong configuration.
    let _ = fs::remove_file(&link);
    symlink(BINARY, &link).expect("a link");
    fs::write(gateway.config_path(), "routes: [{}]\n").expect("writable");
    gateway.signal(Signal::USR2);
    expected += 1;
    wait_for("the refusal of a configuration", || {
        (failures(&gateway) == expected).then_some(())
    });
    wait_for("the end of its children", || {
        gateway.children().is_empty().then_some(())
    });
    load.wait_for_all();
    let status = AdminClient::writer(&gateway).read("/v1/status");
    let problems = status["problems"].to_string();
    assert!(
        problems
            .contains("the last upgrade has failed: the new process has failed: sluicegate.yaml:"),
        "{problems}"
    );
    assert_eq!(passing(&gateway, "/few", "used"), 3);
    // After all that, one that works.
    gateway.replace_config(&config);
    gateway.upgrade();
    load.wait_for_all();
    load.finish();
    assert_eq!(passing(&gateway, "/few", "used"), 0);
}

#[test]
fn a_process_that_dies_while_it_serves_leaves_the_clients_to_the_one_before_it() {
    let (mut gateway, _link) = linked(LIMITS);
    assert_eq!(passing(&gateway, "/few", "used"), 10);
    gateway.signal(Signal::USR2);
    // It accepts from now on.
    wait_for("two that listen", || {
        let served = gateway.log().matches(" listening address=").count();
        (served >= 4).then_some(())
    });
    let [successor] = gateway.children()[..] else {
        panic!("one process");
    };
    kill_process(successor, Signal::KILL).expect("it lives");
    gateway.wait_for_log("the upgrade has failed");
    for _ in 0..10 {
        assert_eq!(passing(&gateway, "/few", "used"), 0);
    }
    gateway.upgrade();
    assert_eq!(passing(&gateway, "/few", "used"), 0);
}

#[test]
fn a_reload_does_not_wait_for_a_process_that_hangs_and_the_upgrade_begins_anew() {
    let (mut gateway, link) = linked("routes: [{ upstream: echo }]\n");
    let own = fs::read_to_string(gateway.config_path()).expect("it is there");
    replace(&link, &stub("start(); time.sleep(600)"));
    gateway.signal(Signal::USR2);
    gateway.wait_for_log("a new process starts");
    let starts = |gateway: &Gateway| gateway.log().matches("a new process starts").count();
    // A changed file, and a signal.
    gateway.replace_config(&own.replace("upstream: echo", "respond: { status: 404 }"));
    wait_for("another start", || (starts(&gateway) == 2).then_some(()));
    assert_eq!(get(gateway.address(), "/").status, 404);
    let reloads = gateway.reloads("success");
    gateway.signal(Signal::HUP);
    wait_for("a third start", || (starts(&gateway) == 3).then_some(()));
    assert_eq!(gateway.reloads("success"), reloads + 1);
    wait_for("the end of those before", || {
        (gateway.children().len() == 1).then_some(())
    });
    let _ = fs::remove_file(&link);
    symlink(BINARY, &link).expect("a link");
    gateway.signal(Signal::HUP);
    let successor = successor(&mut gateway);
    assert_eq!(get(gateway.address(), "/").status, 404);
    kill_process(successor, Signal::KILL).expect("it lives");
}

/// As [`keep_alive`], on a path with a limit.
fn keep_alive_at(address: SocketAddr, path: &'static str) -> impl FnMut() {
    let mut kept: Option<Connection> = None;
    move || {
        let mut connection = kept
            .take()
            .filter(is_open)
            .unwrap_or_else(|| Connection::open(address));
        let response = connection.exchange(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!([200, 429].contains(&response.status));
        if response.header("connection") != Some("close") {
            kept = Some(connection);
        }
    }
}

#[test]
fn signals_during_an_upgrade_are_kept_apart() {
    let (mut gateway, link) =
        linked("shutdown: { delay: 0s, deadline: 20s }\nroutes: [{ upstream: echo }]\n");
    replace(&link, &stub("start(); time.sleep(600)"));
    gateway.signal(Signal::USR2);
    gateway.wait_for_log("a new process starts");
    gateway.signal(Signal::USR2);
    gateway.wait_for_log("SIGUSR2 is ignored: an upgrade is under way");
    let starts = |gateway: &Gateway| gateway.log().matches("a new process starts").count();
    let started = wait_for("another new process", || {
        let is_only = starts(&gateway) == 1;
        gateway.children().first().copied().filter(|_| is_only)
    });
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
    let log = gateway.log();
    assert!(log.contains("upgrade cancelled"), "{log}");
    assert!(has_ended(started));
}

#[test]
fn a_protocol_of_another_version_is_refused_by_name() {
    let dir = directory_of("routes: [{ upstream: echo }]\n");
    let script = format!(
        "import os, socket, subprocess
own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
environment = dict(os.environ, SLUICEGATE_UPGRADE='2')
run = subprocess.run(['{BINARY}', 'run', '--config', 'sluicegate.yaml'], stdin=other, env=environment, stderr=subprocess.PIPE)
print(run.returncode, run.stderr.decode())"
    );
    let output = Command::new("python3")
        .args(["-c", &script])
        .current_dir(dir.path())
        .output();
    let printed = String::from_utf8(output.expect("python").stdout).expect("text");
    assert!(
        printed.starts_with("1 ") && printed.contains("version 2 of the protocol"),
        "{printed}"
    );
}

/// A program that runs the gateway with this listening socket, as systemd does.
fn activated(dir: TempDir, sockets: &str) -> Gateway {
    let script = format!(
        "import os, socket, sys
sockets = [{sockets}]
for number, one in enumerate(sockets):
    os.dup2(one.fileno(), 3 + number)
    os.set_inheritable(3 + number, True)
os.environ['LISTEN_FDS'] = str(len(sockets))
os.environ['LISTEN_PID'] = str(os.getpid())
os.execv('{BINARY}', ['{BINARY}', 'run', '--config', 'sluicegate.yaml'])"
    );
    fs::write(
        dir.path().join("activate"),
        format!("#!/usr/bin/env python3\n{script}\n"),
    )
    .expect("writable");
    let program = dir.path().join("activate");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("its owner");
    Gateway::start_program(&program, dir)
}

#[test]
fn sockets_of_systemd_are_listened_on_and_one_too_many_is_reported() {
    let (address, unwanted) = (free_port(), free_port());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let dir = directory_of(&format!(
        "workers: 3
listeners: [{{ address: {address} }}, {{ address: \"unix:{}\" }}, {{ address: 127.0.0.1:0 }}]
routes: [{{ upstream: echo }}]
",
        path.display()
    ));
    let tcp =
        |address: SocketAddr| format!("socket.create_server(('127.0.0.1', {}))", address.port());
    let unix = format!(
        "socket.create_server('{}', family=socket.AF_UNIX)",
        path.display()
    );
    let datagram = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)";
    let sockets = [tcp(address), unix, tcp(unwanted), datagram.to_owned()].join(", ");
    let mut gateway = activated(dir, &sockets);
    for _ in 0..2 {
        for _ in 0..20 {
            assert_eq!(get(address, "/").status, 200);
            exchange(UnixStream::connect(&path).expect("it listens"));
        }
        gateway.wait_for_log(&format!(
            "closing a socket that no listener in the configuration uses address={unwanted}"
        ));
        gateway.wait_for_log("ignoring a socket from the service manager");
        assert!(TcpStream::connect(unwanted).is_err());
        gateway.upgrade();
    }
    gateway.signal(Signal::TERM);
    wait_for("its end", || has_ended(gateway.pid()).then_some(()));
    assert!(path.exists(), "the file is systemd's");
}

#[test]
fn systemd_is_told_of_each_step() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("notify");
    let notified = UnixDatagram::bind(&path).expect("a free path");
    notified.set_read_timeout(Some(DEADLINE)).expect("a socket");
    let next = |what: &str| {
        let mut bytes = [0; 1024];
        let length = notified.recv(&mut bytes).expect(what);
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        assert!(
            text.lines()
                .any(|line| line == what || line.starts_with(what)),
            "{what}: {text}"
        );
    };
    let variable = format!("export NOTIFY_SOCKET={}", path.display());
    let mut gateway = Gateway::start_after(
        &variable,
        "shutdown: { delay: 0s }\nroutes: [{ upstream: echo }]\n",
    );
    next("READY=1");
    gateway.upgrade();
    next(&format!("MAINPID={}", gateway.pid().as_raw_nonzero()));
    next("READY=1");
    gateway.signal(Signal::TERM);
    next("STOPPING=1");
}
