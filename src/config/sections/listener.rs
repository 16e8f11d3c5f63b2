//! `listeners` with their TLS, bounds for clients, the fields that name the client, and the other
//! settings of the server.

use std::net::{Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls_pki_types::UnixTime;
use tracing::warn;

use crate::config::compiler::MAX_CERTIFICATE_FILE;
use crate::config::sections::prelude::*;
use crate::http::client_ip::{self, Header};
use crate::http::connection::TlsVersion;
use crate::proxy::answers::response_changes::ResponseChanges;
use crate::server::tls::{self, TlsError};
use crate::server::{
    ClientRules, ClientSpec, ConnectionLife, CurrentRules, HalfClose, ListenerSpec, Protocols,
    ServerSpec, Timeouts,
};

/// An item of `listeners`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Listener {
    /// The IP address and port to listen on, or a Unix socket (`unix:/run/sluicegate.sock`).
    pub address: Located<StreamAddress>,
    /// Requires a header of the PROXY protocol, version 1 or 2, from `client_ip.trusted_proxies` and
    /// from peers over a Unix socket. Other peers are read as plain clients.
    #[serde(default)]
    pub proxy_protocol: Located<Flag>,
    /// Protocols: with TLS the client chooses (ALPN), without it `h2` is for clients that know
    /// beforehand. `[h2]` alone answers HTTP/1 with 505. Both unless given.
    #[serde(default = "both")]
    #[schemars(length(min = 1))]
    pub protocols: List<Protocol>,
    /// TLS; cleartext without it.
    pub tls: Option<Located<Tls>>,
}

impl Default for Listener {
    fn default() -> Self {
        let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8080));
        Self {
            address: StreamAddress::Tcp(address).into(),
            proxy_protocol: Located::default(),
            protocols: both(),
            tls: None,
        }
    }
}

fn both() -> List<Protocol> {
    vec![Protocol::Http1.into(), Protocol::Http2.into()].into()
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Protocol {
    /// HTTP/1.1, and 1.0.
    #[default]
    #[serde(rename = "http/1.1")]
    Http1,
    /// HTTP/2.
    #[serde(rename = "h2")]
    Http2,
}

/// `tls` of a listener, and of `admin`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Tls {
    /// Chosen by the name that the client asks for (SNI); the first is for all other names. Read
    /// again when the files change.
    #[schemars(length(min = 1))]
    pub certificates: List<Certificate>,
    /// The oldest version of TLS that is accepted.
    #[serde(default)]
    pub min_version: Located<TlsVersion>,
}

/// A certificate and its private key, in PEM.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Certificate {
    /// The file with the certificate, the intermediate ones after it.
    pub certificate: Located<FilePath>,
    /// The file with the private key.
    pub key: Located<FilePath>,
}

pub(crate) fn check(config: &Config, findings: &Findings<'_>) {
    let help = "remove the key for one listener on `[::]:8080`";
    report_empty(&config.listeners, findings, help);
    for listener in config.listeners.iter() {
        check_listener(listener, config, findings);
    }
    check_tls(config.admin.tls.as_ref(), findings);
    check_addresses(config, findings);
    check_shares(config, findings);
    check_client_ip(config, findings);
}

/// The bound of one client matters only below that of all.
fn check_shares(config: &Config, findings: &Findings<'_>) {
    let max = &config.client.max_connections;
    let per_client = config.client.max_connections_per_client.as_ref();
    if let Some(most) = per_client.filter(|most| most.get() >= max.get()) {
        let message = format!("one client may hold all {max} connections");
        let finding = warn_no_effect(most.node, message);
        let finding = finding.related(max.node, "the connections of all clients");
        let help = "set less than `max_connections`, or remove the key for three quarters of it";
        findings.add(finding.help(help));
    }
}

fn check_client_ip(config: &Config, findings: &Findings<'_>) {
    let client_ip = &config.client_ip;
    if let (Some(depth), Header::Single(name)) = (&client_ip.depth, &client_ip.header.value) {
        let message = format!("`{name}` has a single address: there is none at a depth");
        let finding = conflict(depth.node, message).related(client_ip.header.node, "the field");
        findings.add(finding.help("remove `depth`, or name `x-forwarded-for` or `forwarded`"));
    }
    if !client_ip.trusted_proxies.is_empty() {
        return;
    }
    for (_, node) in given(options!(client_ip, header, depth)) {
        let finding = warn_no_effect(node, "the field is never read, because no proxy is trusted");
        findings.add(finding.help(
            "name the networks of your proxies in `client_ip.trusted_proxies`, or remove the key",
        ));
    }
}

