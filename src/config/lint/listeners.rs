//! Upstreams that lead back to the proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Finding;
use crate::config::diagnostic::Code;
use crate::config::schema::Config;
use crate::config::value::{OriginUrl, UpstreamRef};
use crate::net::listener::ListenAddress;

/// Warns of endpoints that are a listener of this proxy: requests loop until a limit refuses them.
pub(super) fn own_listeners(config: &Config) -> Vec<Finding> {
    let endpoints = config
        .upstreams
        .values()
        .flat_map(|upstream| upstream.endpoints.iter());
    let endpoints = endpoints.map(|endpoint| (&endpoint.url.value, endpoint.url.node));
    let in_place = config
        .routes
        .iter()
        .filter_map(|route| match &route.upstream.value {
            UpstreamRef::Url(url) => Some((url, route.upstream.node)),
            UpstreamRef::Echo | UpstreamRef::Status | UpstreamRef::Named(_) => None,
        });
    let findings = endpoints.chain(in_place).filter_map(|(url, node)| {
        let mut listeners = config.listeners.iter();
        let own = listeners.find(|listener| match (&listener.address.value, &url.socket) {
            (ListenAddress::Tcp(address), None) => accepts(*address, url),
            (ListenAddress::Unix(listener), Some(socket)) => listener == socket,
            _ => false,
        })?;
        let address = &own.address;
        let message = format!("requests come back to the listener on `{}`", address.value);
        let finding = Finding::warning(node, Code::OwnListener, message);
        let finding = finding.related(address.node, "the listener");
        Some(finding.help("name the server behind the proxy, or give the listener another port"))
    });
    findings.collect()
}

/// True if the listener accepts connections to this URL. Resolves no name but `localhost`.
fn accepts(listener: SocketAddr, url: &OriginUrl) -> bool {
    let host = match url.host.as_str() {
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        host => host.parse::<IpAddr>().ok(),
    };
    let is_everywhere = listener.ip().is_unspecified();
    listener.port() == url.port
        && host.is_some_and(|host| {
            host == listener.ip() || is_everywhere && (host.is_loopback() || host.is_unspecified())
        })
}
