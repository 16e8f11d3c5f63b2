//! Forwarding: fields added and removed, bodies streamed both ways, trailers, informational
//! responses, and connection reuse.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get, get_with};
use crate::support::frames::{
    DATA, END_HEADERS, END_STREAM, Frame, HEADERS, Http2, field, frame, get_block, request,
};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, chunked, ok, raw};
use crate::support::wait_for;

fn to(origin: &Origin) -> Gateway {
    Gateway::start(&format!("routes: [{{ upstream: \"{}\" }}]\n", origin.url()))
}

fn trusting(origin: &Origin, more: &str) -> Gateway {
    Gateway::start(&format!(
        "client_ip: {{ trusted_proxies: [127.0.0.0/8, 10.0.0.0/8]{more} }}\nroutes: [{{ upstream: \"{}\" }}]\n",
        origin.url()
    ))
}

#[test]
fn hop_by_hop_fields_are_not_forwarded() {
    let origin = Origin::start(|_| {
        raw(
            "HTTP/1.1 200 OK\r\nConnection: x-own\r\nx-own: 1\r\nKeep-Alive: timeout=9\r\nx-kept: 1\r\n\
             Proxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
        )
    });
    let gateway = to(&origin);
    let headers = "Connection: x-gone, close\r\nx-gone: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
                   Proxy-Authorization: Basic eDp5\r\nTE: trailers, gzip\r\nUpgrade: websocket\r\nx-kept: 1\r\n";
    let answer = get_with(gateway.address(), "/", headers);
    let request = origin.only_request();
    for gone in [
        "x-gone",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "upgrade",
    ] {
        assert_eq!(request.header(gone), None, "{gone}");
    }
    assert!(request.header("te").is_none_or(|te| te == "trailers"));
    assert_eq!(request.header("x-kept"), Some("1"));
    for gone in ["x-own", "keep-alive"] {
        assert_eq!(answer.header(gone), None, "{gone}");
    }
    assert_eq!(answer.header("x-kept"), Some("1"));
}

#[test]
fn forwarding_fields_of_untrusted_peers_are_replaced() {
    let origin = Origin::plain();
    let gateway = to(&origin);
    let forged = "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nForwarded: for=1.2.3.4\r\n";
    get_with(gateway.address(), "/", forged);
    let request = origin.only_request();
    assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.header("x-forwarded-proto"), Some("http"));
    assert_eq!(
        request.header("x-forwarded-host"),
        Some(gateway.address().to_string().as_str())
    );
    assert!(
        request
            .header("forwarded")
            .is_some_and(|forwarded| !forwarded.contains("1.2.3.4"))
    );
    assert!(
        request
            .header("via")
            .is_some_and(|via| via.starts_with("1.1 "))
    );
}

#[test]
fn connection_cannot_strip_forwarding_fields() {
    let origin = Origin::plain();
    let gateway = to(&origin);
    get_with(
        gateway.address(),
        "/",
        "Connection: x-forwarded-for, via, forwarded, host\r\n",
    );
    let request = origin.only_request();
    assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
    assert!(request.header("via").is_some() && request.header("host").is_some());
}

#[test]
fn forwarding_fields_of_trusted_proxies_are_extended() {
    let origin = Origin::plain();
    let gateway = trusting(&origin, "");
    get_with(
        gateway.address(),
        "/",
        "X-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.0.0.9\r\nX-Forwarded-Proto: https\r\n",
    );
    let request = origin.only_request();
    assert_eq!(
        request.header("x-forwarded-for"),
        Some("6.6.6.6, 1.2.3.4, 10.0.0.9, 127.0.0.1")
    );
}

