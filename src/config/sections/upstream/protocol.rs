//! `protocol` of an upstream: the version of HTTP.

use crate::config::schema::Upstream;
use crate::config::words::words;
use crate::config::{Code, Finding, Findings};
use crate::upstream::UpstreamProtocol;

words! {
    /// The version of HTTP with an upstream.
    "UpstreamProtocol" for UpstreamProtocol {
        /// HTTP/1.1.
        Http1 = "http1",
        /// HTTP/2: by ALPN over TLS, with prior knowledge otherwise.
        Http2 = "h2",
        /// The version that the server chooses by ALPN; HTTP/1.1 without TLS.
        Auto = "auto",
    }
}

pub(super) fn check(upstream: &Upstream, findings: &Findings<'_>) {
    let protocol = &upstream.protocol;
    if upstream.send_proxy_protocol.get() && protocol.value != UpstreamProtocol::Http1 {
        let message = "connections of HTTP/2 are shared, and a PROXY header names one client";
        let node = upstream.send_proxy_protocol.node;
        let finding = Finding::error(node, Code::Conflict, message);
        let finding = finding.related(protocol.node, "the version of HTTP");
        findings.add(finding.help("remove `protocol`, or `send_proxy_protocol`"));
    }
    if !upstream.has_tls() && protocol.value == UpstreamProtocol::Auto {
        let message = "`auto` is HTTP/1.1 for endpoints without TLS";
        let finding = Finding::warning(protocol.node, Code::NoEffect, message);
        findings.add(finding.help("write `h2` if the endpoints speak HTTP/2, or remove it"));
    }
}
