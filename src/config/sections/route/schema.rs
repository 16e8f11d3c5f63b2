//! Routes: their matches, upstreams, limits and changes to requests.

use super::answer::{Redirect, Respond};
use super::rewrite::{ForwardPath, Rewrite};
use super::upgrades::Upgrades;
use crate::config::sections::listener::BodySize;
use crate::config::sections::prelude::*;
use crate::rules::{PathMatch, TrailingSlash};

/// An item of `routes`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("oneOf" = [{ "required": ["upstream"] }, { "required": ["redirect"] }, { "required": ["respond"] }]))]
pub struct Route {
    /// The name in logs, metrics and limits; a description of the match unless given.
    pub name: Option<Located<Name>>,
    /// Conditions on requests, all of which must be met; without any the route takes all requests.
    #[serde(rename = "match")]
    pub matches: Located<Match>,
    /// `true` makes `/Login` another path than `/login`.
    pub case_sensitive: Located<Flag<true>>,
    /// `strict` makes `/login/` another path than `/login`, `ignore` the same.
    pub trailing_slash: Located<TrailingSlash>,
    /// `loose` makes `/login;x`, `/login%20`, `/login.` and `/login/` the same path as `/login`.
    pub path_match: Located<PathMatch>,
    /// `keep` takes paths with `%2F`, which is a part of its segment; `refuse` answers 400.
    pub encoded_slashes: Located<EncodedSlashes>,
    /// The requests of the route that are served; they have to pass the top-level `access` too.
    pub access: Option<Located<Access>>,
    /// Limits, in order: names of policies, or inline limits.
    pub limits: List<Limit>,
    /// `true` applies the top-level `limits` too.
    pub inherit: Located<Flag<true>>,
    /// Where requests go: the name of an upstream, a URL, `echo`, which answers with the request it
    /// received, `status`, which answers with the state of the caller's limits, `decide`, which
    /// tells other proxies if they may serve a request, or `decide_batch`, which does so for a list
    /// of requests.
    pub upstream: Option<Located<UpstreamRef>>,
    /// Where clients are sent, instead of an upstream.
    pub redirect: Option<Located<Redirect>>,
    /// The response to all requests, instead of an upstream.
    pub respond: Option<Located<Respond>>,
    /// The policies that `upstream: status` reports.
    pub status: Option<Located<StatusReport>>,
    /// `as_received` forwards the path byte for byte as the client sent it, `normalised` the path
    /// that was matched.
    pub forward_path: Located<ForwardPath>,
    /// Changes to the path that is forwarded.
    pub rewrite: Option<Located<Rewrite>>,
    /// The protocols to which requests may switch: a list, `any`, or `none`. Others are ignored.
    pub upgrades: Located<Upgrades>,
    /// Changes to requests before they are forwarded.
    pub request: Located<RequestChanges>,
    /// Changes to responses, those of the proxy itself among them.
    pub response: Located<ResponseRules>,
}

/// `match` of a route.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct Match {
    /// Hosts, any of them: `api.example.com`, or `*.example.com` for all names below. Every host
    /// without it.
    pub hosts: List<HostPattern>,
    /// The path: `/a/b` exactly, `/a/{name}` any one segment, `/a/**` everything below and `/a`
    /// itself; or an expression: `{ regex: "^/v[0-9]+/" }`. Every path without it.
    pub path: Option<Located<PathSelection>>,
    /// A method of a gRPC service: `pkg.Service/Method`, or `pkg.Service` for all of its methods.
    /// Takes requests of gRPC alone; instead of `path` and `methods`.
    pub grpc: Option<Located<GrpcPattern>>,
    /// Methods, any of them. `GET` includes `HEAD`, unless a route names it for the same hosts and
    /// path. Every method without it.
    pub methods: List<Method>,
    /// Fields with their values, all of them: a text in full, or a pattern.
    pub headers: Table<FieldName, ValueMatch>,
    /// Query parameters with their values, all of them; decoded, as for `headers`.
    pub query: Table<Text, ValueMatch>,
    /// Cookies with their values, all of them; decoded, as for `headers`.
    pub cookies: Table<Text, ValueMatch>,
    /// A further condition, as `when` of a policy, but without `jwt`. The route takes requests for
    /// which it is certainly true.
    pub when: Option<Located<Condition>>,
}

/// `status` of a route with `upstream: status`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct StatusReport {
    /// The policies to report, 100 at most. Unless given, all whose key is that of a client.
    #[schemars(length(min = 1, max = 100))]
    pub policies: Option<List<Name>>,
}

/// `request` of a route.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct RequestChanges {
    /// Fields to set, in place of those that the client sent. Their values are never shown.
    pub set_headers: Table<FieldName, SecretValue>,
    /// Fields to remove.
    pub remove_headers: List<FieldName>,
    /// The largest request body, `0B` to `1024GiB`, instead of `client.max_body`; 413 beyond.
    pub max_body: Option<Located<BodySize>>,
    /// How much of a body is held and read for limits, `1B` to `10MiB`, as `64KiB`; nothing unless
    /// given. Requests wait until their body has come.
    pub read_body: Option<Located<Size<1, { 10 << 20 }>>>,
    /// Values to set in JSON objects, by their JSON pointers; a text that is no JSON is a string.
    /// 413 for bodies longer than `read_body`.
    pub set_body: Table<Pointer, Text>,
}

impl Route {
    /// The node of its upstream, if that is this one.
    pub(in crate::config) fn built_in(&self, wanted: BuiltIn) -> Option<NodeId> {
        let upstream = self.upstream.as_ref()?;
        (upstream.value == UpstreamRef::BuiltIn(wanted)).then_some(upstream.node)
    }

    /// The name of its upstream, if that is one of `upstreams`.
    pub(in crate::config) fn upstream_name(&self) -> Option<&Name> {
        self.upstream.as_ref()?.name()
    }
}

impl Match {
    /// The values of its fields, parameters and cookies.
    pub(in crate::config) fn values(&self) -> impl Iterator<Item = &Located<ValueMatch>> {
        let texts = self.query.values().chain(self.cookies.values());
        self.headers.values().chain(texts)
    }

    /// The files that list values, except those of `when`.
    pub(in crate::config) fn value_files(
        &self,
    ) -> impl Iterator<Item = (&Located<FilePath>, bool)> {
        self.values().filter_map(|value| value.file())
    }

    /// The pattern in `path`, and its node.
    pub(in crate::config) fn written_pattern(&self) -> Option<(&PathPattern, NodeId)> {
        let path = self.path.as_ref()?;
        Some((path.pattern()?, path.node))
    }

    /// The names of the segments that its path captures.
    pub(in crate::config) fn captures(&self) -> impl Iterator<Item = &str> {
        let path = self.written_pattern();
        path.into_iter().flat_map(|(path, _)| path.captures())
    }

    /// The pattern of its paths, by `path` or by `grpc`; `None` for every path, and for those of an
    /// expression.
    pub(in crate::config) fn path_pattern(&self) -> Option<PathPattern> {
        let grpc = self.grpc.as_ref().map(|grpc| grpc.path());
        grpc.or_else(|| Some(self.written_pattern()?.0.clone()))
    }

    /// True if its paths are those of an expression.
    pub(in crate::config) fn has_path_regex(&self) -> bool {
        self.path.is_some() && self.written_pattern().is_none()
    }
}
