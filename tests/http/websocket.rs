//! WebSockets through the proxy, between a real client and a real server: limits, ends, and refused
//! upgrades.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get};
use crate::support::frames::{self, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, field, frame};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::{self, Http2Origin};
use crate::support::origin::{Origin, answer, ok, raw};
use crate::support::wait_for;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};

type Client = WebSocket<TcpStream>;

const HANDSHAKE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A WebSocket echo server.
fn echoing() -> Origin {
    Origin::raw(|stream| {
        let Ok(mut socket) = tungstenite::accept(stream) else {
            return;
        };
        while let Ok(message) = socket.read() {
            if (message.is_text() || message.is_binary()) && socket.send(message).is_err() {
                return;
            }
        }
    })
}

/// A proxy before `origin`, with further settings of its upstream and route.
fn before(origin: &Origin, upstream: &str, route: &str) -> Gateway {
    Gateway::start(&format!(
        "upstreams: {{ chat: {{ endpoints: ['{}']{upstream} }} }}\nroutes: [{{ name: a, upstream: chat{route} }}]\n",
        origin.url()
    ))
}

fn try_connect(gateway: &Gateway) -> Result<Client, Box<dyn std::error::Error>> {
    let stream = TcpStream::connect(gateway.address())?;
    stream.set_read_timeout(Some(crate::support::DEADLINE))?;
    let url = format!("ws://{}/chat", gateway.address());
    Ok(tungstenite::client(url, stream)?.0)
}

fn connect(gateway: &Gateway) -> Client {
    try_connect(gateway).expect("it is switched to WebSocket")
}

fn told(socket: &mut Client, text: &str) -> String {
    socket.send(Message::text(text)).expect("it is open");
    let answer = socket.read().expect("there is an answer");
    answer.into_text().expect("text").to_string()
}

#[test]
fn messages_of_every_size_pass_both_ways_before_a_clean_close() {
    let origin = echoing();
    let gateway = before(&origin, "", "");
    let mut socket = connect(&gateway);
    for length in [0, 1, 125, 126, 65_535, 65_536, 3_000_000] {
        let message = Message::binary(vec![b'x'; length]);
        socket.send(message.clone()).expect("it is open");
        assert_eq!(socket.read().expect("there is an answer"), message);
    }
    socket.send(Message::Ping("p".into())).expect("it is open");
    assert_eq!(socket.read().unwrap(), Message::Pong("p".into()));
    let frame = CloseFrame {
        code: CloseCode::Normal,
        reason: "bye".into(),
    };
    socket.close(Some(frame.clone())).expect("it is open");
    assert_eq!(socket.read().unwrap(), Message::Close(Some(frame)));
    assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
    drop(socket);
    let switched = "sluicegate_route_requests_total{route=\"a\",class=\"1xx\"}";
    wait_for("the socket to be counted", || {
        gateway.metric(switched).filter(|count| *count == 1.0)
    });
}

#[test]
fn many_sockets_are_served_at_once() {
    let origin = echoing();
    let gateway = before(&origin, "", "");
    thread::scope(|scope| {
        for name in 0..40 {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut socket = connect(gateway);
                for number in 0..50 {
                    let text = format!("{name}.{number}");
                    assert_eq!(told(&mut socket, &text), text);
                }
            });
        }
    });
}

#[test]
fn bytes_after_the_handshake_are_not_lost() {
    let origin = Origin::raw(|mut stream| {
        let mut bytes = [0; 4096];
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\nearly") {
            let length = stream.read(&mut bytes).expect("a request");
            head.extend_from_slice(&bytes[..length]);
            if head.ends_with(b"\r\n\r\n") {
                let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\n\
                    Connection: upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nat once";
                stream.write_all(switched.as_bytes()).expect("it is open");
            }
        }
        stream.write_all(b" later").expect("it is open");
    });
    let gateway = before(&origin, "", "");
    let mut stream = TcpStream::connect(gateway.address()).expect("a connection");
    stream
        .write_all(format!("{HANDSHAKE}early").as_bytes())
        .expect("it is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it ends");
    let (head, rest) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let mut fields: Vec<_> = head.lines().skip(1).collect();
    fields.retain(|field| !field.starts_with("date: "));
    fields.sort_unstable();
    let said = [
        "connection: upgrade",
        "sec-websocket-accept: x",
        "upgrade: websocket",
        "via: 1.1 sluicegate",
    ];
    assert_eq!(fields, said);
    assert_eq!(rest, "at once later");
}

