//! Clients and servers that don't read: they hold what fits into their own streams, and delay nobody
//! who shares a connection with them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use socket2::{Domain, Socket, Type};

use crate::support::client::get;
use crate::support::frames::{
    self, ACK, DATA, END_STREAM, HEADERS, Http2, SETTINGS, WINDOW_UPDATE, frame, get_block,
};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::{Http2Origin, scripted, send};
use crate::support::origin::Origin;
use crate::support::{DEADLINE, wait_for};

/// The clients of each kind that do not read.
const STALLED: usize = 200;

/// The most that the proxy may hold for each of them: the windows of docs/upstreams.md, and as much
/// again for buffers that are not full.
const HELD: usize = 2 * (128 + 64) * 1024;

/// The size of a response that nobody reads.
const LARGE: usize = 8 << 20;

/// An origin that answers `/small` with `ok`, and any other path with pieces of this size until
/// there are [`LARGE`] bytes. Counts the sent bytes.
fn origin(piece: usize) -> (Http2Origin, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let origin = Http2Origin::start(1000, move |mut exchange| {
        let sent = Arc::clone(&count);
        async move {
            if exchange.head.uri().path() == "/small" {
                return exchange.answer(b"ok", &[]).await;
            }
            let mut stream = exchange.begin(&[])?;
            let piece = vec![b'x'; piece];
            for _ in 0..LARGE / piece.len() {
                send(&mut stream, &piece).await?;
                sent.fetch_add(piece.len(), Ordering::Relaxed);
            }
            stream.send_data(Bytes::new(), true).ok()
        }
    });
    (origin, sent)
}