#[test]
fn the_client_is_the_first_address_from_the_right_that_is_not_trusted() {
    let limited = |header: &str| {
        Gateway::start(&format!(
            "client_ip: {{ trusted_proxies: [127.0.0.0/8, 10.0.0.0/8], header: {header} }}\n\
             routes: [{{ upstream: echo, limits: [{{ key: client_ip, quota: 1/300d }}] }}]\n"
        ))
    };
    let gateway = limited("x-forwarded-for");
    let ask = |forwarded: &str| {
        get_with(
            gateway.address(),
            "/",
            &format!("X-Forwarded-For: {forwarded}\r\n"),
        )
        .status
    };
    assert_eq!(ask("1.1.1.1"), 200);
    assert_eq!(
        ask("9.9.9.9, 1.1.1.1, 10.0.0.3"),
        429,
        "what is left of the client is the client's own claim"
    );
    assert_eq!(ask("2.2.2.2"), 200);
    assert_eq!(ask("2001:db8::1"), 200);
    assert_eq!(
        ask("2001:db8::ffff:2"),
        429,
        "one prefix of 64 bits, one client"
    );
    assert_eq!(ask("2001:db8:0:1::1"), 200);

    let gateway = limited("forwarded");
    let ask = |forwarded: &str| {
        get_with(
            gateway.address(),
            "/",
            &format!("Forwarded: {forwarded}\r\n"),
        )
        .status
    };
    assert_eq!(ask("for=1.1.1.1;proto=https, for=10.0.0.2"), 200);
    assert_eq!(ask("For=\"1.1.1.1:8080\""), 429);
    assert_eq!(ask("for=\"[2001:db8::1]:99\""), 200);
    assert_eq!(ask("for=\"[2001:db8::2]\""), 429);
}

#[test]
fn the_host_of_the_client_is_kept_unless_the_upstream_wants_its_own() {
    let origin = Origin::plain();
    let ask = |preserve: &str| {
        let gateway = Gateway::start(&format!(
            "upstreams: {{ o: {{ endpoints: [\"{}\"]{preserve} }} }}\nroutes: [{{ upstream: o }}]\n",
            origin.url()
        ));
        let mut connection = Connection::open(gateway.address());
        assert_eq!(
            connection
                .exchange("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
                .status,
            200
        );
        let host = origin.only_request().header("host").map(str::to_owned);
        origin.forget();
        host
    };
    assert_eq!(ask("").as_deref(), Some("shop.example"));
    assert_eq!(
        ask(", preserve_host: false"),
        Some(origin.address().to_string())
    );
}

#[test]
fn a_route_changes_requests_as_configured() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "routes:
  - match: {{ path: \"/v1/**\" }}
    upstream: \"{}\"
    request: {{ set_headers: {{ x-tier: gold }}, remove_headers: [cookie] }}
    rewrite: {{ strip_prefix: /v1 }}
",
        origin.url()
    ));
    get_with(
        gateway.address(),
        "/v1/items?a=b",
        "x-tier: forged\r\nx-tier: twice\r\nCookie: a=b\r\n",
    );
    let request = origin.only_request();
    assert_eq!(request.target, "/items?a=b");
    let tiers: Vec<_> = request
        .headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("x-tier"))
        .collect();
    assert!(
        matches!(tiers[..], [(_, value)] if value == "gold"),
        "{tiers:?}"
    );
    assert_eq!(request.header("cookie"), None);
}

#[test]
fn a_route_also_overrides_the_fields_of_the_proxy() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "upstreams: {{ origin: {{ endpoints: [\"{}\"] }} }}
routes:
  - upstream: origin
    request:
      set_headers: {{ x-forwarded-proto: https, via: another }}
      remove_headers: [x-forwarded-host, forwarded]
",
        origin.url()
    ));
    get_with(gateway.address(), "/", "Via: 1.0 outer\r\n");
    let request = origin.only_request();
    let values = |asked: &str| -> Vec<String> {
        let fields = request.headers.iter();
        let named = fields.filter(|(name, _)| name.eq_ignore_ascii_case(asked));
        named.map(|(_, value)| value.clone()).collect()
    };
    assert_eq!(values("x-forwarded-proto"), ["https"]);
    assert_eq!(values("via"), ["another"]);
    assert_eq!(values("x-forwarded-for"), ["127.0.0.1"]);
    assert!(values("x-forwarded-host").is_empty());
    assert!(values("forwarded").is_empty());
}

