use std::net::SocketAddr;

use super::*;
use crate::http::headers::ascii;
use crate::net::drain::DrainWatcher;
use crate::net::peer_address::PeerAddress;

fn forwarding(peer: &str, scheme: Scheme) -> Forwarding {
    let peer = peer.parse::<SocketAddr>().expect("an address").into();
    forwarding_of(peer, None, scheme)
}

fn forwarding_of(peer: PeerAddress, asked_port: Option<u16>, scheme: Scheme) -> Forwarding {
    Forwarding::new(&ClientConnection {
        id: 0,
        peer,
        local: SocketAddr::from(([127, 0, 0, 1], 8080)).into(),
        asked_port,
        scheme,
        tls_version: None,
        server_name: None,
        worker: 0,
        informational: Default::default(),
        drain: DrainWatcher::default(),
    })
}

/// The forwarded fields, sorted, as `name: value`.
fn written(peer: Peer, fields: &[(&'static str, &'static str)]) -> Vec<String> {
    let mut headers = Headers::new();
    for (name, value) in fields {
        headers.append(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    forwarding("192.0.2.1:5000", Scheme::Https).write(peer, &ClientIp::default(), &mut headers);
    sorted(&headers)
}

fn sorted(headers: &Headers) -> Vec<String> {
    let line =
        |(name, value): (&HeaderName, &[u8])| format!("{name}: {}", String::from_utf8_lossy(value));
    let mut lines: Vec<_> = headers.iter().map(line).collect();
    lines.sort();
    lines
}

const CLAIMS: [(&str, &str); 9] = [
    ("host", "shop.example"),
    ("forwarded", "for=6.6.6.6"),
    ("x-forwarded-for", "6.6.6.6"),
    ("x-forwarded-for", "7.7.7.7 ,8.8.8.8"),
    ("x-forwarded-host", "outer.example"),
    ("x-forwarded-port", "443"),
    ("x-forwarded-proto", "http"),
    ("x-forwarded-user", "mallory"),
    ("x-other", "kept"),
];

#[test]
fn fields_of_untrusted_peers_are_replaced() {
    assert_eq!(
        written(Peer::Untrusted, &CLAIMS),
        [
            "forwarded: for=192.0.2.1;proto=https",
            "host: shop.example",
            "x-forwarded-for: 192.0.2.1",
            "x-forwarded-host: shop.example",
            "x-forwarded-port: 443",
            "x-forwarded-proto: https",
            "x-other: kept",
        ]
    );
}

#[test]
fn fields_of_trusted_proxies_are_extended() {
    assert_eq!(
        written(Peer::Trusted, &CLAIMS),
        [
            "forwarded: for=6.6.6.6, for=192.0.2.1;proto=https",
            "host: shop.example",
            "x-forwarded-for: 6.6.6.6, 7.7.7.7, 8.8.8.8, 192.0.2.1",
            "x-forwarded-host: outer.example",
            "x-forwarded-port: 443",
            "x-forwarded-proto: http",
            "x-forwarded-user: mallory",
            "x-other: kept",
        ]
    );
}

#[test]
fn missing_fields_of_a_trusted_proxy_are_added() {
    let fields = [("host", "a")];
    assert_eq!(
        written(Peer::Trusted, &fields),
        written(Peer::Untrusted, &fields)
    );
}

#[test]
fn no_host_field_is_added_without_a_host() {
    for peer in [Peer::Trusted, Peer::Untrusted] {
        let lines = written(peer, &[]);
        assert!(
            !lines
                .iter()
                .any(|line| line.starts_with("x-forwarded-host"))
        );
    }
    let claimed = written(Peer::Untrusted, &[("x-forwarded-host", "evil")]);
    assert!(!claimed.iter().any(|line| line.contains("evil")));
}

#[test]
fn ipv6_addresses_are_quoted_where_rfc_7239_asks_for_it() {
    let mut headers = Headers::new();
    let forwarding = forwarding("[2001:db8::7]:5000", Scheme::Http);
    forwarding.write(Peer::Untrusted, &ClientIp::default(), &mut headers);
    let element = b"for=\"[2001:db8::7]\";proto=http";
    assert_eq!(headers.get(FORWARDED), Some(&element[..]));
    assert_eq!(headers.get(X_FORWARDED_FOR), Some(&b"2001:db8::7"[..]));
}

#[test]
fn a_list_of_hops_does_not_grow_without_a_bound() {
    let forwarding = forwarding("192.0.2.1:5000", Scheme::Http);
    let mut headers = Headers::new();
    for _ in 0..2 * MAX_HOPS {
        forwarding.write(Peer::Trusted, &ClientIp::default(), &mut headers);
    }
    for name in [X_FORWARDED_FOR, FORWARDED] {
        let value = headers.get(&name).and_then(ascii);
        let value = value.expect("text");
        assert_eq!(value.split(", ").count(), MAX_HOPS, "{name}");
    }
}

#[test]
fn via_states_the_received_version() {
    let versions = [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2];
    let values = versions.map(|version| via(version).1);
    assert_eq!(
        values,
        ["1.0 sluicegate", "1.1 sluicegate", "2.0 sluicegate"]
    );
}

#[test]
fn a_peer_over_a_unix_socket_adds_no_address() {
    let forwarding = forwarding_of(PeerAddress::Unix, None, Scheme::Http);
    let write = |peer, fields: &[(HeaderName, &'static str)]| {
        let fields = fields.iter().cloned();
        let fields = fields.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let mut headers: Headers = fields.collect();
        forwarding.write(peer, &ClientIp::default(), &mut headers);
        sorted(&headers)
    };
    let claim = [(X_FORWARDED_FOR, "6.6.6.6")];
    assert_eq!(
        write(Peer::Untrusted, &claim),
        [
            "forwarded: for=unknown;proto=http",
            "x-forwarded-proto: http"
        ]
    );
    assert_eq!(
        write(Peer::Trusted, &claim),
        ["x-forwarded-for: 6.6.6.6", "x-forwarded-proto: http"]
    );
}

/// The port that upstreams see.
fn port(
    (peer, rules): (Peer, &ClientIp),
    forwarding: &Forwarding,
    fields: &[(&'static str, &'static str)],
) -> String {
    let fields = fields.iter().map(|&(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    });
    let mut headers: Headers = fields.collect();
    forwarding.write(peer, rules, &mut headers);
    let ports: Vec<_> = headers.get_all(X_FORWARDED_PORT).collect();
    String::from_utf8(ports.join(&b"+"[..])).expect("digits")
}

#[test]
fn the_port_is_the_one_that_the_client_asked_for() {
    let untrusted = (Peer::Untrusted, &ClientIp::default());
    for (scheme, asked_port, host, expected) in [
        (Scheme::Http, None, "a", "80"),
        (Scheme::Https, None, "a", "443"),
        (Scheme::Http, None, "a:8081", "8081"),
        (Scheme::Http, None, "192.0.2.7", "80"),
        (Scheme::Http, None, "[2001:db8::80]", "80"),
        (Scheme::Http, None, "[::1]:8443", "8443"),
        (Scheme::Http, None, "a:", "80"),
        (Scheme::Http, None, "a:65535", "65535"),
        // The balancer's, which a preamble names.
        (Scheme::Http, Some(443), "a", "443"),
        (Scheme::Https, Some(8443), "a", "8443"),
        (Scheme::Http, Some(443), "a:9000", "9000"),
    ] {
        let peer = SocketAddr::from(([192, 0, 2, 1], 5000)).into();
        let forwarding = forwarding_of(peer, asked_port, scheme);
        let found = port(untrusted, &forwarding, &[("host", host)]);
        assert_eq!(found, expected, "{scheme:?} {asked_port:?} {host}");
    }
}

#[test]
fn the_port_behind_a_balancer_is_that_of_its_scheme_and_host() {
    let trusted = (Peer::Trusted, &ClientIp::default());
    let (host, proto) = ("x-forwarded-host", "x-forwarded-proto");
    let of = |fields: &[(&'static str, &'static str)]| {
        let fields = [&[("host", "shop.example")], fields].concat();
        port(trusted, &forwarding("10.0.0.1:5000", Scheme::Http), &fields)
    };
    assert_eq!(of(&[]), "80");
    assert_eq!(of(&[(proto, "https")]), "443");
    assert_eq!(of(&[(proto, "wss")]), "443");
    assert_eq!(of(&[(proto, "http")]), "80");
    assert_eq!(of(&[(proto, "https, http")]), "", "in doubt");
    assert_eq!(of(&[(proto, "https"), (host, "outer:8443")]), "8443");
    assert_eq!(of(&[(proto, "https"), (host, "outer:8443, inner")]), "8443");
    assert_eq!(
        of(&[(proto, "https"), ("x-forwarded-port", "9443")]),
        "9443"
    );
}

#[test]
fn the_scheme_and_the_host_of_forwarded_are_the_clients() {
    let rules = ClientIp {
        trusted: vec!["10.0.0.0/8".parse().expect("a net")],
        header: crate::http::client_ip::Header::Forwarded,
        ..ClientIp::default()
    };
    let client = "for=203.0.113.9;proto=https;host=\"shop.example:8443\"";
    let host = ("host", "inner");
    for (fields, expected) in [
        (
            vec![host, ("forwarded", client)],
            ["https", "shop.example:8443", "8443"],
        ),
        // What the client wrote itself, to the left and in other fields, is not believed.
        (
            vec![
                host,
                ("forwarded", "for=6.6.6.6;proto=http;host=evil"),
                ("forwarded", client),
                ("forwarded", "for=10.0.0.7;proto=http;host=inner"),
                ("x-forwarded-proto", "http"),
                ("x-forwarded-host", "evil"),
                ("x-forwarded-port", "666"),
            ],
            ["https", "shop.example:8443", "8443"],
        ),
        (
            vec![host, ("forwarded", "for=203.0.113.9;proto=https")],
            ["https", "inner", "443"],
        ),
        (
            vec![host, ("forwarded", "for=203.0.113.9;host=shop.example")],
            ["http", "shop.example", "80"],
        ),
        // In doubt, and no host.
        (
            vec![
                host,
                (
                    "forwarded",
                    "for=203.0.113.9;proto=https;proto=http;host=\"a b\"",
                ),
            ],
            ["http", "inner", "80"],
        ),
        (
            vec![host, ("x-forwarded-proto", "https")],
            ["https", "inner", "443"],
        ),
    ] {
        let named = fields.iter().map(|&(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let mut headers: Headers = named.collect();
        let scheme = named_scheme(&rules, &headers);
        let forwarding = forwarding("10.0.0.1:5000", Scheme::Http);
        forwarding.write(Peer::Trusted, &rules, &mut headers);
        let names = [X_FORWARDED_PROTO, X_FORWARDED_HOST, X_FORWARDED_PORT];
        let found = names.map(|name| {
            let values: Vec<_> = headers.get_all(&name).collect();
            String::from_utf8(values.join(&b"+"[..])).expect("text")
        });
        assert_eq!(found, expected, "{fields:?}");
        let known: &str = scheme.unwrap_or(Some(Scheme::Http)).expect("known").into();
        assert_eq!(known, expected[0], "{fields:?}");
    }
}