#[test]
fn a_handshake_is_limited_as_any_other_request() {
    let origin = echoing();
    let gateway = before(&origin, "", ", limits: [{ quota: 1/1h }]");
    let mut socket = connect(&gateway);
    assert_eq!(told(&mut socket, "hello"), "hello");
    let mut connection = Connection::open(gateway.address());
    assert_eq!(connection.exchange(HANDSHAKE).status, 429);
    assert_eq!(
        connection.exchange(HANDSHAKE).status,
        429,
        "of the same connection"
    );
}

#[test]
fn a_permit_is_held_until_either_side_ends_the_socket() {
    let origin = echoing();
    let limit = ", limits: [{ algorithm: concurrency, max: 1 }]";
    let gateway = before(&origin, "", limit);
    let ends: [fn(Client); 3] = [
        |mut socket| socket.close(None).expect("it is open"),
        drop,
        |socket| {
            let stream = socket.into_inner();
            stream
                .shutdown(std::net::Shutdown::Write)
                .expect("it is open");
        },
    ];
    for end in ends {
        let mut socket = wait_for("a place", || try_connect(&gateway).ok());
        assert!(try_connect(&gateway).is_err());
        assert_eq!(told(&mut socket, "still open"), "still open");
        end(socket);
    }
    wait_for("the last place", || try_connect(&gateway).ok());
}

#[test]
fn an_upstream_that_leaves_ends_the_socket() {
    let origin = Origin::raw(|stream| {
        let mut socket = tungstenite::accept(stream).expect("a handshake");
        socket
            .send(Message::text("last words"))
            .expect("it is open");
    });
    let gateway = before(&origin, "", "");
    let mut socket = connect(&gateway);
    assert_eq!(socket.read().unwrap(), Message::text("last words"));
    assert!(socket.read().is_err());
}

#[test]
fn an_upstream_that_does_not_switch_keeps_the_connection() {
    let origin = Origin::start(|request| match request.header("upgrade") {
        Some("websocket") => answer(403, "not here"),
        _ => ok("plain"),
    });
    let gateway = before(&origin, "", "");
    let mut connection = Connection::open(gateway.address());
    for _ in 0..2 {
        let refused = connection.exchange(HANDSHAKE);
        assert_eq!((refused.status, refused.text().as_str()), (403, "not here"));
        let plain = connection.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(plain.text(), "plain");
    }
    assert_eq!(origin.connections(), 1);
}

/// Requests within a tunnel would bypass every limit.
#[test]
fn only_websocket_is_upgraded() {
    let origin = Origin::plain();
    let gateway = before(&origin, "", "");
    for fields in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
        "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n",
        "Connection: keep-alive\r\nUpgrade: websocket\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n",
    ] {
        let body = if fields.contains("Length") { "x" } else { "" };
        let mut connection = Connection::open(gateway.address());
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}");
        assert_eq!(connection.exchange(&request).status, 200, "{fields}");
        let request = origin.only_request();
        for name in ["connection", "upgrade", "http2-settings"] {
            assert_eq!(request.header(name), None, "{fields}");
        }
        origin.forget();
    }
}

#[test]
fn an_upstream_that_switches_otherwise_is_not_followed() {
    for (asked, said) in [
        ("", "Upgrade: websocket\r\nConnection: upgrade\r\n"),
        ("Upgrade: websocket\r\nConnection: upgrade\r\n", ""),
        (
            "Upgrade: websocket\r\nConnection: upgrade\r\n",
            "Upgrade: h2c\r\nConnection: upgrade\r\n",
        ),
    ] {
        let switched = format!("HTTP/1.1 101 Switching Protocols\r\n{said}\r\n");
        let origin = Origin::start(move |_| raw(&switched));
        let gateway = before(&origin, "", "");
        let mut connection = Connection::open(gateway.address());
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{asked}\r\n");
        assert_eq!(connection.exchange(&request).status, 502, "{said}");
    }
}

