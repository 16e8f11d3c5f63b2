//! A whole server on 127.0.0.1, driven by raw sockets and hyper's client.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    num::NonZeroUsize,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};

use super::*;
use crate::http::body::{RequestBody, RequestBodyError};
use crate::http::connection::ClientConnection;
use crate::http::message::{Request, Response};
use crate::net::listener::passed::PassedSockets;

const TIMEOUTS: Timeouts = Timeouts {
    head: Duration::from_secs(10),
    body: Duration::from_secs(30),
    idle: Duration::from_secs(75),
};

fn spec(protocols: Protocols) -> ServerSpec {
    let address = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    ServerSpec {
        name: "test",
        workers: NonZeroUsize::new(2).expect("not zero"),
        listeners: vec![ListenerSpec {
            address,
            proxy_protocol: false,
            protocols,
            tls: None,
        }],
        client: ClientSpec {
            timeouts: TIMEOUTS,
            max_head: 8 * 1024,
            max_fields: 100,
            max_connections: 100,
            max_connections_per_client: Some(100),
            life: ConnectionLife {
                max_requests: 1_000,
                max_lifetime: Duration::from_secs(3600),
            },
            half_close: HalfClose::Grace(Duration::from_secs(1)),
        },
        client_rules: CurrentRules::default(),
        max_exchange: None,
    }
}

fn address(server: &Server) -> SocketAddr {
    server.addresses()[0].tcp().expect("it listens on TCP")
}

/// Responds with the scheme and the body's length; late to `/slow`.
async fn answer(
    connection: ClientConnection,
    request: Request<RequestBody>,
) -> Result<Response<Full<Bytes>>, RequestBodyError> {
    let path = request.uri().path().to_owned();
    if path == "/slow" {
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let mut body = request.into_parts().1;
    body.bound(u64::MAX, Duration::from_secs(60));
    let length = body.collect().await?.to_bytes().len();
    let scheme: &str = connection.scheme.into();
    Ok(Response::new(format!("{path} {scheme} {length}\n").into()))
}

fn start_in(registry: &Registry, spec: ServerSpec) -> Server {
    let factory = |connection: &ClientConnection| {
        let connection = connection.clone();
        move |request| Box::pin(answer(connection.clone(), request))
    };
    Server::start(spec, registry, factory).expect("starts")
}

fn start(spec: ServerSpec) -> Server {
    start_in(&Registry::default(), spec)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(address(server)).expect("listening");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a socket option");
    stream
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")
}

/// Reads until the bytes contain `text`.
fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains(text) {
        let mut byte = [0];
        assert_eq!(
            stream.read(&mut byte).expect("answers in time"),
            1,
            "closed: {answer:?}"
        );
        answer.push(byte[0]);
    }
    String::from_utf8(answer).expect("text")
}

fn read_to_end(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("closed in time");
    answer
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what}: not in time");
}

