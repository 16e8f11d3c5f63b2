//! Upstreams: retries that may go on for long, bounds that cost connections, options without an
//! effect, gRPC over HTTP/1.1, and upstreams that lead back to the proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::config::sections::prelude::*;

/// Warns of routes for gRPC, which needs HTTP/2, to upstreams that speak HTTP/1.1.
pub(super) fn grpc_over_http1(config: &Config) -> impl Iterator<Item = Finding> {
    config.routes.iter().filter_map(move |route| {
        let grpc = route.matches.grpc.as_ref()?;
        let upstream = route.upstream.as_ref()?;
        let protocol = match &upstream.value {
            UpstreamRef::BuiltIn(_) => return None,
            UpstreamRef::Url(_) => UpstreamProtocol::default(),
            UpstreamRef::Named(name) => config.upstreams.get(name.as_str())?.protocol.value,
        };
        let message = "gRPC needs HTTP/2, and the upstream speaks HTTP/1.1";
        let finding = warn_no_effect(grpc.node, message).related(upstream.node, "the upstream");
        (protocol == UpstreamProtocol::Http1).then(|| {
            finding.help("write `protocol: h2` in the upstream, which has to be in `upstreams`")
        })
    })
}

/// Warns of retries that the user asks for, each of which may take the whole time for a response.
pub(super) fn retries_without_deadline(upstream: &Upstream) -> Option<Finding> {
    let (retries, timeouts) = (&upstream.retries, &upstream.timeouts);
    let attempts = retries.attempts.get();
    let is_bounded = timeouts.request.is_some() || timeouts.attempt.is_some();
    let node = retries.given()?;
    if attempts == 0 || is_bounded {
        return None;
    }
    let longest = timeouts.response.get() * (attempts + 1);
    let message = format!("a request may take {longest:?} until it fails");
    let finding = Finding::warning(node, Code::RetriesWithoutDeadline, message).at_key();
    let finding = finding.related(timeouts.response.node, "the time of each attempt");
    Some(finding.help("bound it: `timeouts: { request: 30s }`, or each attempt: `{ attempt: 5s }`"))
}

/// Warns of a time for each attempt that is not over before the whole request is.
pub(super) fn late_attempts(upstream: &Upstream) -> Option<Finding> {
    let timeouts = &upstream.timeouts;
    let (attempt, request) = (timeouts.attempt.as_ref()?, timeouts.request.as_ref()?);
    let finding = warn_no_effect(
        attempt.node,
        "the whole request ends before an attempt does",
    );
    let finding = finding.related(request.node, "the time of the whole request");
    (attempt.get() >= request.get())
        .then(|| finding.help("set less than `request`, so that there is time for another attempt"))
}

/// Warns of a bound for which workers close each other's connections, where that costs handshakes.
pub(super) fn few_connections(upstream: &Upstream, config: &Config) -> Option<Finding> {
    let (max, Workers::Fixed(workers)) = (upstream.connections.max.as_ref()?, config.workers.value)
    else {
        return None;
    };
    let is_shared = upstream.protocol.value == UpstreamProtocol::Http2;
    if !upstream.has_tls() || is_shared || max.get() >= u32::from(workers.get()) {
        return None;
    }
    let message = format!("{workers} workers, and at most {} connections", max.get());
    let finding = Finding::warning(max.node, Code::FewConnections, message);
    let finding = finding.at_key().related(config.workers.node, "the workers");
    Some(finding.help("raise it, start fewer workers, or share connections: `protocol: h2`"))
}

/// Warns of options that need another address, where there is one. A name may have several.
pub(super) fn options_of_one_address(config: &Config) -> Vec<Finding> {
    let upstreams = config.upstreams.values();
    let of_one = upstreams.filter(|upstream| match upstream.endpoints.as_slice() {
        [only] => only.url.is_address(),
        _ => false,
    });
    let found = of_one.flat_map(|upstream| {
        let ejects = matches!(upstream.ejection.value, Ejection::On(_));
        let retries = upstream.retries.attempts.get() > 0;
        let options = [
            ("ejection", upstream.ejection.given().filter(|_| ejects)),
            ("retries", upstream.retries.given().filter(|_| retries)),
            ("health", upstream.health.given()),
        ];
        given(options).map(|(option, node)| {
            let message = format!("`{option}` with a single address");
            let finding = warn_no_effect(node, message).at_key();
            let finding = finding.related(upstream.endpoints.node, "the address");
            finding.help("it needs another one to send requests to: add an endpoint, or remove it")
        })
    });
    found.collect()
}

/// Warns of endpoints that are a listener of this proxy: requests loop until a limit refuses them.
/// Through one that is the admin listener, clients reach `/metrics`.
pub(super) fn own_listeners(config: &Config) -> impl Iterator<Item = Finding> {
    let upstreams = config.upstreams.values();
    let endpoints = upstreams.flat_map(|upstream| upstream.endpoints.iter());
    let endpoints = endpoints.map(|endpoint| (&endpoint.url.value, endpoint.url.node));
    let routes = config.routes.iter();
    let upstreams = routes.filter_map(|route| route.upstream.as_ref());
    let in_place = upstreams.filter_map(|upstream| match &upstream.value {
        UpstreamRef::Url(url) => Some((url, upstream.node)),
        UpstreamRef::BuiltIn(_) | UpstreamRef::Named(_) => None,
    });
    endpoints.chain(in_place).filter_map(move |(url, node)| {
        let mut listeners = config.listeners.iter().map(|listener| &listener.address);
        let own = listeners.find(|listener| match (&listener.value, &url.socket) {
            (StreamAddress::Tcp(address), None) => accepts(*address, url),
            (StreamAddress::Unix(listener), Some(socket)) => listener == socket,
            _ => false,
        });
        let own = own.map(|own| (own.node, own.value.to_string(), "come back to the listener"));
        let admin = &config.admin.address;
        let is_admin = url.socket.is_none() && accepts(*admin.get(), url);
        let admin = (admin.node, admin.to_string(), "reach the admin listener");
        let (listener, address, what) = own.or_else(|| is_admin.then_some(admin))?;
        let message = format!("requests {what} on `{address}`");
        let finding = Finding::warning(node, Code::OwnListener, message);
        let finding = finding.related(listener, "the listener");
        Some(finding.help("name the server behind the proxy, or give the listener another port"))
    })
}

/// True if the listener accepts connections to this URL. Resolves no name but `localhost`.
fn accepts(listener: SocketAddr, url: &OriginUrl) -> bool {
    let host = match url.host.as_str() {
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        host => host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical()),
    };
    let is_everywhere = listener.ip().is_unspecified();
    listener.port() == url.port
        && host.is_some_and(|host| {
            host == listener.ip() || is_everywhere && (host.is_loopback() || host.is_unspecified())
        })
}