fn check_listener(listener: &Listener, config: &Config, findings: &Findings<'_>) {
    let help = "remove the key for `[http/1.1, h2]`";
    report_empty(&listener.protocols, findings, help);
    report_twice(&listener.protocols, findings);
    let is_tcp = listener.address.tcp().is_some();
    if listener.proxy_protocol.get() && is_tcp && config.client_ip.trusted_proxies.is_empty() {
        let message = "no header is ever read, because no proxy is trusted";
        let finding = warn_no_effect(listener.proxy_protocol.node, message);
        findings.add(finding.help(
            "name the networks of your load balancers in `client_ip.trusted_proxies`, or remove the key",
        ));
    }
    check_tls(listener.tls.as_ref(), findings);
}

fn check_tls(tls: Option<&Located<Tls>>, findings: &Findings<'_>) {
    if let Some(tls) = tls {
        let help = "name one certificate at least, or remove `tls` for cleartext";
        report_empty(&tls.certificates, findings, help);
    }
}

/// Two listeners cannot share an address, or a port if one of them listens on all addresses.
fn check_addresses(config: &Config, findings: &Findings<'_>) {
    let public = config.listeners.iter().map(|listener| &listener.address);
    let public = public.map(|address| (address.value.clone(), address.node));
    let admin = &config.admin.address;
    let admin = (StreamAddress::Tcp(*admin.get()), admin.node);
    let addresses: Vec<_> = public.chain([admin]).collect();
    for (index, (later, node)) in addresses.iter().enumerate() {
        let mut before = addresses[..index].iter();
        let Some((earlier, other)) = before.find(|(earlier, _)| overlap(earlier, later)) else {
            continue;
        };
        let message = format!("`{later}` is taken by another listener, on `{earlier}`");
        let finding = Finding::error(node.or(*other), Code::DuplicateName, message);
        let finding = finding.related(*other, "the other one");
        findings.add(finding.help(match later {
            StreamAddress::Tcp(_) => {
                "give each listener a port of its own; `[::]` is every address, also of IPv4"
            }
            StreamAddress::Unix(_) => "give each listener a path of its own",
        }));
    }
}

fn overlap(one: &StreamAddress, other: &StreamAddress) -> bool {
    let (Some(one), Some(other)) = (one.tcp(), other.tcp()) else {
        return one == other;
    };
    let takes = |one: SocketAddr, other: SocketAddr| {
        one.ip() == other.ip() || one.ip().is_unspecified() && (one.is_ipv6() || other.is_ipv4())
    };
    one.port() == other.port() && one.port() != 0 && (takes(one, other) || takes(other, one))
}

impl Compiler<'_> {
    pub(crate) fn server(
        &mut self,
        config: &Config,
        client_ip: Arc<client_ip::ClientIp>,
        responses: &ResponseChanges,
    ) -> ServerSpec {
        let (client, listeners) = (&config.client, config.listeners.iter());
        let per_client = client.max_connections_per_client.as_ref();
        ServerSpec {
            name: "worker",
            workers: match config.workers.value {
                Workers::Auto => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
                Workers::Fixed(number) => NonZeroUsize::from(number),
            },
            listeners: listeners.map(|listener| self.listener(listener)).collect(),
            client: ClientSpec {
                timeouts: Timeouts {
                    head: client.timeouts.head.get(),
                    body: client.timeouts.body.get(),
                    idle: client.timeouts.idle.get(),
                },
                max_head: client.max_head.get() as usize,
                max_fields: client.max_fields.get() as usize,
                max_connections: client.max_connections.get() as usize,
                max_connections_per_client: per_client.map(|most| most.get() as usize),
                life: ConnectionLife {
                    max_requests: client.max_requests.get(),
                    max_lifetime: client.max_lifetime.get(),
                },
                half_close: client.half_close.value,
            },
            client_rules: CurrentRules::new(ArcSwap::from_pointee(ClientRules {
                client_ip,
                refusal_fields: responses.constants(),
            })),
            max_exchange: None,
        }
    }

    fn listener(&mut self, listener: &Listener) -> ListenerSpec {
        let speaks = |protocol| listener.protocols.iter().any(|known| **known == protocol);
        let protocols = match (speaks(Protocol::Http1), speaks(Protocol::Http2)) {
            (true, false) => Protocols::Http1,
            (false, true) => Protocols::Http2,
            _ => Protocols::Both,
        };
        let tls = listener.tls.as_ref();
        ListenerSpec {
            address: listener.address.value.clone(),
            protocols,
            proxy_protocol: listener.proxy_protocol.get(),
            tls: tls.and_then(|tls| self.tls(tls, protocols)),
        }
    }

    /// The TLS of a listener; `None` with a finding.
    pub(crate) fn tls(&mut self, tls: &Tls, protocols: Protocols) -> Option<tls::Tls> {
        let certificates = tls.certificates.iter();
        let certificates: Vec<_> = certificates.map(|one| self.certificate(one)).collect();
        let certificates = certificates.into_iter().collect::<Option<Vec<_>>>()?;
        let loaded = tls::Tls::new(&certificates, tls.min_version.value, protocols);
        self.readable(tls.certificates.node, loaded)
    }

    fn certificate(&mut self, certificate: &Certificate) -> Option<tls::Certificate> {
        let path = self.resolve(certificate.certificate.as_path());
        let is_first = self.files.iter().all(|file| file.path != path);
        // Reports both files if both are missing.
        let files = [&certificate.certificate, &certificate.key];
        let [chain, key] = files.map(|file| self.read(file, MAX_CERTIFICATE_FILE));
        let (chain, key) = (chain?, key?);
        let loaded = tls::Certificate::new(&chain, &key, UnixTime::now());
        let expiry = loaded.as_ref().ok().and_then(|one| one.expiry.as_ref());
        if let Some(expiry) = expiry.filter(|_| is_first) {
            let (problem, advice) = (expiry.describe(&path), expiry.advice());
            warn!("{problem}; {advice}");
        }
        let file = loaded.as_ref().err().and_then(|error| error.file.as_ref());
        let node = match file {
            Some(file) if *file == key.0 => certificate.key.node,
            _ => certificate.certificate.node,
        };
        self.readable(node, loaded)
    }

    /// The loaded value; an error becomes a finding at `node`.
    fn readable<T>(&mut self, node: NodeId, loaded: Result<T, TlsError>) -> Option<T> {
        self.found(loaded.map_err(|error| {
            let finding = Finding::error(node, Code::Unreadable, error.to_string());
            finding.help(error.advice)
        }))
    }
}