#[test]
fn serves_http1_on_every_worker() {
    let (sender, workers) = mpsc::channel();
    let factory = move |connection: &ClientConnection| {
        sender.send(connection.worker).expect("the test listens");
        let connection = connection.clone();
        move |request| Box::pin(answer(connection.clone(), request))
    };
    let server = Server::start(spec(Protocols::Both), &Registry::default(), factory);
    let server = server.expect("starts");
    for _ in 0..32 {
        let mut stream = connect(&server);
        stream.write_all(get("/a").as_bytes()).expect("writes");
        let answer = read_until(&mut stream, "/a http 0\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    server.shutdown().abort();
    server.join();
    let mut workers: Vec<_> = workers.iter().collect();
    assert_eq!(workers.len(), 32);
    workers.sort_unstable();
    workers.dedup();
    assert_eq!(workers, [0, 1]);
}

#[test]
fn serves_http2_to_clients_with_prior_knowledge() {
    for protocols in [Protocols::Both, Protocols::Http2] {
        let server = start(spec(protocols));
        let stream = connect(&server);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let body = runtime.expect("a runtime").block_on(async {
            stream.set_nonblocking(true).expect("a socket option");
            let stream = tokio::net::TcpStream::from_std(stream).expect("a runtime");
            let executor = hyper_util::rt::TokioExecutor::new();
            let io = hyper_util::rt::TokioIo::new(stream);
            let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io)
                .await
                .expect("HTTP/2");
            tokio::spawn(connection);
            let request = http::Request::post("http://x/b").body(Full::<Bytes>::from("12345"));
            let response = sender
                .send_request(request.expect("valid"))
                .await
                .expect("answers");
            response
                .into_body()
                .collect()
                .await
                .expect("a body")
                .to_bytes()
        });
        assert_eq!(body, "/b http 5\n");
    }
}

#[test]
fn a_mapped_address_becomes_ipv4() {
    let (sender, peers) = mpsc::channel();
    let factory = move |connection: &ClientConnection| {
        sender
            .send(connection.peer.ip().expect("TCP"))
            .expect("the test listens");
        let connection = connection.clone();
        move |request| Box::pin(answer(connection.clone(), request))
    };
    let mut spec = spec(Protocols::Both);
    spec.listeners[0].address = StreamAddress::Tcp("[::]:0".parse().expect("an address"));
    let server = Server::start(spec, &Registry::default(), factory).expect("starts");
    let port = address(&server).port();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("listening on both families");
    stream.write_all(get("/a").as_bytes()).expect("writes");
    read_until(&mut stream, "/a http 0\n");
    assert_eq!(peers.recv().expect("one client").to_string(), "127.0.0.1");
}

#[test]
fn draining_finishes_accepted_connections_and_accepts_no_more() {
    let server = start(spec(Protocols::Both));
    let address = address(&server);
    let mut busy = connect(&server);
    busy.write_all(get("/slow").as_bytes()).expect("writes");
    let mut clients: Vec<_> = (0..50).map(|_| connect(&server)).collect();
    for client in &mut clients {
        client.write_all(get("/b").as_bytes()).expect("writes");
    }
    server.shutdown().drain(Duration::from_secs(10));
    assert!(read_to_end(&mut busy).ends_with("/slow http 0\n"));
    for client in &mut clients {
        assert!(read_to_end(client).ends_with("/b http 0\n"));
    }
    server.join();
    TcpStream::connect(address).expect_err("nobody listens");
}

#[test]
fn the_drain_deadline_drops_what_is_left() {
    let server = start(spec(Protocols::Both));
    let mut client = connect(&server);
    client
        .write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n")
        .expect("writes");
    std::thread::sleep(Duration::from_millis(20));
    server.shutdown().drain(Duration::from_millis(50));
    server.join();
    assert_eq!(read_to_end(&mut client), "");
}

#[test]
fn aborting_ends_a_drain_at_once() {
    let server = start(spec(Protocols::Both));
    let mut client = connect(&server);
    client
        .write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n")
        .expect("writes");
    server.shutdown().drain(Duration::from_secs(3600));
    server.shutdown().abort();
    server.join();
}

#[test]
fn work_on_another_thread_keeps_no_worker_from_ending() {
    let (begun, begins) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    let factory = move |_: &ClientConnection| {
        let (begun, released) = (begun.clone(), released.clone());
        move |_: Request<RequestBody>| {
            let (begun, released) = (begun.clone(), released.clone());
            let work = tokio::task::spawn_blocking(move || {
                begun.send(()).expect("the test waits");
                released.lock().expect("one at a time").recv().is_err()
            });
            Box::pin(async move {
                let _ = work.await;
                Ok::<_, RequestBodyError>(Response::new(Full::<Bytes>::default()))
            })
        }
    };
    let spec = spec(Protocols::Both);
    let server = Server::start(spec, &Registry::default(), factory).expect("starts");
    let mut client = connect(&server);
    client.write_all(get("/").as_bytes()).expect("writes");
    begins.recv().expect("the work begins");
    server.shutdown().abort();
    // Never returns if a worker waits for the work, which goes on.
    server.join();
    drop(release);
}

#[test]
fn clients_beyond_max_connections_wait() {
    let registry = Registry::default();
    let mut spec = spec(Protocols::Both);
    spec.client.max_connections = 1;
    let server = start_in(&registry, spec);
    let open = || {
        registry
            .render()
            .lines()
            .filter(|l| l.starts_with("sluicegate_connections{"))
            .all(|l| l.ends_with(" 1"))
    };
    // A request in flight: an idle connection would give way.
    let mut first = connect(&server);
    let begun = get("/a").replace("\r\n\r\n", "\r\ncontent-length: 1\r\n\r\n");
    first.write_all(begun.as_bytes()).expect("writes");
    wait_for("the first connection", open);
    let mut others: Vec<_> = (0..20).map(|_| connect(&server)).collect();
    for client in &mut others {
        let last = get("/b").replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        client.write_all(last.as_bytes()).expect("writes");
        client
            .set_read_timeout(Some(Duration::from_millis(10)))
            .expect("a socket option");
        client.read(&mut [0]).expect_err("waits");
        assert!(open());
    }
    drop(first);
    for client in &mut others {
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a socket option");
        assert!(read_to_end(client).ends_with("/b http 0\n"));
    }
}

#[test]
fn connections_are_counted_until_they_close() {
    let registry = Registry::default();
    let server = start_in(&registry, spec(Protocols::Both));
    let count = |n: i64| {
        let line = format!(
            "sluicegate_connections{{listener=\"{}\"}} {n}\n",
            server.addresses()[0]
        );
        registry.render().contains(&line)
    };
    let clients: Vec<_> = (0..5).map(|_| connect(&server)).collect();
    wait_for("five connections", || count(5));
    drop(clients);
    wait_for("none", || count(0));
}

#[test]
fn an_address_in_use_starts_nothing() {
    let server = start(spec(Protocols::Both));
    let mut second = spec(Protocols::Both);
    second.listeners.push(second.listeners[0].clone());
    second.listeners[1].address = server.addresses()[0].clone();
    let factory = |connection: &ClientConnection| {
        let connection = connection.clone();
        move |request| Box::pin(answer(connection.clone(), request))
    };
    let error = Server::start(second, &Registry::default(), factory).expect_err("in use");
    assert!(error.to_string().starts_with("address in use: "), "{error}");
}

/// Runs in a process of its own, as it takes all file descriptors.
#[test]
fn exhausted_file_descriptors_delay_clients_only() {
    const CHILD: &str = "SLUICEGATE_TEST_FEW_FILES";
    if std::env::var_os(CHILD).is_none() {
        let name = "server::tests::exhausted_file_descriptors_delay_clients_only";
        let program = std::env::current_exe().expect("this test");
        let mut child = std::process::Command::new(program);
        let output = child
            .args(["--exact", name])
            .env(CHILD, "1")
            .output()
            .expect("runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let registry = Registry::default();
    let server = start_in(&registry, spec(Protocols::Both));
    let files = || std::fs::read_dir("/proc/self/fd").expect("Linux").count() as u64;
    let few = rustix::process::Rlimit {
        current: Some(files() + 20),
        maximum: Some(files() + 20),
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).expect("lowers");
    let mut clients: Vec<_> =
        std::iter::from_fn(|| TcpStream::connect(address(&server)).ok()).collect();
    let failed = || {
        registry.render().lines().any(|line| {
            line.starts_with("sluicegate_accept_errors_total{") && !line.ends_with(" 0")
        })
    };
    wait_for("a failure to accept", failed);
    let mut last = clients.pop().expect("some were opened");
    clients.clear();
    last.write_all(get("/a").as_bytes()).expect("writes");
    read_until(&mut last, "/a http 0\n");
}

impl Server {
    /// Binds every listener and starts the workers.
    ///
    /// # Errors
    ///
    /// An address that cannot be bound, or threads that cannot be started; then nothing runs.
    pub(crate) fn start(
        spec: ServerSpec,
        registry: &Registry,
        factory: impl ServiceFactory + Send,
    ) -> Result<Self, StartError> {
        let bound = BoundListeners::bind(spec, registry, &mut PassedSockets::default())?;
        Self::start_with(bound, factory, no_hook(), no_hook())
    }
}
