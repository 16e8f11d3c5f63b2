//! What a request costs before any limit is asked: its path, its host, its route, its key, and the
//! fields of proxies. Sizes of the configuration vary; the time of a lookup must not.

use std::hint::black_box;
use std::net::SocketAddr;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use http::header::{HeaderName, HeaderValue};
use http::{Method, Version};
use limiter::Secret;
use sluicegate::bench::{
    ClientConnection, ClientIp, Descriptor, DrainWatcher, Forwarding, Head, Headers, HostPattern,
    KeyPart, OnMissingKey, PathEquivalence, PathPattern, Peer, Request, RouteMatch, Router, Scheme,
    Segment, forwarded, hop_by_hop, host, path,
};

/// The fields of an ordinary request of a program.
fn fields() -> Headers {
    let fields = [
        ("host", "api.example.com"),
        ("user-agent", "curl/8.5.0"),
        ("accept", "application/json"),
        ("accept-encoding", "gzip, br"),
        ("x-api-key", "0123456789abcdef0123456789abcdef"),
        ("cookie", "theme=dark; session=0123456789abcdef; lang=en"),
        ("connection", "keep-alive"),
    ];
    let field = |(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    };
    fields.into_iter().map(field).collect()
}

fn head<'a>(path: &'a str, headers: &'a Headers) -> Head<'a> {
    Head {
        method: &Method::GET,
        host: "api.example.com",
        path,
        query: Some("page=2&q=a%20b"),
        headers,
        client_ip: [192, 0, 2, 1].into(),
        local: None,
        scheme: None,
        token: None,
        body: None,
        client: None,
        is_any_target: false,
    }
}

/// One route in ten has a host of its own, one in three captures a segment.
fn routes(count: usize) -> Vec<RouteMatch> {
    let route = |number: usize| RouteMatch {
        hosts: match number % 10 {
            0 => vec![HostPattern::Exact(format!("h{number}.example.com"))],
            1 => vec![HostPattern::Subdomains("example.com".to_owned())],
            _ => Vec::new(),
        },
        path: PathPattern {
            segments: vec![
                Segment::Literal("v1".to_owned()),
                Segment::Literal(format!("resource-{number}")),
                match number % 3 {
                    0 => Segment::Capture("id".to_owned()),
                    _ => Segment::Literal("items".to_owned()),
                },
            ],
            is_prefix: number.is_multiple_of(2),
        },
        ..RouteMatch::default()
    };
    (0..count).map(route).collect()
}

fn lookup(c: &mut Criterion) {
    let headers = fields();
    let mut group = c.benchmark_group("find_route");
    for count in [10, 1_000, 10_000] {
        let router = Router::new(routes(count));
        let path = format!("/v1/resource-{}/items", count - 2);
        let hit = head(&path, &headers);
        assert_eq!(router.find(&hit), Some(count - 2));
        group.bench_function(BenchmarkId::new("hit", count), |b| {
            b.iter(|| router.find(black_box(&hit)));
        });
        let miss = head("/v1/resource-none/items", &headers);
        assert_eq!(router.find(&miss), None);
        group.bench_function(BenchmarkId::new("miss", count), |b| {
            b.iter(|| router.find(black_box(&miss)));
        });
    }
    group.sample_size(10);
    group.bench_function("build/10000", |b| {
        b.iter_batched(|| routes(10_000), Router::new, BatchSize::LargeInput);
    });
    group.finish();
}

fn target(c: &mut Criterion) {
    c.bench_function("normalise/normal", |b| {
        b.iter(|| {
            path::normalise(
                black_box("/v1/resource-9/items"),
                path::EncodedSlashes::Refuse,
            )
        });
    });
    c.bench_function("normalise/encoded", |b| {
        b.iter(|| {
            path::normalise(
                black_box("/v1/%72esource-9/../a%20b"),
                path::EncodedSlashes::Refuse,
            )
        });
    });
    let request = http::Request::get("/v1/items").header("host", "api.example.com:8080");
    let request = Request::from(request.body(()).expect("a request"));
    c.bench_function("host", |b| b.iter(|| host::effective(black_box(&request))));
}

fn forwarding(c: &mut Criterion) {
    let forwarding = Forwarding::new(&ClientConnection {
        id: 0,
        peer: SocketAddr::from(([192, 0, 2, 1], 5000)).into(),
        local: SocketAddr::from(([127, 0, 0, 1], 8080)).into(),
        asked_port: None,
        scheme: Scheme::Http,
        server_name: None,
        tls_version: None,
        worker: 0,
        informational: Default::default(),
        drain: DrainWatcher::default(),
    });
    let rules = ClientIp::default();
    let plain = fields();
    let mut proxied = fields();
    let before = HeaderValue::from_static("198.51.100.7, 203.0.113.9");
    proxied.insert(HeaderName::from_static("x-forwarded-for"), before);
    let cases = [
        ("untrusted", Peer::Untrusted, &plain),
        ("trusted", Peer::Trusted, &proxied),
    ];
    let mut group = c.benchmark_group("header_work");
    for (name, peer, headers) in cases {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || headers.clone(),
                |headers| {
                    hop_by_hop::remove(headers);
                    forwarding.write(peer, &rules, headers);
                    let (via, value) = forwarded::via(Version::HTTP_11);
                    headers.append(via, value);
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.bench_function("hop_by_hop", |b| {
        b.iter_batched_ref(|| plain.clone(), hop_by_hop::remove, BatchSize::SmallInput);
    });
    group.finish();
}

fn fingerprint(c: &mut Criterion) {
    let secret = Secret::from_key([1, 2]);
    let headers = fields();
    let head = head("/v1/resource-9/items", &headers);
    let form = PathEquivalence::default();
    let parts = [
        ("client_ip", KeyPart::ClientIp { ipv6_prefix: 64 }),
        (
            "header",
            KeyPart::Header(HeaderName::from_static("x-api-key")),
        ),
        ("cookie", KeyPart::Cookie("session".to_owned())),
        ("query", KeyPart::Query("q".to_owned())),
        ("segment", KeyPart::Segment { place: 1, form }),
    ];
    let mut group = c.benchmark_group("fingerprint");
    for (name, part) in parts {
        let descriptor = Descriptor::new(vec![part], OnMissingKey::Refuse, 64);
        group.bench_function(name, |b| {
            b.iter(|| descriptor.fingerprint(&secret, black_box(&head)));
        });
    }
    group.finish();
}

criterion_group!(benches, lookup, target, forwarding, fingerprint);
criterion_main!(benches);