#[test]
fn silence_of_both_sides_ends_the_socket() {
    let origin = echoing();
    let gateway = before(&origin, ", timeouts: { idle: 100ms, tunnel: 3s }", "");
    let mut socket = connect(&gateway);
    for _ in 0..7 {
        thread::sleep(Duration::from_millis(500));
        assert_eq!(told(&mut socket, "here"), "here");
    }
    // A client that only receives.
    let telling = Origin::raw(|stream| {
        let mut socket = tungstenite::accept(stream).expect("a handshake");
        for _ in 0..7 {
            thread::sleep(Duration::from_millis(500));
            socket.send(Message::text("tick")).expect("it is open");
        }
        while socket.read().is_ok() {}
    });
    let other = before(&telling, ", timeouts: { tunnel: 3s }", "");
    let mut listener = connect(&other);
    for _ in 0..7 {
        assert_eq!(listener.read().unwrap(), Message::text("tick"));
    }
    assert!(listener.read().is_err(), "nobody says anything");
    assert!(socket.read().is_err(), "nobody has said anything");
}

#[test]
fn a_drain_ends_sockets_within_the_grace_period() {
    let origin = echoing();
    let mut gateway = Gateway::start(&format!(
        "shutdown: {{ delay: 0s, deadline: 3s }}\nroutes: [{{ upstream: '{}' }}]\n",
        origin.url()
    ));
    let mut socket = connect(&gateway);
    gateway.signal(rustix::process::Signal::TERM);
    assert_eq!(told(&mut socket, "during the drain"), "during the drain");
    assert!(gateway.wait().success());
    assert!(socket.read().is_err());
}

#[test]
fn a_slow_reader_holds_up_nobody_else() {
    let origin = echoing();
    let gateway = before(&origin, "", "");
    let stream = TcpStream::connect(gateway.address()).expect("a connection");
    let config = WebSocketConfig::default();
    let url = format!("ws://{}/chat", gateway.address());
    let handshake = tungstenite::client::client_with_config(url, stream, Some(config));
    let mut lazy = handshake.expect("it is switched").0;
    lazy.get_ref().set_nonblocking(true).expect("a socket");
    let message = Message::binary(vec![0; 1 << 20]);
    for _ in 0..64 {
        if lazy.send(message.clone()).is_err() {
            break;
        }
    }
    let mut socket = connect(&gateway);
    assert_eq!(told(&mut socket, "hello"), "hello");
    assert_eq!(
        get(gateway.address(), "/").status,
        502,
        "the origin speaks WebSocket only"
    );
}

/// An origin that switches to WebSocket, and goes on with `talk`.
fn switching(talk: impl Fn(TcpStream) + Send + Sync + 'static) -> Origin {
    Origin::raw(move |mut stream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_err() {
                return;
            }
            head.push(byte[0]);
        }
        let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
            Connection: upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n";
        if stream.write_all(switched.as_bytes()).is_ok() {
            talk(stream);
        }
    })
}

/// A tunnel: a connection whose handshake was answered.
fn tunnel(gateway: &Gateway) -> Connection {
    let mut connection = Connection::open(gateway.address());
    connection.send(HANDSHAKE);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(connection.read_exactly(1));
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    connection
}

#[test]
fn a_half_closed_client_hears_the_rest() {
    let origin = switching(|mut stream| {
        let mut heard = Vec::new();
        if stream.read_to_end(&mut heard).is_ok() {
            // Longer than the grace of `client.half_close`, which does not apply to tunnels.
            thread::sleep(Duration::from_millis(1500));
            let _ = stream.write_all(&heard);
        }
    });
    let gateway = before(&origin, "", "");
    let mut connection = tunnel(&gateway);
    connection.send("all of it");
    connection.finish_sending();
    assert_eq!(connection.read_exactly(9), b"all of it");
    connection.expect_closed();
}

#[test]
fn a_half_closed_upstream_hears_the_rest() {
    let (told, heard) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let origin = switching(move |mut stream| {
        let _ = stream.write_all(b"last words");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut heard = Vec::new();
        let read = stream.read_to_end(&mut heard).map(|_| heard);
        let _ = told.lock().expect("no holder panics").send(read);
    });
    let gateway = before(&origin, "", "");
    let mut connection = tunnel(&gateway);
    assert_eq!(connection.read_exactly(10), b"last words");
    connection.expect_closed();
    for part in ["a word, ", "another, ", "and the last"] {
        connection.send(part);
        thread::sleep(Duration::from_millis(100));
    }
    assert!(heard.try_recv().is_err(), "the upstream still listens");
    connection.finish_sending();
    let heard = heard
        .recv_timeout(crate::support::DEADLINE)
        .expect("it ends");
    assert_eq!(
        heard.expect("it ends in order"),
        b"a word, another, and the last"
    );
}

