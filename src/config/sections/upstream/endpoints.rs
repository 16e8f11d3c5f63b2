//! `endpoints` of an upstream: its servers.

use http::uri::Authority;

use crate::config::sections::prelude::*;
use crate::upstream::EndpointSpec;

/// A server of an upstream, or its URL alone.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(expecting = "a URL, or a mapping: `{ url: http://10.0.0.11:3000, weight: 2 }`")]
pub struct Endpoint {
    /// Scheme, host and port, as in `http://10.0.0.11:3000`, or `unix:/run/app.sock`.
    pub url: Located<OriginUrl>,
    /// Its share of the requests, in proportion to the others', 1 to 256.
    #[serde(default)]
    pub weight: Located<Weight>,
}

/// The share of an endpoint, 1 to 256.
pub type Weight = Whole<1, 256>;

pub(super) fn check(upstream: &Upstream, findings: &Findings<'_>) {
    let help = "name one server at least: `endpoints: [http://10.0.0.11:3000]`";
    report_empty(&upstream.endpoints, findings, help);
    let urls = upstream.endpoints.iter();
    let urls = urls.map(|endpoint| (endpoint.url.to_string(), endpoint.url.node));
    let help = "remove one of them; `weight` gives it a larger share";
    report_repeated(urls, help, findings, |url| {
        format!("`{url}` twice in one upstream")
    });
    if let [only] = &upstream.endpoints[..] {
        let finding = warn_no_effect(only.weight.node, "the weight of the only endpoint");
        findings.add(finding.help("remove it: all requests go to this endpoint"));
    }
    let (mut endpoints, every) = (upstream.endpoints.iter(), upstream.resolve_every.node);
    if endpoints.all(|endpoint| endpoint.url.is_address()) {
        let finding = warn_no_effect(every, "no endpoint has a name to look up");
        findings.add(finding.help("remove `resolve_every`"));
    }
}

impl Compiler<'_> {
    pub(super) fn endpoint(
        &mut self,
        url: &Located<OriginUrl>,
        upstream: &Upstream,
    ) -> Option<EndpointSpec> {
        let text = url.value.to_string();
        let authority = match (&url.socket, text.split_once("://")) {
            (None, Some((_, authority))) => authority,
            _ => "localhost",
        };
        let tls = match url.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(self.client_tls(&url.host, url.node, &upstream.tls)?),
        };
        Some(EndpointSpec {
            authority: self.usable(url.node, Authority::try_from(authority))?,
            socket: url.socket.clone(),
            tls,
            protocol: upstream.protocol.value,
            sends_proxy_header: upstream.send_proxy_protocol.get(),
        })
    }
}
