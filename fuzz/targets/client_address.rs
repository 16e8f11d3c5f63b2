//! The client's address from forwarding fields: an untrusted peer is believed nothing, and nothing
//! that a client writes overrules what a trusted proxy appends.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;

use http::header::{FORWARDED, HeaderName, HeaderValue};

use crate::http::client_ip::{ClientIp, Header, X_FORWARDED_FOR};
use crate::http::connection::ClientConnection;
use crate::http::forwarded::{Forwarding, Peer, named_scheme};
use crate::http::headers::Headers;
use crate::net::drain::DrainWatcher;
use crate::server::in_memory;

const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Fields that proxies write, by the first letter of a line.
static NAMES: [(u8, HeaderName); 7] = [
    (b'x', X_FORWARDED_FOR),
    (b'f', FORWARDED),
    (b'r', REAL_IP),
    (b'p', HeaderName::from_static("x-forwarded-proto")),
    (b'h', HeaderName::from_static("x-forwarded-host")),
    (b'o', HeaderName::from_static("x-forwarded-port")),
    (b'q', HeaderName::from_static("x-forwarded-prefix")),
];

/// The hops that trusted proxies append, nearest last.
const APPENDED: [&str; 2] = ["203.0.113.9", "10.0.0.7"];

/// The first byte chooses field and depth; each line is a field, named by its first letter.
pub(super) fn run(data: &[u8]) {
    let Some((&choice, lines)) = data.split_first() else {
        return;
    };
    let header = match choice % 3 {
        0 => Header::XForwardedFor,
        1 => Header::Forwarded,
        _ => Header::Single(REAL_IP),
    };
    let rules = ClientIp {
        trusted: ["10.0.0.0/8", "fd00::/8"]
            .map(|net| net.parse().expect("a network"))
            .to_vec(),
        depth: NonZeroU8::new(choice / 3 % 4),
        header,
        ..ClientIp::default()
    };
    let fields = fields(lines);
    believe_no_stranger(&rules, &fields);
    believe_proxies_alone(&rules, &fields);
    agree_with_the_next_proxy(&rules, &fields);
    named_scheme(&rules, &fields);
}

fn fields(lines: &[u8]) -> Headers {
    let lines = lines.split(|&byte| byte == b'\n').take(100);
    let fields = lines.filter_map(|line| {
        let (letter, value) = line.split_first()?;
        let (_, name) = NAMES.iter().find(|(known, _)| known == letter)?;
        Some((name.clone(), HeaderValue::from_bytes(value).ok()?))
    });
    fields.collect()
}

fn connection(peer: &str) -> ClientConnection {
    let peer = SocketAddr::new(peer.parse().expect("an address"), 1);
    in_memory::connection(peer, DrainWatcher::default())
}

fn believe_no_stranger(rules: &ClientIp, fields: &Headers) {
    for stranger in ["192.0.2.1", "2001:db8::1"] {
        let connection = connection(stranger);
        let found = rules.resolve(connection.peer, fields);
        assert_eq!(
            found.to_string(),
            stranger,
            "an untrusted peer is overruled"
        );
        let mut forwarded = copy(fields);
        rules.remove_untrusted(&mut forwarded);
        Forwarding::new(&connection).write(Peer::Untrusted, rules, &mut forwarded);
        let values: Vec<_> = forwarded.get_all(X_FORWARDED_FOR).collect();
        assert_eq!(values, [stranger.as_bytes()]);
        assert_eq!(forwarded.get_all(FORWARDED).count(), 1);
        let single = matches!(rules.header, Header::Single(_));
        assert!(!single || !forwarded.contains(REAL_IP));
    }
}

fn believe_proxies_alone(rules: &ClientIp, fields: &Headers) {
    let (name, prefix) = match &rules.header {
        Header::XForwardedFor => (X_FORWARDED_FOR, ""),
        Header::Forwarded => (FORWARDED, "for="),
        // A proxy replaces it.
        Header::Single(_) => return,
    };
    let expected = match rules.depth.map(NonZeroU8::get) {
        Some(1) => APPENDED[1],
        None | Some(2) => APPENDED[0],
        // Further to the left, the client may have written the hop.
        Some(_) => return,
    };
    let own = APPENDED.map(|hop| format!("{prefix}{hop}")).join(", ");
    let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("a value");
    let mut lines = copy(fields);
    lines.append(name.clone(), value(own.as_bytes()));
    let before: Vec<_> = fields.get_all(name.clone()).collect();
    let list = [&before[..], &[own.as_bytes()]].concat().join(&b", "[..]);
    let mut joined = copy(fields);
    joined.insert(name, value(&list));
    for headers in [lines, joined] {
        let found = rules.resolve(connection("10.0.0.1").peer, &headers);
        assert_eq!(found.to_string(), expected, "{headers:?}");
    }
}

/// The next proxy, which trusts this one, finds the same client.
fn agree_with_the_next_proxy(rules: &ClientIp, fields: &Headers) {
    let is_list = !matches!(rules.header, Header::Single(_));
    let commas = |value: &[u8]| value.iter().filter(|&&byte| byte == b',').count() + 1;
    let name = match rules.header {
        Header::Forwarded => FORWARDED,
        _ => X_FORWARDED_FOR,
    };
    let hops: usize = fields.get_all(name).map(commas).sum();
    // The oldest of too many hops is dropped.
    if !is_list || rules.depth.is_some() || hops > 60 {
        return;
    }
    let own: IpAddr = "10.0.0.2".parse().expect("an address");
    let connection = connection("10.0.0.1");
    let found = rules.resolve(connection.peer, fields);
    let mut forwarded = copy(fields);
    Forwarding::new(&connection).write(Peer::Trusted, rules, &mut forwarded);
    assert_eq!(
        rules.resolve(own.into(), &forwarded),
        found,
        "{forwarded:?}"
    );
}

fn copy(fields: &Headers) -> Headers {
    let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("a value");
    let fields = fields.iter();
    fields
        .map(|(name, bytes)| (name.clone(), value(bytes)))
        .collect()
}
