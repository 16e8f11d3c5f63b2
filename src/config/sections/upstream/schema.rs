//! Upstreams: endpoints, time-outs, TLS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::located::{List, Located};
use crate::config::schema::{SECOND, Timeout};
use crate::config::value::{FilePath, Flag, OriginUrl, ServerName, Whole};

/// An upstream, under its name in `upstreams`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Its servers: URLs, or mappings with `url` and `weight`.
    #[schemars(length(min = 1))]
    pub endpoints: List<Endpoint>,
    /// How requests are shared among the endpoints.
    #[serde(default)]
    pub balance: Located<Balance>,
    /// Whether the upstream sees the `Host` that the client sent (`true`), or that of the
    /// endpoint's URL.
    #[serde(default = "preserve")]
    pub preserve_host: Located<Flag>,
    /// How long it may take.
    #[serde(default)]
    pub timeouts: Located<UpstreamTimeouts>,
    /// TLS towards endpoints with `https`.
    #[serde(default)]
    pub tls: Located<UpstreamTls>,
}

fn preserve() -> Located<Flag> {
    Flag::TRUE.into()
}

/// How requests are shared among endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// In turn, by weight.
    #[default]
    RoundRobin,
}

/// A server of an upstream.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(from = "EndpointForm")]
pub struct Endpoint {
    /// Scheme, host and port.
    pub url: Located<OriginUrl>,
    /// Its share of the requests, in proportion to the others'.
    pub weight: Located<Weight>,
}

/// The share of an endpoint, 1 to 256.
pub type Weight = Whole<1, 256>;

#[derive(Deserialize, JsonSchema)]
#[serde(
    rename = "$form",
    rename_all = "snake_case",
    expecting = "a URL, or a mapping: `{ url: http://10.0.0.11:3000, weight: 2 }`"
)]
#[schemars(rename = "Endpoint", untagged)]
enum EndpointForm {
    /// A URL, with a weight of 1.
    Scalar(Located<OriginUrl>),
    /// A URL with its weight.
    Mapping(EndpointFields),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EndpointFields {
    /// Scheme, host and port, as in `http://10.0.0.11:3000`.
    url: Located<OriginUrl>,
    /// Its share of the requests, in proportion to the others', 1 to 256.
    #[serde(default)]
    weight: Located<Weight>,
}

impl From<EndpointForm> for Endpoint {
    fn from(form: EndpointForm) -> Self {
        match form {
            EndpointForm::Scalar(url) => Self {
                url,
                weight: Located::default(),
            },
            EndpointForm::Mapping(EndpointFields { url, weight }) => Self { url, weight },
        }
    }
}

/// `timeouts` of an upstream: each `1ms` to `1d`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamTimeouts {
    /// For a connection to be there, TLS included; 504 beyond.
    pub connect: Located<Timeout>,
    /// For the head of a response, from the end of the request; 504 beyond.
    pub response: Located<Timeout>,
    /// For the next part of a body, and for the reuse of a connection.
    pub idle: Located<Timeout>,
    /// For the next byte in either direction of a WebSocket; `idle` once either side has ended its own.
    pub tunnel: Located<Timeout>,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Timeout::from_millis(SECOND).into(),
            response: Timeout::from_millis(30 * SECOND).into(),
            idle: Timeout::from_millis(60 * SECOND).into(),
            tunnel: Timeout::from_millis(3_600 * SECOND).into(),
        }
    }
}

/// `tls` of an upstream.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamTls {
    /// A file with the certificates (PEM) that endpoints are verified against, instead of the
    /// system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<Located<FilePath>>,
    /// The name that endpoints are asked for and verified by, instead of the host of their URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<Located<ServerName>>,
}
