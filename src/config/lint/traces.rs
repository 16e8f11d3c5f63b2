//! The export of spans: credentials that others on the network can read.

use std::net::IpAddr;

use super::Finding;
use crate::config::diagnostic::Code;
use crate::config::schema::Config;
use crate::http::connection::Scheme;

/// Warns of secret fields that leave this machine in clear text.
pub(super) fn cleartext_credentials(config: &Config) -> Option<Finding> {
    let tracing = config.tracing.as_ref()?;
    let (name, _) = tracing.headers.first_key_value()?;
    let host = &tracing.endpoint.origin.host;
    if tracing.scheme() == Scheme::Https || is_loopback(host) {
        return None;
    }
    let message = format!("`{name}` goes to `{host}` in clear text");
    let finding = Finding::warning(name.node, Code::CleartextCredentials, message);
    let finding = finding.related(tracing.endpoint.node, "the collector");
    Some(finding.help("write the URL with `https://`, or run a collector on this machine"))
}

/// True for the addresses and the names of this machine (RFC 6761 section 6.3).
fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    let is_local = host == "localhost" || host.ends_with(".localhost");
    address.map_or(is_local, |address| address.is_loopback())
}
