//! `upgrades` of a route: the protocols to which its requests may switch.

use crate::config::sections::prelude::*;
use crate::http::upgrade;

by_form! {
    /// A word, or a list of protocols.
    pub enum Upgrades("Upgrades", "a list of protocols, as in `[websocket, SPDY/3.1]`, or `any`, or `none`") {
        /// A word for protocols.
        Word(UpgradesWord) = "scalar",
        /// These protocols.
        Listed(List<UpgradeProtocol>) = "sequence",
    }
}

/// A word for protocols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpgradesWord {
    /// WebSocket alone.
    #[default]
    Websocket,
    /// All but HTTP and TLS, whose requests would pass limits unseen.
    Any,
    /// None.
    None,
}

impl Upgrades {
    /// Compiles checked protocols.
    pub(super) fn compile(&self) -> upgrade::Upgrades {
        let listed = match self {
            Self::Word(UpgradesWord::Any) => return upgrade::Upgrades::Any,
            Self::Word(UpgradesWord::None) => Vec::new(),
            Self::Word(UpgradesWord::Websocket) => vec!["websocket".to_owned()],
            Self::Listed(protocols) => protocols.iter().map(ToString::to_string).collect(),
        };
        upgrade::Upgrades::Listed(listed)
    }
}

/// Checks the protocols of a route.
pub(super) fn check(route: &Route, config: &Config, findings: &Findings<'_>) {
    let Upgrades::Listed(protocols) = &route.upgrades.value else {
        return;
    };
    report_twice(protocols, findings);
    let upstream = route.upstream_name();
    let upstream = upstream.and_then(|name| config.upstreams.get(name.as_str()));
    if upstream.is_none_or(|upstream| upstream.protocol.value != UpstreamProtocol::Http2) {
        return;
    }
    let is_websocket = |one: &UpgradeProtocol| one.eq_ignore_ascii_case("websocket");
    for protocol in protocols.iter().filter(|one| !is_websocket(one)) {
        let message = format!("the upstream can't switch to `{protocol}` over HTTP/2");
        let finding = conflict(protocol.node, message);
        let finding = finding.related(route.upstream.given(), "the upstream");
        findings.add(finding.help("remove it, or `protocol: h2` of the upstream"));
    }
}
