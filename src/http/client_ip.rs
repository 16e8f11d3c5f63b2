//! The address of the client: the peer's, or the one that trusted proxies report.

use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HeaderName};
use ipnet::IpNet;

use crate::http::headers::Headers;

/// `X-Forwarded-For`.
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The most hops to read and to forward. Any client may have written those further to the left.
pub(super) const MAX_HOPS: usize = 64;

/// The field that lists the hops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded`, RFC 7239.
    Forwarded,
}

/// The trusted proxies, and the field that they write.
#[derive(Clone, Debug)]
pub struct ClientIp {
    trusted: Vec<IpNet>,
    header: Header,
}

impl ClientIp {
    /// Reads `header` as far as the proxies in `trusted` have written it.
    pub fn new(trusted: Vec<IpNet>, header: Header) -> Self {
        ClientIp { trusted, header }
    }

    /// Returns true if the peer at `address` is a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|net| net.contains(&address))
    }

    /// Returns the first untrusted address from the right, beginning with the peer's. The last
    /// readable hop stands for an unreadable one.
    pub fn resolve(&self, peer: IpAddr, headers: &Headers) -> IpAddr {
        let mut client = peer.to_canonical();
        if self.trusted.is_empty() || !self.trusts(client) {
            return client;
        }
        let values = match self.header {
            Header::XForwardedFor => headers.get_all(X_FORWARDED_FOR),
            Header::Forwarded => headers.get_all(FORWARDED),
        };
        // Commas within quotes split, too: an open quote of a client must not hide what a proxy
        // appends.
        let hops = values
            .rev()
            .flat_map(|value| value.rsplit(|&byte| byte == b','));
        for hop in hops.take(MAX_HOPS) {
            let Some(address) = std::str::from_utf8(hop).ok().and_then(|hop| self.read(hop)) else {
                break;
            };
            client = address;
            if !self.trusts(client) {
                break;
            }
        }
        client
    }

    fn read(&self, hop: &str) -> Option<IpAddr> {
        match self.header {
            Header::XForwardedFor => address(hop.trim()),
            Header::Forwarded => {
                let mut nodes = hop
                    .split(';')
                    .filter_map(|pair| pair.trim().split_once('='))
                    .filter(|(name, _)| name.eq_ignore_ascii_case("for"));
                let (_, node) = nodes.next()?;
                // RFC 7239 section 4: no parameter stands twice. One may come from a quoted host.
                nodes
                    .next()
                    .is_none()
                    .then(|| address(unquote(node)))
                    .flatten()
            }
        }
    }
}

fn unquote(text: &str) -> &str {
    let inner = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    inner.unwrap_or(text)
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

    fn resolve(header: Header, values: &[&str]) -> String {
        let name = match header {
            Header::XForwardedFor => X_FORWARDED_FOR,
            Header::Forwarded => FORWARDED,
        };
        let headers: Headers = values
            .iter()
            .map(|value| (name.clone(), HeaderValue::from_str(value).expect("a value")))
            .collect();
        let nets = ["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().expect("a net"));
        let client_ip = ClientIp::new(nets.to_vec(), header);
        client_ip
            .resolve([10, 0, 0, 1].into(), &headers)
            .to_string()
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
        for garbage in ["unknown", "", "1.2.3", "_hidden", "\"1.1.1.1"] {
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

    #[test]
    fn hops_beyond_the_bound_are_not_read() {
        let hops = |count| format!("6.6.6.6{}", ", 10.0.0.2".repeat(count));
        let xff = |count| resolve(Header::XForwardedFor, &[&hops(count)]);
        assert_eq!(xff(MAX_HOPS - 1), "6.6.6.6");
        assert_eq!(xff(MAX_HOPS), "10.0.0.2");
    }

    #[test]
    fn an_untrusted_peer_is_the_client() {
        let client_ip = ClientIp::new(
            vec!["10.0.0.0/8".parse().expect("a net")],
            Header::XForwardedFor,
        );
        let value = HeaderValue::from_static("1.1.1.1, 10.0.0.1");
        let headers: Headers = [(X_FORWARDED_FOR, value)].into_iter().collect();
        let resolve = |peer: &str| client_ip.resolve(peer.parse().expect("an address"), &headers);
        assert_eq!(resolve("9.9.9.9").to_string(), "9.9.9.9");
        assert_eq!(resolve("10.1.1.1").to_string(), "1.1.1.1");
        // As a socket for both families reports a peer.
        assert_eq!(resolve("::ffff:10.1.1.1").to_string(), "1.1.1.1");
        assert_eq!(resolve("::ffff:9.9.9.9").to_string(), "9.9.9.9");
    }

    #[test]
    fn without_trusted_proxies_the_peer_is_the_client() {
        let headers: Headers = [(X_FORWARDED_FOR, HeaderValue::from_static("1.1.1.1"))]
            .into_iter()
            .collect();
        let nobody = ClientIp::new(Vec::new(), Header::XForwardedFor);
        let peer = IpAddr::from([9, 9, 9, 9]);
        assert_eq!(nobody.resolve(peer, &headers), peer);
    }

    proptest! {
        #[test]
        fn no_field_value_panics(value in "[ -~]{0,60}") {
            resolve(Header::XForwardedFor, &[&value]);
            resolve(Header::Forwarded, &[&value]);
        }
    }
}