#[test]
fn statuses_without_a_body_have_none() {
    let origin = Origin::start(|request| match request.target.as_str() {
        "/204" => raw("HTTP/1.1 204 No Content\r\n\r\n"),
        "/304" => raw("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 5\r\n\r\n"),
        _ if request.method == "HEAD" => raw("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        _ => ok("after"),
    });
    let gateway = to(&origin);
    let mut connection = Connection::open(gateway.address());
    for (request, status) in [
        ("GET /204", 204),
        ("GET /304", 304),
        ("HEAD /", 200),
        ("GET /", 200),
    ] {
        let answer = connection.exchange(&format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(answer.status, status, "{request}");
        match request {
            "GET /204" => assert_eq!(answer.header("content-length"), None),
            "HEAD /" => assert_eq!(answer.header("content-length"), Some("5")),
            _ => {}
        }
    }
    assert_eq!(
        origin.connections(),
        1,
        "none of them spoiled the connection"
    );
}

#[test]
fn trailers_pass_both_ways() {
    let origin = Origin::start(|_| chunked(&["hello", " world"], &[("x-sum", "42")]));
    let gateway = to(&origin);
    let mut connection = Connection::open(gateway.address());
    connection.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te\r\nTrailer: x-check\r\n\
         Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-check: 7\r\n\r\n",
    );
    let answer = connection.receive();
    assert_eq!(
        (answer.text().as_str(), answer.trailer("x-sum")),
        ("hello world", Some("42"))
    );
    let request = origin.only_request();
    assert_eq!(request.body, b"abc");
    assert_eq!(request.trailers, [("x-check".to_owned(), "7".to_owned())]);
}

/// Trailers with fields of the head would bypass all checks of heads.
#[test]
fn trailers_with_fields_of_proxies_or_routes_are_dropped() {
    let send = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\
                x-check: 7\r\nX-Forwarded-For: 10.0.0.1\r\nForwarded: for=10.0.0.1\r\nVia: 1.1 x\r\n\
                Upgrade: x\r\nProxy-Authorization: x\r\nHost: b\r\nCookie: a=b\r\n\r\n";
    let origin = Origin::start(|_| ok("done"));
    let gateway = to(&origin);
    let mut connection = Connection::open(gateway.address());
    connection.send(send);
    assert_eq!(connection.receive().text(), "done");
    assert_eq!(
        origin.only_request().trailers,
        [("x-check".to_owned(), "7".to_owned())]
    );

    let origin = Origin::start(|_| ok("done"));
    let gateway = Gateway::start(&format!(
        "upstreams: {{ origin: {{ endpoints: [\"{}\"] }} }}\n\
         routes: [{{ upstream: origin, request: {{ remove_headers: [x-check] }} }}]\n",
        origin.url()
    ));
    let mut connection = Connection::open(gateway.address());
    connection.send(send);
    assert_eq!(connection.receive().text(), "done");
    assert!(origin.only_request().trailers.is_empty());
}

const HINTS: &str = "HTTP/1.1 100 Continue\r\n\r\n\
    HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nX-Hop: 1\r\nConnection: x-hop\r\n\r\n\
    HTTP/1.1 103 Early Hints\r\nLink: </b.css>; rel=preload\r\n\r\n";

#[test]
fn informational_responses_precede_the_final_one() {
    let origin = Origin::start(|_| {
        let hints = raw(HINTS);
        let response = raw("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        [hints, vec![Step::Pause(Duration::from_secs(4))], response].concat()
    });
    let gateway = to(&origin);
    let mut connection = Connection::open(gateway.address());
    for _ in 0..2 {
        let asked = crate::support::now();
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let expected = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n\
                        HTTP/1.1 103 Early Hints\r\nlink: </b.css>; rel=preload\r\n\r\n";
        let got = connection.read_exactly(expected.len());
        assert_eq!(String::from_utf8_lossy(&got), expected);
        assert!(
            asked.elapsed() < Duration::from_secs(3),
            "they do not wait for the rest"
        );
        assert_eq!(connection.receive().text(), "done");
    }
}

/// Each stream gets its own, before its final response.
#[test]
fn informational_responses_reach_clients_of_http2() {
    let origin = Origin::start(|request| {
        let hints = match &*request.target {
            "/" => raw(HINTS),
            _ => Vec::new(),
        };
        let response = raw("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        [
            hints,
            vec![Step::Pause(Duration::from_millis(300))],
            response,
        ]
        .concat()
    });
    let gateway = to(&origin);
    let mut client = Http2::open(gateway.address());
    let other = [
        &[0x82, 0x86][..],
        &field(":path", "/b"),
        &field(":authority", "a"),
    ]
    .concat();
    client.send(&[request(1, &get_block()), request(3, &other)].concat());
    let heads: Vec<_> = client
        .frames()
        .filter(|frame| frame.kind == HEADERS)
        .take(4)
        .collect();
    let statuses = |stream| {
        let heads = heads.iter().filter(move |head| head.stream == stream);
        heads.map(Frame::status).collect::<Vec<_>>()
    };
    assert_eq!(statuses(1), [Some(103), Some(103), Some(200)]);
    assert_eq!(statuses(3), [Some(200)]);
}

/// RFC 9110 section 10.1.1. A client that never sends without it gets it once the body is wanted, and
/// the final response alone if it is not.
#[test]
fn a_client_of_http2_is_told_to_send_its_body() {
    let origin = Origin::start(|request| ok(&String::from_utf8_lossy(&request.body)));
    let gateway = Gateway::start(&format!(
        "routes: [{{ upstream: \"{}\", limits: [{{ key: constant, quota: 2/300d }}] }}]\n",
        origin.url()
    ));
    let expects = field("expect", "100-continue");
    let head = [&[0x83, 0x86, 0x84][..], &field(":authority", "a"), &expects].concat();
    let mut client = Http2::open(gateway.address());
    let status_of = |client: &mut Http2, stream| {
        let is_head = |frame: &Frame| frame.kind == HEADERS && frame.stream == stream;
        client.frames().find(is_head).and_then(|head| head.status())
    };
    client.send(&frame(HEADERS, END_HEADERS, 1, &head));
    assert_eq!(status_of(&mut client, 1), Some(100));
    client.send(&frame(DATA, END_STREAM, 1, b"body"));
    assert_eq!(status_of(&mut client, 1), Some(200));
    assert_eq!(origin.only_request().body, b"body");
    // With its body at once.
    client.send(&frame(HEADERS, END_HEADERS, 3, &head));
    client.send(&frame(DATA, END_STREAM, 3, b"body"));
    let status = status_of(&mut client, 3);
    assert!(matches!(status, Some(100 | 200)), "{status:?}");
    client.send(&frame(HEADERS, END_HEADERS, 5, &head));
    assert_eq!(
        status_of(&mut client, 5),
        Some(429),
        "its body is not asked for"
    );
}

#[test]
fn http_1_0_gets_no_informational_response() {
    let origin = Origin::start(|_| {
        let response = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
        raw(&format!("{HINTS}{response}"))
    });
    let gateway = to(&origin);
    let mut connection = Connection::open(gateway.address());
    connection.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    let answer = connection.receive();
    assert_eq!((answer.status, answer.text().as_str()), (200, "done"));
}

#[test]
fn a_response_is_streamed() {
    let origin = Origin::start(|_| {
        let first = raw("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none");
        [
            first,
            vec![
                Step::Pause(Duration::from_secs(4)),
                Step::Send("two".into()),
            ],
        ]
        .concat()
    });
    let gateway = to(&origin);
    let mut connection = Connection::open(gateway.address());
    let asked = crate::support::now();
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.receive_head();
    assert_eq!(connection.read_exactly(3), b"one");
    assert!(
        asked.elapsed() < Duration::from_secs(3),
        "the first part did not wait for the second"
    );
    assert_eq!(connection.read_exactly(3), b"two");
}

#[test]
fn a_request_is_streamed() {
    let received = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&received);
    let origin = Origin::raw(move |mut stream: TcpStream| {
        let mut buffer = [0; 4096];
        let mut text = String::new();
        while !text.ends_with("second") {
            let Ok(read @ 1..) = stream.read(&mut buffer) else {
                return;
            };
            text += &String::from_utf8_lossy(&buffer[..read]);
            if text.contains("first") {
                seen.store(1, Ordering::Relaxed);
            }
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .expect("the proxy reads");
    });
    let gateway = to(&origin);
    let mut connection = Connection::open(gateway.address());
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nfirst");
    wait_for("the first part", || {
        (received.load(Ordering::Relaxed) == 1).then_some(())
    });
    connection.send("second");
    assert_eq!(connection.receive().status, 200);
}

/// 64 MiB in each direction with a late reader: the proxy's memory stays small.
#[test]
fn bodies_are_not_buffered() {
    const SIZE: usize = 64 << 20;
    let origin = Origin::raw(|mut stream: TcpStream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
            head.push(byte[0]);
        }
        let taken = if head.starts_with(b"POST") {
            thread::sleep(Duration::from_millis(500));
            std::io::copy(&mut (&mut stream).take(SIZE as u64), &mut std::io::sink())
                .expect("the body arrives")
        } else {
            0
        };
        let size = if taken > 0 { 0 } else { SIZE };
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nx-taken: {taken}\r\nContent-Length: {size}\r\n\r\n"
        )
        .expect("the proxy reads");
        let part = vec![b'x'; 1 << 20];
        for _ in 0..size >> 20 {
            stream.write_all(&part).expect("the proxy reads");
        }
    });
    let gateway = to(&origin);
    let resident = || {
        gateway
            .metric("process_resident_memory_bytes")
            .expect("the process is measured") as usize
    };
    let before = resident();

    let mut download = Connection::open(gateway.address());
    download.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    download.receive_head();
    thread::sleep(Duration::from_millis(500));
    let grown = resident().saturating_sub(before);
    assert!(
        grown < 16 << 20,
        "{grown} bytes held for a reader that waits"
    );
    assert_eq!(download.read_exactly(SIZE).len(), SIZE);

    let mut upload = Connection::open(gateway.address());
    upload.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n"
    ));
    upload.send(vec![b'x'; SIZE]);
    let grown = resident().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes held of an upload");
    assert_eq!(
        upload.receive().header("x-taken"),
        Some(SIZE.to_string().as_str())
    );
}