/// The size of a request head.
pub type HeadSize = Size<{ 8 << 10 }, { 1 << 20 }, { 32 << 10 }>;
/// The size of a request body.
pub type BodySize<const DEFAULT: u64 = 0> = Size<0, { 1 << 40 }, DEFAULT>;

/// `client`: time-outs and bounds towards clients.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Client")]
pub struct ClientBounds {
    /// How long clients may take.
    pub timeouts: Located<ClientTimeouts>,
    /// The largest request head (request line and fields), `8KiB` to `1MiB`; 431 beyond.
    pub max_head: Located<HeadSize>,
    /// The most fields of a request head, 1 to 256; 431 beyond. `Cookie` counts once over HTTP/2.
    pub max_fields: Located<Whole<1, 256, 100>>,
    /// The largest request body, `0B` to `1024GiB`; 413 beyond. A route may say less or more.
    pub max_body: Located<BodySize<{ 100 << 20 }>>,
    /// Bytes of request bodies that are held at a time, for limits that read them (`read_body`) and for
    /// retries, `1MiB` to `1024GiB`; a body that has to be read is answered 503 beyond.
    pub max_held_bodies: Located<Size<{ 1 << 20 }, { 1 << 40 }, { 128 << 20 }>>,
    /// Connections of clients at a time, over all listeners, 1 to 1000000. Near it the oldest idle
    /// connection gives way to a new one.
    pub max_connections: Located<Whole<1, 1_000_000, 20_000>>,
    /// Connections of one client at a time, 1 to 1000000; further ones are closed. Three quarters of
    /// `max_connections` unless given. Trusted proxies are no clients.
    pub max_connections_per_client: Option<Located<Whole<1, 1_000_000>>>,
    /// Requests on one connection, 1 to 1000000000; then the client has to open another.
    pub max_requests: Located<Whole<1, 1_000_000_000, 1_000_000>>,
    /// How long one connection lives, `1s` to `1d`; then the client has to open another, after its
    /// requests in flight.
    pub max_lifetime: Located<Duration<{ SECOND }, DAY, { HOUR }>>,
    /// How long a client that has ended its side of the connection (FIN) waits for its answer to
    /// begin or to go on: `0s` to `1h`, or `serve` for as long as any other.
    pub half_close: Located<HalfClose>,
}

/// `client.timeouts`: each `1ms` to `1d`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct ClientTimeouts {
    /// For a whole request head, from its first byte; for the first, from connecting.
    pub head: Located<Timeout<{ 10 * SECOND }>>,
    /// For the next part of a request body.
    pub body: Located<Timeout<{ 30 * SECOND }>>,
    /// For the next request on an open connection.
    pub idle: Located<Timeout<{ 75 * SECOND }>>,
}

/// `client_ip`: who the client is. Only trusted proxies are believed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct ClientIp {
    /// Networks of the proxies before this one; `unix` for the peers over Unix sockets.
    pub trusted_proxies: List<TrustedProxy>,
    /// The field that they write. In `x-forwarded-for` and `forwarded` the client is the first
    /// address from the right that is not trusted; any other field has a single address.
    pub header: Located<Header>,
    /// Takes the address at this position from the right instead, 1 to 32; the peer does not count.
    /// Only for `x-forwarded-for` and `forwarded`.
    pub depth: Option<Located<Whole<1, 32>>>,
    /// Bits of an IPv6 address that tell clients apart, 1 to 128.
    pub ipv6_prefix: Located<Whole<1, 128, 64>>,
}