#[test]
fn a_tunnel_with_one_end_open_ends_after_silence() {
    let origin = switching(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
        // The upstream sends nothing, and does not close.
        thread::sleep(crate::support::DEADLINE);
    });
    let gateway = before(&origin, ", timeouts: { idle: 300ms }", "");
    let mut connection = tunnel(&gateway);
    connection.finish_sending();
    connection.expect_closed();
    let switched = "sluicegate_route_requests_total{route=\"a\",class=\"1xx\"}";
    wait_for("the tunnel to be counted", || {
        gateway.metric(switched).filter(|count| *count == 1.0)
    });
    // Likewise if the client neither sends nor closes.
    let leaving = switching(drop);
    let gateway = before(&leaving, ", timeouts: { idle: 300ms }", "");
    let mut staying = tunnel(&gateway);
    staying.expect_closed();
    wait_for("the tunnel to be counted", || {
        gateway.metric(switched).filter(|count| *count == 1.0)
    });
}

/// The status of an extended CONNECT (RFC 8441), and the bytes that come back for `sent`.
fn connect_over_http2(gateway: &Gateway, sent: &'static [u8]) -> (u16, Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let exchange = async {
        let stream = tokio::net::TcpStream::connect(gateway.address()).await?;
        let (mut requests, connection) = h2::client::handshake(stream).await?;
        tokio::spawn(connection);
        while !requests.is_extended_connect_protocol_enabled() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let request = http::Request::connect(format!("http://{}/chat", gateway.address()));
        let mut request = request.header("sec-websocket-version", "13").body(())?;
        let websocket = h2::ext::Protocol::from_static("websocket");
        request.extensions_mut().insert(websocket);
        let (response, mut upload) = requests.send_request(request, false)?;
        let (head, mut receiver) = response.await?.into_parts();
        assert_eq!(head.headers.get("sec-websocket-accept"), None);
        if head.status == 200 {
            upload.send_data(sent.into(), true)?;
        }
        let mut received = Vec::new();
        while let Some(data) = receiver.data().await {
            received.extend_from_slice(&data?);
        }
        Ok::<_, Box<dyn std::error::Error>>((head.status.as_u16(), received))
    };
    let bounded = async { tokio::time::timeout(crate::support::DEADLINE, exchange).await };
    let seen = runtime.expect("a runtime").block_on(bounded);
    seen.expect("in time").expect("a response")
}

/// The status of an extended CONNECT over HTTP/2 on this stream, with a further field.
fn status_of_connect(client: &mut Http2, stream: u32, further: &[u8]) -> Option<u16> {
    let block = [
        &[0x02][..],
        &[7],
        b"CONNECT",
        &field(":protocol", "websocket"),
        // `:scheme: http`, `:path: /`, and `:authority`.
        &[0x86, 0x84, 0x01, 1, b'a'],
        &field("sec-websocket-version", "13"),
        further,
    ];
    client.send(&frame(HEADERS, END_HEADERS, stream, &block.concat()));
    let answer = client.frames().find(|frame| frame.stream == stream);
    answer.and_then(|frame| frame.status())
}

/// Opens a tunnel over HTTP/2 on this stream.
fn open_tunnel(client: &mut Http2, stream: u32) {
    assert_eq!(status_of_connect(client, stream, &[]), Some(200));
}

/// Bytes of a tunnel must not be read as the content of a request.
#[test]
fn an_extended_connect_with_content_opens_no_tunnel() {
    let origin = echoing();
    let gateway = before(&origin, "", "");
    for length in ["5", "0"] {
        let mut client = Http2::open(gateway.address());
        let status = status_of_connect(&mut client, 1, &field("content-length", length));
        assert_eq!(status, Some(501), "{length}");
    }
    assert!(origin.requests().is_empty());
}