#[test]
fn connections_to_the_upstream_are_used_again() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "workers: 1\nroutes: [{{ upstream: \"{}\" }}]\n",
        origin.url()
    ));
    for _ in 0..50 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn endpoints_take_turns_by_their_weight() {
    let origins = [Origin::plain(), Origin::plain()];
    let gateway = Gateway::start(&format!(
        "workers: 1
upstreams: {{ both: {{ endpoints: [{{ url: \"{}\", weight: 2 }}, \"{}\"] }} }}
routes: [{{ upstream: both }}]
",
        origins[0].url(),
        origins[1].url()
    ));
    for _ in 0..30 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    assert_eq!(
        origins.each_ref().map(|origin| origin.requests().len()),
        [20, 10]
    );
}

#[test]
fn a_missing_date_is_added_and_a_given_one_kept() {
    let origin = Origin::start(|request| match request.target.as_str() {
        "/dated" => raw(
            "HTTP/1.1 200 OK\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\nContent-Length: 0\r\n\r\n",
        ),
        _ => ok(""),
    });
    let gateway = to(&origin);
    assert!(get(gateway.address(), "/").header("date").is_some());
    assert_eq!(
        get(gateway.address(), "/dated").headers_of("date"),
        ["Tue, 15 Nov 1994 08:12:31 GMT"]
    );
}

#[test]
fn the_forwarded_port_is_the_one_that_the_client_asked_for() {
    let origin = Origin::plain();
    let port = |gateway: &Gateway, fields: &str| {
        origin.forget();
        let request = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        let answer = Connection::open(gateway.address()).exchange(&request);
        assert_eq!(answer.status, 200, "{answer:?}");
        let request = origin.only_request();
        request
            .header("x-forwarded-port")
            .unwrap_or("none")
            .to_owned()
    };
    let plain = to(&origin);
    assert_eq!(port(&plain, "Host: shop.example\r\n"), "80");
    assert_eq!(port(&plain, "Host: shop.example:8081\r\n"), "8081");
    // A client's own claims count for nothing.
    let claims = "Host: shop.example\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 444\r\n";
    assert_eq!(port(&plain, claims), "80");
    let balancer = trusting(&origin, "");
    let https = "Host: shop.example\r\nX-Forwarded-Proto: https\r\n";
    assert_eq!(port(&balancer, https), "443");
    let other = format!("{https}X-Forwarded-Host: shop.example:8443\r\n");
    assert_eq!(port(&balancer, &other), "8443");
    assert_eq!(port(&balancer, claims), "444");
}

#[test]
fn the_scheme_and_the_host_that_forwarded_names_are_taken() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "client_ip: {{ trusted_proxies: [127.0.0.0/8], header: forwarded }}
routes: [{{ match: {{ when: {{ scheme: https }} }}, upstream: \"{}\" }}]
",
        origin.url()
    ));
    let fields = "Forwarded: for=203.0.113.7;host=\"shop.example:8443\";proto=https\r\n";
    assert_eq!(get_with(gateway.address(), "/", fields).status, 200);
    let request = origin.only_request();
    for (name, expected) in [
        ("proto", "https"),
        ("host", "shop.example:8443"),
        ("port", "8443"),
    ] {
        let name = format!("x-forwarded-{name}");
        assert_eq!(request.header(&name), Some(expected), "{name}");
    }
    // The element of a client that wrote the field itself is not the proxy's.
    let forged = "Forwarded: for=6.6.6.6;proto=https, for=203.0.113.7;proto=http\r\n";
    assert_eq!(get_with(gateway.address(), "/", forged).status, 404);
}
