use std::net::SocketAddr;
use std::path::Path;

use super::*;
use crate::http::headers::ascii;
use crate::net::drain::DrainWatcher;
use crate::net::peer_address::PeerAddress;
use crate::net::socket::StreamAddress;

fn forwarding(peer: &str, scheme: Scheme) -> Forwarding {
    let peer = peer.parse::<SocketAddr>().expect("an address").into();
    forwarding_of(peer, Some(8443), scheme)
}

fn forwarding_of(peer: PeerAddress, port: Option<u16>, scheme: Scheme) -> Forwarding {
    Forwarding::new(&ClientConnection {
        id: 0,
        peer,
        local: match port {
            Some(port) => SocketAddr::from(([127, 0, 0, 1], port)).into(),
            None => StreamAddress::Unix(Path::new("/run/a.sock").into()),
        },
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
    forwarding("192.0.2.1:5000", Scheme::Https).write(peer, &mut headers);
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
            "x-forwarded-port: 8443",
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
    forwarding.write(Peer::Untrusted, &mut headers);
    let element = b"for=\"[2001:db8::7]\";proto=http";
    assert_eq!(headers.get(FORWARDED), Some(&element[..]));
    assert_eq!(headers.get(X_FORWARDED_FOR), Some(&b"2001:db8::7"[..]));
}

#[test]
fn a_list_of_hops_does_not_grow_without_a_bound() {
    let forwarding = forwarding("192.0.2.1:5000", Scheme::Http);
    let mut headers = Headers::new();
    for _ in 0..2 * MAX_HOPS {
        forwarding.write(Peer::Trusted, &mut headers);
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
        forwarding.write(peer, &mut headers);
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
