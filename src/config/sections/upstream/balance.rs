//! `balance` of an upstream: the load-balancing algorithm.

use crate::config::sections::prelude::*;
use crate::upstream;

by_form! {
    /// How requests are shared among the addresses of the endpoints.
    pub enum Balance("Balance", "`round_robin`, `least_requests`, `random`, or a hash of parts of the request: `{ hash: [client_ip] }`") {
        /// An algorithm that needs no key.
        Word(BalanceWord) = "scalar",
        /// One address for each key.
        Hash(HashBalance) = "mapping",
    }
}

/// An algorithm that needs no key.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BalanceWord {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// The less loaded of two random addresses: requests in flight for each unit of weight.
    LeastRequests,
    /// A random address, by weight.
    Random,
}

/// Consistent hashing with bounded loads: an address has at most 1.25 times its share of the
/// requests in flight.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct HashBalance {
    /// The parts of a request that choose its address. Requests without one go to a random address.
    pub hash: Located<Key>,
}

impl Balance {
    /// The key of a hash.
    pub(in crate::config) fn key(&self) -> Option<&Located<Key>> {
        let Self::Hash(by) = self else { return None };
        Some(&by.hash)
    }

    pub(super) fn compile(&self) -> upstream::Balance {
        match self {
            Self::Word(BalanceWord::RoundRobin) => upstream::Balance::RoundRobin,
            Self::Word(BalanceWord::LeastRequests) => upstream::Balance::LeastRequests,
            Self::Word(BalanceWord::Random) => upstream::Balance::Random,
            Self::Hash(_) => upstream::Balance::Hash,
        }
    }
}

pub(super) fn check(name: &str, upstream: &Upstream, config: &Config, findings: &Findings<'_>) {
    let Some(key) = upstream.balance.key() else {
        return;
    };
    if key.0.is_empty() {
        let finding = Finding::error(key.node, Code::NoValue, "a hash of nothing");
        findings.add(finding.help("name one part at least, as in `{ hash: [client_ip] }`"));
    }
    report_twice(&key.0, findings);
    check_captures(name, key, config, findings);
    if let [only] = &upstream.endpoints[..]
        && only.url.is_address()
    {
        let finding = warn_no_effect(upstream.balance.node, "a hash over one address");
        findings.add(finding.help("remove `balance`, or add endpoints"));
    }
}

/// A capture that no route to the upstream has would be missing from every request.
fn check_captures(name: &str, key: &Key, config: &Config, findings: &Findings<'_>) {
    for part in &key.0 {
        let KeyPart::Capture(capture) = &part.value else {
            continue;
        };
        let leads_here =
            |route: &Route| route.upstream_name().is_some_and(|to| to.as_str() == name);
        let mut routes = config.routes.iter().filter(|route| leads_here(route));
        if !routes.any(|route| route.matches.captures().any(|one| one == capture)) {
            let message = format!("no route to `{name}` captures a segment `{capture}`");
            let finding = Finding::error(part.node, Code::UnknownName, message);
            findings.add(finding.help(format!(
                "write the path of such a route with it, as in `/users/{{{capture}}}`"
            )));
        }
    }
}
