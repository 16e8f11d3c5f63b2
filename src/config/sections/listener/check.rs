//! Checks of listeners, the admin listener, and trusted proxies.

use std::net::SocketAddr;

use crate::config::diagnostic::Code;
use crate::config::document::NodeId;
use crate::config::finding::{Finding, Findings};
use crate::config::schema::{Config, Listener};
use crate::config::validate::{report_empty, report_repeated};

pub(in crate::config) fn check(config: &Config, findings: &Findings<'_>) {
    report_empty(
        &config.listeners,
        findings,
        "remove the key for one listener on `0.0.0.0:8080`",
    );
    config
        .listeners
        .iter()
        .for_each(|listener| check_listener(listener, findings));
    check_addresses(config, findings);
    let client_ip = &config.client_ip;
    if client_ip.header.node != NodeId::ABSENT && client_ip.trusted_proxies.is_empty() {
        let message = "the field is never read, because no proxy is trusted";
        let finding = Finding::warning(client_ip.header.node, Code::NoEffect, message);
        findings.add(finding.help(
            "name the networks of your proxies in `client_ip.trusted_proxies`, or remove the key",
        ));
    }
}

fn check_listener(listener: &Listener, findings: &Findings<'_>) {
    report_empty(
        &listener.protocols,
        findings,
        "remove the key for `[http/1.1, h2]`",
    );
    let protocols = listener
        .protocols
        .iter()
        .map(|protocol| (protocol.value, protocol.node));
    report_repeated(protocols, findings, |_| {
        ("the same protocol twice".to_owned(), "remove one of them")
    });
    if let Some(tls) = &listener.tls {
        report_empty(
            &tls.certificates,
            findings,
            "name one certificate at least, or remove `tls` for cleartext",
        );
    }
}

/// Two listeners cannot share an address, or a port if one of them listens on all addresses.
fn check_addresses(config: &Config, findings: &Findings<'_>) {
    let public = config.listeners.iter().map(|listener| &listener.address);
    let addresses: Vec<_> = public.chain([&config.admin.address]).collect();
    for (index, later) in addresses.iter().enumerate() {
        let clash = addresses[..index]
            .iter()
            .find(|earlier| overlap(earlier.get(), later.get()));
        let Some(earlier) = clash else { continue };
        let (node, other) = match later.node {
            NodeId::ABSENT => (earlier.node, *later),
            node => (node, *earlier),
        };
        let message = format!(
            "`{}` is taken by another listener, on `{}`",
            later.value, earlier.value
        );
        let finding = Finding::error(node, Code::DuplicateName, message)
            .help("give each listener a port of its own; `[::]` is every address, also of IPv4");
        findings.add(finding.related(other.node, "the other one"));
    }
}

fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let takes = |one: SocketAddr, other: SocketAddr| {
        one.ip() == other.ip() || one.ip().is_unspecified() && (one.is_ipv6() || other.is_ipv4())
    };
    one.port() == other.port() && one.port() != 0 && (takes(one, other) || takes(other, one))
}
