//! The hosts by which clients address a listener.
//!
//! The page of another site can make a name of its own resolve to this machine (DNS rebinding), and
//! browsers then take what it reads here for its own. Such requests carry that name as their Host.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::problem_details::ProblemDetails;
use crate::http::host::{self, HostError};
use crate::http::message::Request;
use crate::net::peer_address::PeerAddress;
use crate::rules::HostPattern;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::{AdminMetrics, AdminRefusal};

/// The names that may address a listener, which reloads replace. Clones share them.
///
/// IP addresses, `localhost` and names below it need no entry: no site can have them.
#[derive(Clone, Debug)]
pub struct AllowedHosts(Arc<ArcSwap<Hosts>>);

#[derive(Debug)]
struct Hosts {
    names: Vec<HostPattern>,
    /// True if names are refused also when no name is listed.
    is_strict: bool,
}

impl Hosts {
    fn of_listener(address: IpAddr, names: Vec<HostPattern>) -> Self {
        Self {
            names,
            is_strict: address.to_canonical().is_loopback(),
        }
    }
}

impl AllowedHosts {
    /// The hosts of the admin listener at `address`. Without `names`, a listener that other machines
    /// reach takes every host.
    pub fn of_listener(address: IpAddr, names: Vec<HostPattern>) -> Self {
        let hosts = Hosts::of_listener(address, names);
        Self(Arc::new(ArcSwap::from_pointee(hosts)))
    }

    /// The hosts of a server without a configuration.
    pub(super) fn without_names() -> Self {
        Self::of_listener(Ipv4Addr::LOCALHOST.into(), Vec::new())
    }

    /// Takes these names at this address, and no others, from now on.
    pub fn reload(&self, address: IpAddr, names: Vec<HostPattern>) {
        self.0.store(Arc::new(Hosts::of_listener(address, names)));
    }

    /// Returns true for a host in its canonical spelling that may address the listener. An empty one
    /// may: browsers always send a host.
    fn contains(&self, host: &str) -> bool {
        let Hosts { names, is_strict } = &**self.0.load();
        let takes_all = names.is_empty() && !is_strict;
        takes_all || needs_no_dns(host) || names.iter().any(|name| name.matches(host))
    }
}

/// Returns true for IP addresses, names that resolve to this machine alone (RFC 6761 section 6.3),
/// and no host.
fn needs_no_dns(host: &str) -> bool {
    let is_address = host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
    host.is_empty() || is_address || host == "localhost" || host.ends_with(".localhost")
}

/// Refuses requests by their Host. Clones share counts and pauses of the log.
#[derive(Clone, Debug)]
pub(super) struct HostCheck {
    allowed: AllowedHosts,
    metrics: AdminMetrics,
    warnings: Arc<LogThrottle>,
}

impl HostCheck {
    pub(super) fn new(allowed: AllowedHosts, metrics: AdminMetrics) -> Self {
        Self {
            allowed,
            metrics,
            warnings: Arc::new(LogThrottle::new(Duration::from_secs(60))),
        }
    }

    /// Lets a request pass that is addressed to this listener, or to no host: some probes name none,
    /// also in HTTP/1.1.
    ///
    /// # Errors
    /// 421 for a host that is not allowed, 400 for several or a malformed one.
    pub(super) fn check<B>(
        &self,
        request: &Request<B>,
        peer: PeerAddress,
    ) -> Result<(), ProblemDetails> {
        let host = match host::effective(request) {
            Ok(host) => host,
            Err(HostError::Missing) => return Ok(()),
            Err(error) => return Err(ProblemDetails::malformed(<&str>::from(error))),
        };
        if self.allowed.contains(&host) {
            Ok(())
        } else {
            Err(self.refuse(&host, peer))
        }
    }

    fn refuse(&self, host: &str, peer: PeerAddress) -> ProblemDetails {
        self.metrics.refused.record(AdminRefusal::UnknownHost);
        if let Some(omitted) = self.warnings.admit_now() {
            tracing::warn!(
                host,
                %peer,
                omitted,
                "a request for another host is refused: admin.hosts has names of the listener"
            );
        }
        AdminRefusal::UnknownHost.into()
    }
}

