//! Checks of upstreams: endpoints, and routes that use them.

use std::collections::HashSet;

use crate::config::diagnostic::Code;
use crate::config::finding::{Finding, Findings};
use crate::config::schema::{Config, Upstream};
use crate::config::validate::{report_empty, report_repeated};
use crate::config::value::{Scheme, UpstreamRef};

pub(in crate::config) fn check(config: &Config, findings: &Findings<'_>) {
    let used: HashSet<_> = config
        .routes
        .iter()
        .filter_map(|route| match &route.upstream.value {
            UpstreamRef::Named(name) => Some(name),
            UpstreamRef::Echo | UpstreamRef::Url(_) => None,
        })
        .collect();
    for (name, upstream) in config.upstreams.iter() {
        check_upstream(upstream, findings);
        if name.as_str() == "echo" {
            let finding = Finding::error(
                upstream.node,
                Code::Conflict,
                "`echo` is the name of the built-in upstream",
            );
            findings.add(finding.help("choose another name").at_key());
        } else if !used.contains(&name.value) {
            let message = format!("no route leads to the upstream `{}`", name.value);
            findings.add(Finding::warning(upstream.node, Code::Unused, message).at_key());
        }
    }
}

fn check_upstream(upstream: &Upstream, findings: &Findings<'_>) {
    report_empty(
        &upstream.endpoints,
        findings,
        "name one server at least: `endpoints: [http://10.0.0.11:3000]`",
    );
    let urls = upstream
        .endpoints
        .iter()
        .map(|endpoint| (endpoint.url.to_string(), endpoint.url.node));
    report_repeated(urls, findings, |url| {
        (
            format!("`{url}` twice in one upstream"),
            "remove one of them; `weight` gives it a larger share",
        )
    });
    let tls = &upstream.tls;
    let encrypted = upstream
        .endpoints
        .iter()
        .any(|endpoint| endpoint.url.scheme == Scheme::Https);
    if !encrypted && (tls.ca.is_some() || tls.server_name.is_some()) {
        let finding = Finding::error(
            tls.node,
            Code::NoEffect,
            "`tls` without an endpoint that uses it",
        );
        findings
            .add(finding.help("write the URLs of the endpoints with `https://`, or remove `tls`"));
    }
}
