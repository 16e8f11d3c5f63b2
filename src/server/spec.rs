//! The settings of servers: addresses, and bounds and time-outs towards clients.

use std::num::NonZeroUsize;
use std::time::Duration;

use derive_more::Display;
use tokio::time::Instant;

use super::client_rules::CurrentRules;
use super::tls::Tls;
use crate::clock::duration::show;
use crate::clock::whole_micros;
use crate::net::socket::StreamAddress;

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// The name of its threads, to which a number is added; Linux shows at most 12 bytes of it.
    pub name: &'static str,
    /// The number of worker threads.
    pub workers: NonZeroUsize,
    /// The addresses that clients connect to.
    pub listeners: Vec<ListenerSpec>,
    /// Bounds for clients, the same on all listeners.
    pub client: ClientSpec,
    /// The rules that tell clients apart.
    pub client_rules: CurrentRules,
    /// The longest time from the head of a request until its client has taken the response, unless
    /// that has no length. With it, connections that are being answered give way to new ones, too:
    /// the oldest of the idle or of the busy, whichever are more. Requires one worker with
    /// listeners of HTTP/1.
    pub max_exchange: Option<Duration>,
}

/// An address that clients connect to.
#[derive(Clone, Debug)]
pub struct ListenerSpec {
    /// The address to bind.
    pub address: StreamAddress,
    /// Trusted proxies, and peers over a Unix socket, begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// The versions of HTTP that it speaks.
    pub protocols: Protocols,
    /// TLS, loaded with the same `protocols`; `None` for clear text.
    pub tls: Option<Tls>,
}

impl ListenerSpec {
    /// Returns true if another spec for this address differs in certificates at most.
    pub(super) fn differs_only_in_certificates(&self, other: &Self) -> bool {
        let Self {
            address: _,
            proxy_protocol,
            protocols,
            tls,
        } = self;
        let min_version = |tls: &Option<Tls>| tls.as_ref().map(|tls| tls.min_version);
        *proxy_protocol == other.proxy_protocol
            && *protocols == other.protocols
            && min_version(tls) == min_version(&other.tls)
    }
}

/// The versions of HTTP that a listener speaks. ALPN selects one over TLS; in clear text a client
/// needs prior knowledge for HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/1.1 (and 1.0) only.
    Http1,
    /// HTTP/2 only.
    Http2,
    /// Both, HTTP/2 preferred.
    Both,
}

impl Protocols {
    pub(super) fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http1 => &[b"http/1.1", b"http/1.0"],
            Self::Http2 => &[b"h2"],
            Self::Both => &[b"h2", b"http/1.1", b"http/1.0"],
        }
    }
}

/// The version of HTTP that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http1,
    Http2,
    /// Not HTTP/2, on a listener that speaks HTTP/2 alone.
    Unsupported,
}

/// Bounds towards clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSpec {
    /// Time-outs for clients.
    pub timeouts: Timeouts,
    /// The largest head of a request, in bytes; a larger one is answered with 431.
    pub max_head: usize,
    /// The most fields in it, at most 256; more are answered with 431.
    pub max_fields: usize,
    /// The most connections at once over all listeners. Near it idle ones give way; beyond it new
    /// ones wait, unread.
    pub max_connections: usize,
    /// The most connections of one client; further ones are closed. `None` for three quarters of
    /// `max_connections`.
    pub max_connections_per_client: Option<usize>,
    /// The bounds of each connection.
    pub life: ConnectionLife,
    /// The time that half-closing clients get.
    pub half_close: HalfClose,
}

/// Bounds of a connection's life. It ends after a response. Each connection has up to a tenth less,
/// so that clients do not reconnect all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLife {
    /// The most requests.
    pub max_requests: u32,
    /// The longest time.
    pub max_lifetime: Duration,
}

impl ConnectionLife {
    /// The bounds of the connection with this number, which is accepted at `now`. Consecutive
    /// numbers are spread evenly, by the golden ratio.
    pub(super) fn of(&self, number: u64, now: Instant) -> (u32, Instant) {
        let tenth = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let fewer = (u64::from(self.max_requests / 10) * tenth) >> 32;
        let shorter = (self.max_lifetime / 10).mul_f64(tenth as f64 / 2_f64.powi(32));
        let requests = self.max_requests - u32::try_from(fewer).unwrap_or(0);
        (requests, now + self.max_lifetime - shorter)
    }
}

/// The time that a client gets for its response after it has ended its side of the connection. It
/// may have half-closed, or be gone, which only a write would show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum HalfClose {
    /// The response must begin, or go on, within this time.
    #[display("{}", show(whole_micros(*_0)))]
    Grace(Duration),
    /// As much as any other client.
    #[display("serve")]
    Serve,
}

impl Default for HalfClose {
    fn default() -> Self {
        Self::Grace(Duration::from_secs(1))
    }
}

/// Time-outs of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a whole head, from its first byte. The first head counts from connecting, with the TLS
    /// handshake. Also for heads of HTTP/2 frames.
    pub head: Duration,
    /// For a client that reads nothing of its response.
    pub body: Duration,
    /// For the next request.
    pub idle: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_differ_by_a_tenth() {
        let life = ConnectionLife {
            max_requests: 1_000,
            max_lifetime: Duration::from_secs(1_000),
        };
        let now = Instant::now();
        let lives: Vec<_> = (0..100).map(|number| life.of(number, now)).collect();
        let requests = lives.iter().map(|(requests, _)| *requests);
        let seconds = lives.iter().map(|(_, end)| (*end - now).as_secs());
        assert!(
            requests
                .clone()
                .all(|requests| (900..=1_000).contains(&requests))
        );
        assert!(
            seconds
                .clone()
                .all(|seconds| (900..=1_000).contains(&seconds))
        );
        // A quarter of them in each quarter of the tenth, or nearly.
        for quarter in [900..925, 925..950, 950..975, 975..1_001] {
            let count = requests.clone().filter(|one| quarter.contains(one)).count();
            assert!((22..=28).contains(&count), "{quarter:?}: {count}");
        }
        let one = ConnectionLife {
            max_requests: 1,
            ..life
        };
        assert!((0..100).all(|number| one.of(number, now).0 == 1));
    }
}
