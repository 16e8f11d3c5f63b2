//! Trailers between clients and upstreams of both versions: some fields never pass, and nothing is cut
//! off.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::support::DEADLINE;
use crate::support::client::Connection;
use crate::support::frames::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, RST_STREAM, field, frame,
    indexed_field,
};
use crate::support::gateway::Gateway;
use crate::support::http2_origin::Http2Origin;
use crate::support::origin::{Origin, chunked, ok};

/// Fields that no version may have behind a body, and some that must not pass a proxy there.
const FORBIDDEN: [(&str, &str); 10] = [
    ("connection", "close"),
    ("te", "gzip"),
    ("keep-alive", "timeout=5"),
    ("upgrade", "h2c"),
    ("proxy-connection", "close"),
    ("transfer-encoding", "chunked"),
    ("content-length", "3"),
    ("host", "b"),
    ("authorization", "Bearer x"),
    ("x-forwarded-for", "10.0.0.1"),
];

fn gateway(urls: &[String], protocol: &str) -> Gateway {
    Gateway::start(&format!(
        "workers: 1
upstreams: {{ pool: {{ endpoints: {urls:?}, protocol: {protocol} }} }}
routes: [{{ upstream: pool }}]
"
    ))
}

type Whole = (u16, Vec<u8>, HeaderMap);

/// A POST over HTTP/2 with these trailers.
fn post_over_http2(gateway: &Gateway, trailers: HeaderMap) -> Result<Whole, h2::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let exchange = async {
            let stream = tokio::net::TcpStream::connect(gateway.address());
            let stream = stream.await.expect("the server listens");
            let (mut requests, connection) = h2::client::handshake(stream).await?;
            tokio::spawn(connection);
            let request = http::Request::post(gateway.url("/")).body(());
            let (response, mut upload) =
                requests.send_request(request.expect("a request"), false)?;
            upload.send_data(Bytes::from_static(b"abc"), trailers.is_empty())?;
            if !trailers.is_empty() {
                upload.send_trailers(trailers)?;
            }
            let (head, mut body) = response.await?.into_parts();
            let mut received = Vec::new();
            while let Some(data) = body.data().await {
                received.extend_from_slice(&data?);
            }
            let trailers = body.trailers().await?.unwrap_or_default();
            Ok((head.status.as_u16(), received, trailers))
        };
        tokio::time::timeout(DEADLINE, exchange)
            .await
            .expect("in time")
    })
}

/// A POST over HTTP/1.1 with these trailers.
fn post(client: &mut Connection, trailers: &[(&str, &str)]) -> u16 {
    let mut request =
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
            .to_owned();
    for (name, value) in trailers {
        request += &format!("{name}: {value}\r\n");
    }
    client.exchange(&format!("{request}\r\n")).status
}

/// An origin of HTTP/2 that notes the names of the trailers of its requests.
fn noting() -> (Http2Origin, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&seen);
    let origin = Http2Origin::start(100, move |mut exchange| {
        let noted = Arc::clone(&noted);
        async move {
            let (_, trailers) = exchange.receive().await?;
            let names = trailers.keys().map(ToString::to_string);
            noted.lock().expect("no holder panics").extend(names);
            exchange.answer(b"ok", &[]).await
        }
    });
    (origin, seen)
}

#[test]
fn forbidden_trailers_of_requests_are_dropped_and_nobody_is_to_blame() {
    let (first, seen) = noting();
    let (second, seen_too) = noting();
    let gateway = gateway(&[first.url(), second.url()], "h2");
    let mut client = Connection::open(gateway.address());
    for field in FORBIDDEN {
        for trailers in [&[field][..], &[field, ("x-check", "7")]] {
            assert_eq!(post(&mut client, trailers), 200, "{trailers:?}");
        }
    }
    assert_eq!(post(&mut client, &FORBIDDEN), 200);
    let names: Vec<_> = [seen, seen_too]
        .iter()
        .flat_map(|seen| seen.lock().expect("no holder panics").clone())
        .collect();
    assert_eq!(names, vec!["x-check"; FORBIDDEN.len()]);
    for origin in [&first, &second] {
        assert!(origin.requests().len() >= 8, "both get requests");
    }
}

#[test]
fn forbidden_trailers_of_http2_clients_reach_no_upstream() {
    let origin = Origin::start(|_| ok("done"));
    let gateway = gateway(&[origin.url()], "http1");
    let mut trailers = HeaderMap::new();
    // h2 sends none of the others.
    for (name, value) in &FORBIDDEN[6..] {
        trailers.insert(*name, HeaderValue::from_static(value));
    }
    trailers.insert("x-check", HeaderValue::from_static("7"));
    let (status, body, _) = post_over_http2(&gateway, trailers).expect("a response");
    assert_eq!((status, body.as_slice()), (200, &b"done"[..]));
    assert_eq!(
        origin.only_request().trailers,
        [("x-check".to_owned(), "7".to_owned())]
    );
}

#[test]
fn forbidden_trailers_of_responses_cost_no_client_its_body() {
    for field in FORBIDDEN {
        let trailers = [field, ("grpc-status", "0"), ("grpc-message", "fine")];
        let origin = Origin::start(move |_| chunked(&["hello"], &trailers));
        let gateway = gateway(&[origin.url()], "http1");
        let mut client = Connection::open(gateway.address());
        let answer = client.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer.text(), "hello", "{field:?}");
        let mut names: Vec<_> = answer.trailers.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        assert_eq!(names, ["grpc-message", "grpc-status"], "{field:?}");

        let (status, body, trailers) =
            post_over_http2(&gateway, HeaderMap::new()).expect("a response");
        assert_eq!((status, body.as_slice()), (200, &b"hello"[..]), "{field:?}");
        assert_eq!(trailers.len(), 2, "{field:?}: {trailers:?}");
        assert_eq!(trailers["grpc-message"], "fine");
    }
}

