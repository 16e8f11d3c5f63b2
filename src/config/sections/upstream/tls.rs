//! `tls` of an upstream, of Redis, and of a collector of spans.

use crate::config::compiler::MAX_CERTIFICATE_FILE;
use crate::config::sections::prelude::*;
use crate::upstream::{ClientTls, Roots};

/// `tls` of an upstream, of `store.redis` and of `tracing`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct UpstreamTls {
    /// A file with the certificates (PEM) that servers are verified against, instead of the
    /// system's.
    pub ca: Option<Located<FilePath>>,
    /// The name that servers are asked for (SNI) and verified by, instead of the host of each.
    pub server_name: Option<Located<ServerName>>,
}

pub(super) fn check(upstream: &Upstream, findings: &Findings<'_>) {
    let tls = &upstream.tls;
    if !upstream.has_tls() && (tls.ca.is_some() || tls.server_name.is_some()) {
        let finding = no_effect(tls.node, "`tls` without an endpoint that uses it");
        findings
            .add(finding.help("write the URLs of the endpoints with `https://`, or remove `tls`"));
    }
}

impl Compiler<'_> {
    /// The certificates that servers are verified against; `None` with a finding.
    pub(crate) fn roots(&mut self, tls: &UpstreamTls) -> Option<Roots> {
        let Some(ca) = &tls.ca else {
            return Some(Roots::System);
        };
        let (path, content) = self.read(ca, MAX_CERTIFICATE_FILE)?;
        Some(Roots::Pem { path, content })
    }

    /// TLS towards `host`, which a URL at `node` names; `None` with a finding.
    pub(crate) fn client_tls(
        &mut self,
        host: &str,
        node: NodeId,
        tls: &UpstreamTls,
    ) -> Option<ClientTls> {
        let roots = self.roots(tls)?;
        let name = tls.server_name.as_ref();
        let name = name.map_or(host, |name| name.as_str());
        let node = tls.ca.as_ref().map_or(node, |ca| ca.node);
        self.usable(node, ClientTls::new(name, roots))
    }
}
