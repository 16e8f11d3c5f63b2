//! The address of the client: the peer's, or the one that trusted proxies report.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU8;

use derive_more::Display;
use http::header::{FORWARDED, HeaderName};
use ipnet::IpNet;

use crate::http::headers::Headers;
use crate::net::peer_address::{PeerAddress, translated_ipv4};

/// `X-Forwarded-For`.
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The most hops to read and to forward. Any client may have written those further to the left.
pub(super) const MAX_HOPS: usize = 64;

/// The address of clients that have none: peers over a Unix socket that name no client. No network
/// of addresses contains it, so that no exception for a network is theirs.
pub const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The field that names the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display)]
#[display("{}", self.name())]
pub enum Header {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded`, RFC 7239.
    Forwarded,
    /// A field with a single address, such as `X-Real-IP`.
    Single(HeaderName),
}

impl Header {
    fn name(&self) -> HeaderName {
        match self {
            Self::XForwardedFor => X_FORWARDED_FOR,
            Self::Forwarded => FORWARDED,
            Self::Single(name) => name.clone(),
        }
    }
}

/// The trusted proxies, and the field that they write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIp {
    /// Networks of trusted proxies.
    pub trusted: Vec<IpNet>,
    /// Peers over Unix sockets are trusted proxies.
    pub trusts_unix: bool,
    /// The field that the trusted proxies write.
    pub header: Header,
    /// The client's position in the list of hops, from the right; `None` for the first untrusted.
    pub depth: Option<NonZeroU8>,
    /// The bits of an IPv6 address that tell clients apart.
    pub ipv6_prefix: u8,
}

/// Trusts nobody.
impl Default for ClientIp {
    fn default() -> Self {
        Self {
            trusted: Vec::new(),
            trusts_unix: false,
            header: Header::default(),
            depth: None,
            ipv6_prefix: 64,
        }
    }
}

impl ClientIp {
    /// Returns true if the peer is a trusted proxy.
    pub fn trusts(&self, peer: PeerAddress) -> bool {
        match peer {
            PeerAddress::Tcp(address) => self.trusts_address(address.ip()),
            PeerAddress::Unix => self.trusts_unix,
        }
    }

    /// Returns true if a trusted proxy sends a request of its own, which resolves to `client`: none
    /// that it passes on for a client.
    pub fn trusts_sender(&self, peer: PeerAddress, client: IpAddr) -> bool {
        let is_own = peer.ip().unwrap_or(NO_ADDRESS) == client;
        self.trusts(peer) && (is_own || self.trusts_address(client))
    }

    fn trusts_address(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|net| net.contains(&address))
    }

    /// Returns the address by which a client is told apart: of IPv6 the first bits only, or the
    /// IPv4 address behind a translator.
    pub fn identify(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(address) => {
                let rest = 128 - u32::from(self.ipv6_prefix.clamp(1, 128));
                let network = Ipv6Addr::from(u128::from(address) >> rest << rest);
                translated_ipv4(address).map_or(network.into(), IpAddr::V4)
            }
        }
    }

    /// Returns the address by which the client of a request is told apart; `None` if its address is
    /// that of a proxy, or it has none: then many may share it.
    pub fn identify_client(&self, address: IpAddr) -> Option<IpAddr> {
        let is_shared = address == NO_ADDRESS || self.trusts_address(address);
        (!is_shared).then(|| self.identify(address))
    }

    /// Returns the client's address. It is the peer's, unless the peer is a trusted proxy whose field
    /// has another.
    pub fn resolve(&self, peer: PeerAddress, headers: &Headers) -> IpAddr {
        let reported = match &self.header {
            _ if !self.trusts(peer) => None,
            Header::Single(name) => single_address(headers, name),
            _ => self.reported(headers).map(|(address, _)| address),
        };
        reported.or(peer.ip()).unwrap_or(NO_ADDRESS)
    }

    /// Returns the parameter of `Forwarded` with this name (RFC 7239 section 4) that the trusted
    /// proxy nearest to the client wrote. `None` if the proxies write another field.
    pub fn forwarded_parameter<'h>(&self, headers: &'h Headers, name: &str) -> Option<&'h str> {
        if self.header != Header::Forwarded {
            return None;
        }
        let (_, hop) = self.reported(headers)?;
        parameter(std::str::from_utf8(hop).ok()?, name)
    }

    /// The address that a trusted proxy reports in a list, and its hop there.
    fn reported<'h>(&self, headers: &'h Headers) -> Option<(IpAddr, &'h [u8])> {
        match self.depth {
            Some(depth) => self.nth_hop(headers, usize::from(depth.get())),
            None => self.first_untrusted(headers),
        }
    }

    /// The first untrusted hop from the right. The last readable hop stands for an unreadable one.
    fn first_untrusted<'h>(&self, headers: &'h Headers) -> Option<(IpAddr, &'h [u8])> {
        let mut client = None;
        for hop in self.hops(headers).take(MAX_HOPS) {
            let Some(address) = self.read(hop) else {
                break;
            };
            client = Some((address, hop));
            if !self.trusts_address(address) {
                break;
            }
        }
        client
    }

    /// The hop at `depth` from the right; none in a shorter list, in which a client that passed fewer
    /// proxies wrote that hop. The last readable hop stands for an unreadable one.
    fn nth_hop<'h>(&self, headers: &'h Headers, depth: usize) -> Option<(IpAddr, &'h [u8])> {
        let (mut client, mut count) = (None, 0);
        for hop in self.hops(headers).take(depth) {
            client = self.read(hop).map(|address| (address, hop)).or(client);
            count += 1;
        }
        client.filter(|_| count == depth)
    }

    /// The hops from the right, over all lines. Empty ones are none (RFC 9110 section 5.6.1.2).
    fn hops<'h>(&self, headers: &'h Headers) -> impl Iterator<Item = &'h [u8]> + use<'h> {
        // Commas within quotes split, too: an open quote of a client must not hide what a proxy
        // appends.
        let values = headers.get_all(self.header.name()).rev();
        values.flat_map(list_from_the_right)
    }

    fn read(&self, hop: &[u8]) -> Option<IpAddr> {
        let hop = std::str::from_utf8(hop).ok()?;
        match self.header {
            Header::XForwardedFor | Header::Single(_) => address(hop.trim()),
            Header::Forwarded => address(parameter(hop, "for")?),
        }
    }

    /// Returns true if the client is named in a field that is not one of all proxies.
    pub fn has_own_field(&self) -> bool {
        matches!(self.header, Header::Single(_))
    }

    /// Removes the field with a single address, which an untrusted peer has written. Upstreams may
    /// believe it.
    pub fn remove_untrusted(&self, headers: &mut Headers) {
        if let Header::Single(name) = &self.header
            && headers.contains(name)
        {
            headers.remove(name);
        }
    }
}

/// The elements of a list that are not empty (RFC 9110 section 5.6.1.2), from the right.
pub(super) fn list_from_the_right(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let elements = value.rsplit(|&byte| byte == b',');
    elements
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// The address in all fields of this name; none if they differ.
fn single_address(headers: &Headers, name: &HeaderName) -> Option<IpAddr> {
    let read = |value: &[u8]| address(std::str::from_utf8(value).ok()?.trim());
    let mut values = headers.get_all(name).map(read);
    let first = values.next()??;
    values.all(|other| other == Some(first)).then_some(first)
}

/// The value of the parameter with this name in an element of `Forwarded`. No parameter stands twice
/// (RFC 7239 section 4): one may come from a quoted host.
fn parameter<'h>(element: &'h str, name: &str) -> Option<&'h str> {
    let pairs = element.split(';');
    let mut values = pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(known, _)| known.eq_ignore_ascii_case(name));
    let (_, value) = values.next()?;
    let quoted = value.strip_prefix('"');
    let quoted = quoted.and_then(|value| value.strip_suffix('"'));
    values.next().is_none().then(|| quoted.unwrap_or(value))
}

/// An address, with or without a port and brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let address = text
        .parse::<IpAddr>()
        .ok()
        .or_else(bare)
        .or_else(with_port)?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn trusting(header: Header, depth: u8) -> ClientIp {
        let nets = ["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().expect("a net"));
        ClientIp {
            trusted: nets.to_vec(),
            header,
            depth: NonZeroU8::new(depth),
            ..ClientIp::default()
        }
    }

    fn peer(address: &str) -> PeerAddress {
        let address: IpAddr = address.parse().expect("an address");
        address.into()
    }

    fn fields(header: &Header, values: &[&str]) -> Headers {
        let field = |value: &&str| {
            let value = HeaderValue::from_str(value).expect("a value");
            (header.name(), value)
        };
        values.iter().map(field).collect()
    }

    fn resolve_at(header: Header, depth: u8, values: &[&str]) -> String {
        let headers = fields(&header, values);
        let client_ip = trusting(header, depth);
        client_ip.resolve(peer("10.0.0.1"), &headers).to_string()
    }

    fn resolve(header: Header, values: &[&str]) -> String {
        resolve_at(header, 0, values)
    }

    #[test]
    fn the_first_untrusted_hop_from_the_right_is_the_client() {
        let xff = |values: &[&str]| resolve(Header::XForwardedFor, values);
        assert_eq!(xff(&[]), "10.0.0.1");
        assert_eq!(xff(&["1.1.1.1, 2.2.2.2, 10.0.0.9"]), "2.2.2.2");
        assert_eq!(xff(&["1.1.1.1", "2.2.2.2", "10.0.0.9"]), "2.2.2.2");
        assert_eq!(xff(&["::ffff:3.3.3.3"]), "3.3.3.3");
        assert_eq!(xff(&["[2001:db8::1]:443"]), "2001:db8::1");
        assert_eq!(xff(&["4.4.4.4:1234,fd00::1"]), "4.4.4.4");
        assert_eq!(xff(&["10.9.9.9, 10.0.0.7"]), "10.9.9.9");
    }

    #[test]
    fn an_unreadable_hop_ends_the_search_at_the_proxy_that_wrote_it() {
        for garbage in ["unknown", "1.2.3", "_hidden", "\"1.1.1.1"] {
            let value = format!("9.9.9.9, {garbage}, 10.0.0.7");
            assert_eq!(
                resolve(Header::XForwardedFor, &[&value]),
                "10.0.0.7",
                "{garbage}"
            );
        }
    }

    #[test]
    fn forwarded_is_read_in_all_its_forms() {
        let forwarded = |value: &str| resolve(Header::Forwarded, &[value]);
        assert_eq!(
            forwarded("for=1.1.1.1;proto=http, For=\"[2001:db8::7]:99\""),
            "2001:db8::7"
        );
        assert_eq!(forwarded("by=x;for=5.5.5.5, for=10.2.2.2"), "5.5.5.5");
        assert_eq!(forwarded("proto=https"), "10.0.0.1");
        assert_eq!(forwarded("for=\"6.6.6.6:80\""), "6.6.6.6");
        assert_eq!(forwarded("for=\"_hidden\""), "10.0.0.1");
        assert_eq!(forwarded("for=unknown"), "10.0.0.1");
    }

    #[test]
    fn a_client_cannot_hide_a_hop_that_a_proxy_appends() {
        let forwarded = |value: &str| resolve(Header::Forwarded, &[value]);
        assert_eq!(forwarded("for=\"6.6.6.6, for=7.7.7.7"), "7.7.7.7");
        assert_eq!(forwarded("for=\"6.6.6.6\\\", for=7.7.7.7"), "7.7.7.7");
        // A host that a proxy copied without care.
        assert_eq!(
            forwarded("host=\"a;for=6.6.6.6;b\";for=7.7.7.7"),
            "10.0.0.1"
        );
        let xff = |values: &[&str]| resolve(Header::XForwardedFor, values);
        assert_eq!(xff(&["\"", "7.7.7.7"]), "7.7.7.7");
        assert_eq!(xff(&[",,,", "7.7.7.7"]), "7.7.7.7");
    }

    proptest! {
        /// Empty elements anywhere change nothing (RFC 9110 section 5.6.1.2).
        #[test]
        fn empty_elements_are_ignored(
            parts in prop::collection::vec(0..5_usize, 0..12),
            depth in 0..4_u8,
            is_forwarded in any::<bool>(),
        ) {
            let header = if is_forwarded { Header::Forwarded } else { Header::XForwardedFor };
            let name = if is_forwarded { "for=" } else { "" };
            let hops = ["", " ", "\t", "203.0.113.9", "10.0.0.7"];
            let hop = |part: &usize| match hops[*part].trim_ascii() {
                "" => hops[*part].to_owned(),
                address => format!("{name}{address}"),
            };
            let all: Vec<_> = parts.iter().map(hop).collect();
            let full: Vec<_> = all.iter().filter(|hop| !hop.trim_ascii().is_empty()).collect();
            let full = full.iter().map(|hop| hop.as_str()).collect::<Vec<_>>().join(",");
            let expected = resolve_at(header.clone(), depth, &[&full]);
            prop_assert_eq!(resolve_at(header.clone(), depth, &[&all.join(",")]), &*expected);
            let lines: Vec<_> = all.iter().map(|hop| hop.trim_ascii()).collect();
            prop_assert_eq!(resolve_at(header, depth, &lines), expected);
        }
    }

    #[test]
    fn the_client_of_a_list_with_an_empty_end_is_found() {
        for value in ["203.0.113.9,", ",203.0.113.9, , 10.0.0.7 ,,"] {
            assert_eq!(resolve(Header::XForwardedFor, &[value]), "203.0.113.9");
        }
        assert_eq!(
            resolve_at(Header::XForwardedFor, 2, &["203.0.113.9,, 10.0.0.7,"]),
            "203.0.113.9"
        );
        assert_eq!(
            resolve(Header::Forwarded, &["for=203.0.113.9,"]),
            "203.0.113.9"
        );
    }

    #[test]
    fn hops_beyond_the_bound_are_not_read() {
        let hops = |count| format!("6.6.6.6{}", ", 10.0.0.2".repeat(count));
        let xff = |count| resolve(Header::XForwardedFor, &[&hops(count)]);
        assert_eq!(xff(MAX_HOPS - 1), "6.6.6.6");
        assert_eq!(xff(MAX_HOPS), "10.0.0.2");
    }

    #[test]
    fn a_depth_counts_hops_from_the_right() {
        let xff = |depth, values: &[&str]| resolve_at(Header::XForwardedFor, depth, values);
        let list = ["1.1.1.1, 2.2.2.2", "3.3.3.3"];
        assert_eq!(xff(1, &list), "3.3.3.3");
        assert_eq!(xff(2, &list), "2.2.2.2");
        assert_eq!(xff(3, &list), "1.1.1.1");
        // Trusted addresses count as any others.
        assert_eq!(xff(1, &["1.1.1.1, 10.0.0.9"]), "10.0.0.9");
        // A client that passed fewer proxies could write the hop.
        assert_eq!(xff(4, &list), "10.0.0.1");
        assert_eq!(xff(1, &[]), "10.0.0.1");
        assert_eq!(xff(2, &["1.1.1.1, unknown, 3.3.3.3"]), "3.3.3.3");
        assert_eq!(xff(3, &["1.1.1.1, unknown, 3.3.3.3"]), "1.1.1.1");
        assert_eq!(xff(1, &["1.1.1.1, unknown"]), "10.0.0.1");
        let forwarded = resolve_at(Header::Forwarded, 2, &["for=1.1.1.1, for=2.2.2.2, for=_x"]);
        assert_eq!(forwarded, "2.2.2.2");
    }

    #[test]
    fn a_single_field_has_one_address() {
        let real_ip = |values: &[&str]| {
            let header = Header::Single(HeaderName::from_static("x-real-ip"));
            resolve(header, values)
        };
        assert_eq!(real_ip(&["1.1.1.1"]), "1.1.1.1");
        assert_eq!(real_ip(&[" [2001:db8::1]:443 "]), "2001:db8::1");
        assert_eq!(real_ip(&["10.0.0.7"]), "10.0.0.7");
        assert_eq!(real_ip(&["1.1.1.1", "1.1.1.1"]), "1.1.1.1");
        for values in [
            &[][..],
            &[""],
            &["unknown"],
            &["1.1.1.1, 2.2.2.2"],
            &["1.1.1.1", "2.2.2.2"],
            &["1.1.1.1", "x"],
        ] {
            assert_eq!(real_ip(values), "10.0.0.1", "{values:?}");
        }
    }

    #[test]
    fn an_untrusted_peer_is_the_client() {
        for header in [
            Header::XForwardedFor,
            Header::Single(HeaderName::from_static("x-real-ip")),
        ] {
            let headers = fields(&header, &["1.1.1.1"]);
            let client_ip = trusting(header, 0);
            let resolve = |address: &str| client_ip.resolve(peer(address), &headers).to_string();
            assert_eq!(resolve("9.9.9.9"), "9.9.9.9");
            assert_eq!(resolve("10.1.1.1"), "1.1.1.1");
            // As a socket for both families reports a peer.
            assert_eq!(resolve("::ffff:10.1.1.1"), "1.1.1.1");
            assert_eq!(resolve("::ffff:9.9.9.9"), "9.9.9.9");
        }
    }

    #[test]
    fn a_peer_over_a_unix_socket_is_trusted_by_name_only() {
        let everybody = ClientIp {
            trusted: vec!["0.0.0.0/0".parse().expect("a net")],
            ..ClientIp::default()
        };
        let headers = fields(&Header::XForwardedFor, &["1.1.1.1"]);
        assert_eq!(everybody.resolve(PeerAddress::Unix, &headers), NO_ADDRESS);
        let unix = ClientIp {
            trusts_unix: true,
            ..ClientIp::default()
        };
        let resolve = |headers| unix.resolve(PeerAddress::Unix, headers);
        assert_eq!(resolve(&headers), IpAddr::from([1, 1, 1, 1]));
        assert_eq!(resolve(&Headers::new()), NO_ADDRESS);
    }

    #[test]
    fn clients_are_told_apart_by_the_first_bits_of_ipv6() {
        for (prefix, expected) in [(64, "2001:db8:1:2::"), (128, "2001:db8:1:2::3"), (1, "::")] {
            let rules = ClientIp {
                ipv6_prefix: prefix,
                ..ClientIp::default()
            };
            let address = "2001:db8:1:2::3".parse().expect("an address");
            assert_eq!(rules.identify(address).to_string(), expected);
            let address = IpAddr::from([192, 0, 2, 7]);
            assert_eq!(rules.identify(address), address);
        }
    }

    #[test]
    fn without_trusted_proxies_the_peer_is_the_client() {
        let headers = fields(&Header::XForwardedFor, &["1.1.1.1"]);
        let client = ClientIp::default().resolve(peer("9.9.9.9"), &headers);
        assert_eq!(client, IpAddr::from([9, 9, 9, 9]));
    }

    proptest! {
        #[test]
        fn no_field_value_panics(value in "[ -~]{0,60}") {
            resolve(Header::XForwardedFor, &[&value]);
            resolve(Header::Forwarded, &[&value]);
        }
    }
}