#[test]
fn forbidden_trailers_of_http2_upstreams_reach_no_client() {
    let origin = Http2Origin::start(100, |mut exchange| async move {
        exchange.receive().await?;
        let mut trailers = FORBIDDEN[6..].to_vec();
        trailers.extend([("grpc-status", "0"), ("grpc-status-details-bin", "AA")]);
        exchange.answer(b"ok", &trailers).await
    });
    let gateway = gateway(&[origin.url()], "h2");
    let mut client = Connection::open(gateway.address());
    let answer = client.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut names: Vec<_> = answer.trailers.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    assert_eq!(names, ["grpc-status", "grpc-status-details-bin"]);
    let (_, body, trailers) = post_over_http2(&gateway, HeaderMap::new()).expect("a response");
    assert_eq!((body.as_slice(), trailers.len()), (&b"ok"[..], 2));
}

/// `count` fields of `length` bytes each, then a status.
fn fields(count: usize, length: usize) -> Vec<(&'static str, &'static str)> {
    let value: &str = "x".repeat(length).leak();
    let name = |number| -> &'static str { format!("x-{number}").leak() };
    let fields = (0..count).map(|number| (name(number), value));
    fields.chain([("grpc-status", "0")]).collect()
}

fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let field = |(name, value): &(&'static str, &'static str)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    };
    fields.iter().map(field).collect()
}

const TOO_LARGE: [(usize, usize); 4] = [(64, 1000), (1, 60_000), (400, 10), (20, 1000)];

#[test]
fn large_trailers_of_responses_break_off_and_are_not_cut() {
    let to = |fields: Vec<(&'static str, &'static str)>| {
        let origin = Http2Origin::start(100, move |mut exchange| {
            let fields = fields.clone();
            async move {
                exchange.receive().await?;
                exchange.answer(b"ok", &fields).await
            }
        });
        let gateway = gateway(&[origin.url()], "h2");
        (origin, gateway)
    };
    for (count, length) in TOO_LARGE {
        let (_origin, gateway) = to(fields(count, length));
        let mut client = Connection::open(gateway.address());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let broken = client.try_receive();
        assert!(
            !matches!(broken, Ok(Some(_))),
            "{count} of {length}: {broken:?}"
        );
        let broken = post_over_http2(&gateway, HeaderMap::new());
        assert!(broken.is_err(), "{count} of {length}: {broken:?}");
    }
    let (_origin, gateway) = to(fields(12, 1000));
    let (_, body, trailers) = post_over_http2(&gateway, HeaderMap::new()).expect("a response");
    assert_eq!((body.as_slice(), trailers.len()), (&b"ok"[..], 13));
    let mut client = Connection::open(gateway.address());
    let answer = client.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.trailers.len(), 13);
}

#[test]
fn large_trailers_of_requests_are_refused_and_not_cut() {
    let origin = Origin::start(|_| ok("done"));
    let gateway = gateway(&[origin.url()], "http1");
    for (count, length) in TOO_LARGE {
        let fields = fields(count, length);
        match post_over_http2(&gateway, map(&fields)) {
            Ok((status, ..)) => assert_eq!(status, 431, "{count} of {length}"),
            Err(error) => assert!(error.is_reset(), "{count} of {length}: {error}"),
        }
        let mut client = Connection::open(gateway.address());
        assert_eq!(post(&mut client, &fields), 431, "{count} of {length}");
    }
    assert!(origin.requests().is_empty(), "no request was whole");
    let fields = fields(12, 1000);
    let (status, ..) = post_over_http2(&gateway, map(&fields)).expect("a response");
    let mut client = Connection::open(gateway.address());
    assert_eq!((status, post(&mut client, &fields)), (200, 200));
    let trailers = origin.requests().into_iter().map(|one| one.trailers.len());
    assert_eq!(trailers.collect::<Vec<_>>(), [13, 13]);
}

/// However a client hides the size of its trailers.
#[test]
fn large_trailers_in_small_frames_are_refused() {
    let origin = Origin::start(|_| ok("done"));
    let gateway = gateway(&[origin.url()], "http1");
    let large = field("x-large", &"x".repeat(16_000));
    let begin = |client: &mut Http2, extra: &[u8]| {
        let block = [&[0x83][..], &frames::get_block()[1..], extra].concat();
        client.send(&frame(HEADERS, END_HEADERS, 1, &block));
        client.send(&frame(DATA, 0, 1, b"abc"));
    };
    let refused = |client: &mut Http2| {
        let mut frames = client.frames();
        let end = frames.find(|frame| [HEADERS, RST_STREAM].contains(&frame.kind));
        assert!(end.is_none_or(|frame| frame.kind == RST_STREAM || frame.status() == Some(431)));
    };
    // In frames that follow a short one.
    let mut client = Http2::open(gateway.address());
    begin(&mut client, &[]);
    let frames = [
        frame(HEADERS, END_STREAM, 1, &field("x-first", "1")),
        frame(CONTINUATION, 0, 1, &large),
        frame(CONTINUATION, 0, 1, &large),
        frame(CONTINUATION, 0, 1, &large),
        frame(CONTINUATION, END_HEADERS, 1, &field("grpc-status", "0")),
    ];
    client.try_send(&frames.concat()).ok();
    refused(&mut client);
    // As references to one field of the head.
    let mut client = Http2::open(gateway.address());
    begin(&mut client, &indexed_field("x-bomb", &"x".repeat(3_000)));
    let bomb = [vec![0xbe; 30], field("grpc-status", "0")].concat();
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb));
    refused(&mut client);
    assert!(origin.requests().is_empty(), "no request was whole");
}