fn start(origin: &Http2Origin) -> Gateway {
    Gateway::start(&format!(
        "workers: 1
upstreams: {{ origin: {{ endpoints: [\"{}\"], protocol: h2 }} }}
routes: [{{ upstream: origin }}]
",
        origin.url()
    ))
}

/// Waits until nothing more is sent.
fn wait_for_stall(sent: &AtomicUsize) {
    let mut last = usize::MAX;
    wait_for("all windows to be full", || {
        thread::sleep(Duration::from_millis(300));
        let now = sent.load(Ordering::Relaxed);
        (std::mem::replace(&mut last, now) == now).then_some(())
    });
}

#[track_caller]
fn expect_answers(gateway: &Gateway) {
    for _ in 0..20 {
        assert_eq!(get(gateway.address(), "/small").text(), "ok");
    }
}

/// Clients of HTTP/2, each with 100 streams that allow no byte of a body.
fn stalled_http2(address: SocketAddr, clients: usize) -> Vec<Http2> {
    (0..clients)
        .map(|_| {
            let mut client = Http2::open(address);
            // SETTINGS_INITIAL_WINDOW_SIZE 0.
            client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
            for number in 0..100 {
                client.send(&frames::request(2 * number + 1, &get_block()));
            }
            client
        })
        .collect()
}

/// Clients of HTTP/1 whose sockets take little, so that the kernel does not read for them.
fn stalled_http1(address: SocketAddr) -> Vec<TcpStream> {
    let open = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a socket");
        socket.connect(&address.into()).expect("it listens");
        let mut client = TcpStream::from(socket);
        let request = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
        client.write_all(request).expect("it is open");
        client
    };
    (0..STALLED).map(open).collect()
}

#[test]
fn clients_that_do_not_read_delay_no_other() {
    let (origin, sent) = origin(16_384);
    let gateway = start(&origin);
    expect_answers(&gateway);
    let before = gateway.resident();

    let http2 = stalled_http2(gateway.address(), STALLED / 100);
    wait_for("the requests", || {
        (origin.requests().len() == 20 + STALLED).then_some(())
    });
    wait_for_stall(&sent);
    expect_answers(&gateway);

    let mut http1 = stalled_http1(gateway.address());
    wait_for_stall(&sent);
    expect_answers(&gateway);

    // Slow readers are read from now and then.
    for _ in 0..5 {
        http1.iter_mut().for_each(|client| {
            client.read_exact(&mut [0; 100]).expect("a part");
        });
        expect_answers(&gateway);
    }
    let grown = gateway.resident().saturating_sub(before);
    assert!(grown < 2 * STALLED * HELD, "{} KiB", grown >> 10);
    drop((http1, http2));
}

/// The bytes of a window, each other than its neighbours.
fn window() -> Vec<u8> {
    (0..128 * 1024)
        .map(|place: u32| (place % 251) as u8)
        .collect()
}

/// Sends a window's bytes on each of these streams in turn, in frames of this length, after the
/// acknowledgement of the peer's SETTINGS, from which on streams have such a window.
fn send_small_frames(connection: &mut Http2, streams: &[u32], length: usize) {
    connection.send(&frame(SETTINGS, ACK, 0, &[]));
    for part in window().chunks(1000 * length) {
        for &stream in streams {
            let frames = part
                .chunks(length)
                .map(|bytes| frame(DATA, 0, stream, bytes));
            connection.send(&frames.collect::<Vec<_>>().concat());
        }
    }
}

/// Opens the windows of the connection and of its streams wide.
fn open_windows(connection: &mut Http2) {
    connection.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 16, 0, 0]));
    connection.send(&frame(WINDOW_UPDATE, 0, 0, &[0, 16, 0, 0]));
}

/// Receives until each of these streams has ended. Returns the data of each.
fn receive_all<const N: usize>(connection: &mut Http2, streams: [u32; N]) -> [Vec<u8>; N] {
    let mut received = [const { Vec::new() }; N];
    let mut open = N;
    while open > 0 {
        let frame = connection.receive().expect("the connection stays open");
        let Some(place) = streams.iter().position(|&stream| stream == frame.stream) else {
            panic!("{frame:?}");
        };
        if frame.kind == DATA {
            received[place].extend(&frame.payload);
        }
        open -= usize::from(frame.flags & END_STREAM != 0);
    }
    received
}

/// The library keeps several hundred bytes for each frame, and would end the connection of all.
#[test]
fn small_frames_that_nobody_reads_end_no_other_response() {
    for length in [1, 20] {
        let origin = scripted(&[], move |connection| {
            let streams = [(); 7].map(|()| connection.next_request().expect("a request"));
            for stream in streams {
                connection.send(&frames::response(stream, frames::OK, false));
            }
            send_small_frames(connection, &streams, length);
            for stream in streams {
                connection.send(&frame(DATA, END_STREAM, stream, &[]));
            }
            connection.drain();
        });
        let gateway = Gateway::start(&format!(
            "workers: 1
upstreams: {{ origin: {{ endpoints: [\"{}\"], protocol: h2 }} }}
routes: [{{ upstream: origin }}]
",
            origin.url()
        ));
        let before = gateway.resident();
        let mut stalled = Http2::open(gateway.address());
        stalled.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        let streams = [1, 3, 5, 7, 9, 11];
        for stream in streams {
            stalled.send(&frames::request(stream, &get_block()));
        }
        assert!(
            get(gateway.address(), "/").body == window(),
            "the other response"
        );
        let grown = gateway.resident().saturating_sub(before);
        assert!(grown < 32 << 20, "{} KiB", grown >> 10);

        open_windows(&mut stalled);
        for received in receive_all(&mut stalled, streams) {
            assert!(received == window(), "{} bytes", received.len());
        }
        assert_eq!(origin.connections(), 1);
    }
}

#[test]
fn small_frames_of_an_upload_end_no_other_request_of_the_connection() {
    let (allow, allowed) = mpsc::channel::<()>();
    let allowed = Mutex::new(allowed);
    // The server's window is 0 at first.
    let origin = scripted(&[0, 4, 0, 0, 0, 0], move |connection| {
        let streams = [(); 2].map(|()| connection.next_request().expect("a request"));
        let allowed = allowed.lock().expect("no panic").recv_timeout(DEADLINE);
        allowed.expect("the test goes on");
        open_windows(connection);
        let received = receive_all(connection, streams);
        for (stream, received) in streams.into_iter().zip(received) {
            let status = if received == window() { 0x88 } else { 0x8e };
            connection.send(&frames::response(stream, &[status], true));
        }
        connection.drain();
    });
    let gateway = Gateway::start(&format!(
        "workers: 1
upstreams: {{ origin: {{ endpoints: [\"{}\"], protocol: h2 }} }}
routes: [{{ match: {{ methods: [GET] }}, upstream: echo }}, {{ upstream: origin }}]
",
        origin.url()
    ));
    let before = gateway.resident();
    let mut client = Http2::open(gateway.address());
    let post = [&[0x83], &get_block()[1..]].concat();
    for stream in [1, 3] {
        client.send(&frames::response(stream, &post, false));
    }
    send_small_frames(&mut client, &[1, 3], 1);
    assert_eq!(client.status_of(5, &get_block()), 200);
    let grown = gateway.resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{} KiB", grown >> 10);

    for stream in [1, 3] {
        client.send(&frame(DATA, END_STREAM, stream, &[]));
    }
    allow.send(()).expect("the server waits");
    for _ in 0..2 {
        let mut heads = client.frames().filter(|frame| frame.kind == HEADERS);
        assert_eq!(heads.next().and_then(|head| head.status()), Some(200));
    }
}

#[test]
fn small_frames_that_nobody_reads_end_no_connection() {
    let (origin, sent) = origin(64);
    let gateway = start(&origin);
    let clients = stalled_http2(gateway.address(), 1);
    wait_for("the requests", || {
        (origin.requests().len() == 100).then_some(())
    });
    wait_for_stall(&sent);
    expect_answers(&gateway);
    assert_eq!(origin.connections(), 1, "it holds 128 streams");
    drop(clients);
}

/// Uploads as fast as the proxy takes them.
async fn upload(
    mut requests: h2::client::SendRequest<Bytes>,
    path: &str,
    length: usize,
    sent: Arc<AtomicUsize>,
) -> http::StatusCode {
    let request = http::Request::post(format!("http://a{path}"));
    let request = request.body(()).expect("a request");
    let (response, mut stream) = requests.send_request(request, false).expect("it is open");
    for _ in 0..length / 16_384 {
        send(&mut stream, &[b'x'; 16_384]).await;
        sent.fetch_add(16_384, Ordering::Relaxed);
    }
    stream.send_data(Bytes::new(), true).expect("it is open");
    response.await.expect("a response").status()
}

#[test]
fn uploads_that_no_server_reads_delay_no_other_of_the_client() {
    let reading = Origin::plain();
    let deaf = Origin::raw(|_stream| thread::sleep(DEADLINE));
    let gateway = Gateway::start(&format!(
        "workers: 1
upstreams: {{ reading: {{ endpoints: [\"{}\"] }}, deaf: {{ endpoints: [\"{}\"] }} }}
routes: [{{ match: {{ path: /read }}, upstream: reading }}, {{ upstream: deaf }}]
",
        reading.url(),
        deaf.url()
    ));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let exchange = async {
        let stream = tokio::net::TcpStream::connect(gateway.address()).await;
        let opened = h2::client::handshake(stream.expect("it listens")).await;
        let (requests, connection) = opened.expect("it speaks HTTP/2");
        tokio::task::spawn_local(connection);
        let sent = Arc::new(AtomicUsize::new(0));
        for _ in 0..8 {
            let stalled = upload(requests.clone(), "/deaf", 32 << 20, Arc::clone(&sent));
            tokio::task::spawn_local(stalled);
        }
        let mut last = usize::MAX;
        while std::mem::replace(&mut last, sent.load(Ordering::Relaxed)) != last || last == 0 {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let whole = upload(requests, "/read", 1 << 20, Arc::default());
        tokio::time::timeout(DEADLINE, whole).await
    };
    let local = tokio::task::LocalSet::new();
    let status = local.block_on(&runtime.expect("a runtime"), exchange);
    assert_eq!(status.expect("a response in time"), 200);
}

/// SETTINGS with this limit of streams.
fn limit(streams: u8) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, streams])
}

#[test]
fn requests_wait_for_a_server_that_takes_none_for_now() {
    let origin = scripted(&[0, 3, 0, 0, 0, 0], |connection| {
        thread::sleep(Duration::from_millis(300));
        if connection.try_send(&limit(2)).is_err() {
            return;
        }
        while let Some(stream) = connection.next_request() {
            connection.send(&frames::response(stream, frames::OK, true));
        }
    });
    let config = format!(
        "workers: 1
upstreams: {{ origin: {{ endpoints: [\"{}\"], protocol: h2, timeouts: {{ connect: 10s }} }} }}
routes: [{{ upstream: origin }}]
",
        origin.url()
    );
    let gateway = Gateway::start(&config);
    let clients: Vec<_> = (0..5)
        .map(|_| {
            let address = gateway.address();
            thread::spawn(move || get(address, "/").status)
        })
        .collect();
    for client in clients {
        assert_eq!(client.join().expect("no panic"), 200);
    }
    // Another one is opened before the two streams run out.
    assert!(origin.connections() <= 3, "{}", origin.connections());
}

#[test]
fn a_server_that_takes_no_request_is_not_dialled_again() {
    let origin = scripted(&[0, 3, 0, 0, 0, 0], Http2::drain);
    let gateway = Gateway::start(&format!(
        "workers: 1
upstreams: {{ origin: {{ endpoints: [\"{}\"], protocol: h2, timeouts: {{ connect: 300ms }} }} }}
routes: [{{ upstream: origin }}]
",
        origin.url()
    ));
    assert_eq!(get(gateway.address(), "/").status, 503);
    assert_eq!(get(gateway.address(), "/").status, 503);
    assert_eq!(origin.connections(), 1);
}
