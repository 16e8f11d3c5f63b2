//! `tracing`: the export of spans.

use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HOST, HeaderName, USER_AGENT,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};

use super::secret_value::{self, SecretForm};
use crate::config::sections::prelude::*;
use crate::upstream::ClientTls;

/// The most fields of one's own.
const MAX_HEADERS: usize = 16;

/// Longest time of one export.
pub type ExportTimeout = Duration<100, MINUTE, { 5 * SECOND }>;

/// `tracing`: spans of requests go to a collector by OTLP over HTTP, in batches; those that cannot
/// be sent in time are dropped and counted.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Tracing {
    /// The collector, as in `http://127.0.0.1:4318` or `https://otlp.example.com/otlp`; spans are
    /// posted to its `/v1/traces`.
    pub endpoint: Located<CollectorUrl>,
    /// TLS towards a collector with `https`.
    #[serde(default)]
    pub tls: Located<UpstreamTls>,
    /// Header fields of each export, such as `authorization`, 16 at most. Their values are secrets.
    #[serde(default)]
    #[schemars(extend("maxProperties" = MAX_HEADERS))]
    pub headers: Table<FieldName, SecretValue>,
    /// The percentage of requests that are recorded, `0%` to `100%`; trusted proxies that send a
    /// `traceparent` decide themselves.
    #[serde(default)]
    pub sample_ratio: Located<Percentage<0, 100, 100>>,
    /// `service.name` of the spans; `sluicegate` unless given.
    pub service_name: Option<Located<Name>>,
    /// Longest time of one export, `100ms` to `1m`.
    #[serde(default)]
    pub timeout: Located<ExportTimeout>,
}

/// Spec of the export of spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportSpec {
    /// The URL that spans are posted to, for people.
    pub url: String,
    /// The collector's host: a name or an address.
    pub host: String,
    /// The collector's port.
    pub port: u16,
    /// The path that takes spans.
    pub path: PathAndQuery,
    /// TLS settings; `None` for clear text.
    pub tls: Option<ClientTls>,
    /// The fields of each export. Secret values are marked as sensitive.
    pub headers: HeaderMap,
    /// `service.name` of the spans.
    pub service_name: String,
    /// The percentage of requests that are recorded, unless a trusted peer decides.
    pub percent: u32,
    /// Longest time of one export.
    pub timeout: std::time::Duration,
}

/// Fields that the exporter writes itself, beside those of the connection.
const OWN: [HeaderName; 4] = [ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, EXPECT];

const FIELD: SecretForm<HeaderValue> = SecretForm {
    parse: parse_field,
    help: "look at what the collector's vendor gives you, as in `Bearer TOKEN`",
    stand_in: "-",
};

/// Checks TLS settings and fields of exports.
pub(crate) fn check(config: &Config, findings: &Findings<'_>) {
    let Some(tracing) = &config.tracing else {
        return;
    };
    let tls = &tracing.tls;
    let scheme = tracing.endpoint.origin.scheme;
    if scheme == Scheme::Http && (tls.ca.is_some() || tls.server_name.is_some()) {
        let finding = no_effect(tls.node, "`tls` without an endpoint that uses it");
        findings.add(finding.help("write the URL with `https://`, or remove `tls`"));
    }
    for (name, value) in tracing.headers.iter() {
        report_reserved(name, name.node, &OWN, "remove it", findings);
        secret_value::check(value, &FIELD, findings);
    }
    if tracing.headers.len() > MAX_HEADERS {
        let message = format!("more than {MAX_HEADERS} fields");
        let finding = invalid(tracing.headers.node, message);
        findings.add(finding.help("name those that the collector needs"));
    }
}

/// The value of a field. The error never has its text.
fn parse_field(text: &str) -> Result<HeaderValue, String> {
    let value = text.parse::<FieldValue>().ok();
    let value = value.filter(|_| !text.is_empty()).ok_or_else(|| {
        "the value of a field is printable ASCII, without spaces at its ends".to_owned()
    });
    let mut value = value?.get().clone();
    value.set_sensitive(true);
    Ok(value)
}

impl Compiler<'_> {
    /// The export of spans; `None` if it is not configured or, with a finding, not usable.
    pub(crate) fn export(&mut self, config: &Config) -> Option<ExportSpec> {
        let tracing = config.tracing.as_ref()?;
        let (endpoint, origin) = (&tracing.endpoint, &tracing.endpoint.origin);
        let tls = match origin.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(self.client_tls(&origin.host, endpoint.node, &tracing.tls)?),
        };
        let name = tracing.service_name.as_ref();
        Some(ExportSpec {
            url: format!("{origin}{}", endpoint.spans),
            host: origin.host.clone(),
            port: origin.port,
            path: endpoint.spans.clone(),
            tls,
            headers: self.export_headers(tracing)?,
            service_name: name.map_or_else(|| "sluicegate".to_owned(), |name| name.to_string()),
            percent: tracing.sample_ratio.get(),
            timeout: tracing.timeout.get(),
        })
    }

    /// The fields of each export (OTLP 1.x, "OTLP/HTTP Request").
    fn export_headers(&mut self, tracing: &Tracing) -> Option<HeaderMap> {
        let origin = tracing.endpoint.origin.to_string();
        let (_, authority) = origin.split_once("://")?;
        let agent = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(authority).ok()?);
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        );
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        for (name, value) in tracing.headers.iter() {
            headers.insert(name.get().clone(), self.secret(value, &FIELD)?);
        }
        Some(headers)
    }
}