/// Neither direction goes on behind a reset, also not one that the client had ended before.
#[test]
fn a_reset_of_a_tunnel_over_http2_ends_both_directions() {
    // It goes on when the client has ended its direction.
    let origin = Origin::raw(|stream| {
        if let Ok(mut socket) = tungstenite::accept(stream) {
            std::io::copy(socket.get_mut(), &mut std::io::sink()).ok();
            thread::sleep(crate::support::DEADLINE);
        }
    });
    let gateway = before(&origin, "", "");
    let mut client = Http2::open(gateway.address());
    let label = format!("{{upstream=\"chat\",endpoint=\"{}\"}}", origin.address());
    let open = format!("sluicegate_upstream_connections{label}");
    for (number, code) in (0..8).zip([0, 1, 2, 5, 7, 8, 8, 11]) {
        let stream = 2 * number + 1;
        open_tunnel(&mut client, stream);
        assert_eq!(gateway.metric(&open), Some(1.0));
        if number % 2 == 0 {
            client.send(&frame(DATA, END_STREAM, stream, b""));
        }
        client.send(&frames::reset(stream, code));
        wait_for("the upstream's connection to close", || {
            gateway.metric(&open).filter(|count| *count == 0.0)
        });
    }
}

/// The key was the proxy's: nobody else can check the answer.
#[test]
fn an_upstream_that_has_not_read_the_key_opens_no_tunnel() {
    let origin = switching(drop);
    let gateway = before(&origin, "", "");
    assert_eq!(connect_over_http2(&gateway, b""), (502, Vec::new()));
}

#[test]
fn a_client_of_http2_sees_what_an_upstream_without_a_websocket_says() {
    let origin = Origin::raw(|mut stream| {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nno chat";
        std::io::Write::write_all(&mut stream, answer).ok();
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
    });
    let gateway = before(&origin, "", "");
    assert_eq!(
        connect_over_http2(&gateway, b""),
        (502, b"no chat".to_vec())
    );
}

/// `hello` and a close, with a mask of zeros.
const HELLO_AND_CLOSE: &[u8] = b"\x81\x85\0\0\0\0hello\x88\x80\0\0\0\0";

#[test]
fn a_client_of_http2_connects_to_a_server_of_http1() {
    let origin = echoing();
    let gateway = before(&origin, "", "");
    let (status, received) = connect_over_http2(&gateway, HELLO_AND_CLOSE);
    assert_eq!(status, 200);
    assert_eq!(received, b"\x81\x05hello\x88\x00");
    let switched = "sluicegate_route_requests_total{route=\"a\",class=\"1xx\"}";
    wait_for("the socket to be counted", || {
        gateway.metric(switched).filter(|count| *count == 1.0)
    });
}

#[test]
fn a_client_of_http2_connects_to_a_server_of_http2() {
    let origin = Http2Origin::start(100, |mut exchange| async move {
        assert_eq!(exchange.head.method(), "CONNECT");
        let mut stream = exchange.begin(&[])?;
        let (body, _) = exchange.receive().await?;
        http2_origin::send(&mut stream, &body).await?;
        stream.send_data(bytes::Bytes::new(), true).ok()
    });
    let gateway = Gateway::start(&format!(
        "upstreams: {{ chat: {{ endpoints: ['{}'], protocol: h2 }} }}\nroutes: [{{ upstream: chat }}]\n",
        origin.url()
    ));
    let (status, received) = connect_over_http2(&gateway, b"hello");
    assert_eq!((status, received.as_slice()), (200, &b"hello"[..]));
}

#[test]
fn a_route_without_upgrades_opens_no_tunnel_over_http2() {
    let origin = echoing();
    let gateway = before(&origin, "", ", upgrades: none");
    assert_eq!(connect_over_http2(&gateway, b"").0, 501);
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_limit_and_a_refusal_answer_a_client_of_http2() {
    let origin = Origin::start(|_| ok("no socket here"));
    let gateway = before(&origin, "", ", limits: [{ quota: 1/1h }]");
    assert_eq!(
        connect_over_http2(&gateway, b"").0,
        502,
        "a 200 would open the tunnel"
    );
    assert_eq!(connect_over_http2(&gateway, b"").0, 429);
    let origin = Origin::start(|_| answer(404, ""));
    let gateway = before(&origin, "", "");
    assert_eq!(connect_over_http2(&gateway, b"").0, 404);
}