#[cfg(test)]
mod tests {
    use http::Version;
    use http::header::{HOST, HeaderValue};

    use super::*;
    use crate::telemetry::registry::Registry;

    const LOOPBACK: &str = "127.0.0.1";
    const ANY: &str = "0.0.0.0";

    fn check(address: &str, names: &[&str]) -> HostCheck {
        let names = names.iter().map(|name| match name.strip_prefix("*.") {
            Some(domain) => HostPattern::Subdomains(domain.to_owned()),
            None => HostPattern::Exact((*name).to_owned()),
        });
        let address = address.parse().expect("an address");
        let allowed = AllowedHosts::of_listener(address, names.collect());
        HostCheck::new(allowed, AdminMetrics::new(&Registry::default()))
    }

    /// The status of the refusal, or 200.
    fn answer(check: &HostCheck, hosts: &[&str]) -> u16 {
        let mut request = Request::new(());
        for host in hosts {
            let host = HeaderValue::from_str(host).expect("a value");
            request.headers_mut().append(HOST, host);
        }
        let refusal = check.check(&request, PeerAddress::Unix).err();
        refusal.map_or(200, |problem| problem.status().as_u16())
    }

    #[test]
    fn a_listener_of_this_machine_has_hosts_that_no_site_can_have() {
        for address in [LOOPBACK, "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            let check = check(address, &[]);
            for host in [
                "127.0.0.1:9980",
                "[::1]:9980",
                "localhost:9980",
                "LOCALHOST.",
                "gate.localhost:80",
                "10.0.0.7",
                "[2001:db8::1]",
            ] {
                assert_eq!(answer(&check, &[host]), 200, "{host}");
            }
            for host in [
                "evil.example",
                "evil.example:9980",
                "localhost.evil.example",
                "xlocalhost",
                "127.0.0.1.evil.example",
                "127.0.0.1.nip.io:9980",
            ] {
                assert_eq!(answer(&check, &[host]), 421, "{host}");
            }
        }
    }

    #[test]
    fn names_are_added_by_the_configuration() {
        for address in [LOOPBACK, ANY] {
            let check = check(address, &["gate.example.com", "*.svc.example"]);
            for (host, status) in [
                ("GATE.example.com:9980", 200),
                ("a.b.svc.example", 200),
                ("10.0.0.7:9980", 200),
                ("localhost", 200),
                ("svc.example", 421),
                ("evil.example", 421),
            ] {
                assert_eq!(answer(&check, &[host]), status, "{host} at {address}");
            }
            check
                .allowed
                .reload(address.parse().expect("an address"), Vec::new());
            let is_open = address == ANY;
            let others = if is_open { 200 } else { 421 };
            assert_eq!(answer(&check, &["evil.example"]), others);
            assert_eq!(answer(&check, &["gate.example.com"]), others);
        }
    }

    #[test]
    fn a_request_has_one_host_or_none() {
        for address in [LOOPBACK, ANY] {
            let check = check(address, &[]);
            assert_eq!(answer(&check, &[]), 200);
            assert_eq!(answer(&check, &["localhost", "localhost"]), 400);
            for malformed in ["", "a b", "user@localhost", "[::1", "localhost:x"] {
                assert_eq!(answer(&check, &[malformed]), 400, "{malformed}");
            }
        }
        let mut old = Request::new(());
        *old.version_mut() = Version::HTTP_10;
        let check = check(LOOPBACK, &[]);
        assert!(check.check(&old, PeerAddress::Unix).is_ok());
    }

    #[test]
    fn the_host_of_an_absolute_target_counts() {
        let mut request = Request::new(());
        *request.uri_mut() = "http://evil.example/metrics".parse().expect("a URL");
        let mut answer = |host: &'static str| {
            request
                .headers_mut()
                .insert(HOST, HeaderValue::from_static(host));
            let check = check(LOOPBACK, &[]);
            let refusal = check.check(&request, PeerAddress::Unix);
            refusal.expect_err("it is refused").status().as_u16()
        };
        assert_eq!(answer("localhost"), 400);
        assert_eq!(answer("evil.example"), 421);
    }
}
