//! Conditions on requests: `when` of policies and routes, and the rules of `access`.

use http::header::HOST;
use serde::{Deserializer, Serializer};

use crate::config;
use crate::config::sections::clients;
use crate::config::sections::prelude::*;
use crate::config::sections::value_match::{self, FileLists, network_sets};
use crate::http::path::has_encoded_slash;
use crate::rules::{self, KeyPart, PathEquivalence};

/// A condition; all that is said here must be met.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, expecting = "a mapping")]
#[schemars(extend("minProperties" = 1))]
pub struct Condition {
    /// The method is one of these. `GET` includes `HEAD`.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "is_absent")]
    pub method: List<Method>,
    /// The host is one of these: `api.example.com`, or `*.example.com` for all names below.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "is_absent")]
    pub host: List<HostPattern>,
    /// Fields with their values, all of them: a text in full, or a pattern. A field that is given
    /// with different values may have any of them.
    #[serde(skip_serializing_if = "is_absent")]
    pub header: Table<FieldName, ValueMatch>,
    /// Query parameters with their values, all of them; decoded, as for `header`.
    #[serde(skip_serializing_if = "is_absent")]
    pub query: Table<Text, ValueMatch>,
    /// Cookies with their values, all of them; decoded, as for `header`.
    #[serde(skip_serializing_if = "is_absent")]
    pub cookie: Table<Text, ValueMatch>,
    /// Claims of the request's token, which has to be verified, with their values, all of them.
    #[serde(skip_serializing_if = "is_absent")]
    pub jwt: Table<Text, ValueMatch>,
    /// Values of a JSON body by their JSON pointers, all of them, as for `header`; `graphql` is kind and
    /// name of the operation, as in `mutation Login`.
    #[serde(skip_serializing_if = "is_absent")]
    pub body: Table<BodyPart, ValueMatch>,
    /// Fields of a form in the body with their values, all of them; decoded, as for `header`.
    #[serde(skip_serializing_if = "is_absent")]
    pub form: Table<Text, ValueMatch>,
    /// The client's `name`, and its columns, with their values, all of them.
    #[serde(
        skip_serializing_if = "is_absent",
        deserialize_with = "shown",
        serialize_with = "show"
    )]
    pub client: Table<Text, ValueMatch>,
    /// The path, as in `match` of a route: `/a/b` exactly, `/a/{name}` any one segment, `/a/**`
    /// everything below and `/a` itself; or an expression: `{ regex: "^/v[0-9]+/" }`.
    pub path: Option<Located<PathSelection>>,
    /// The client's address is one of these, or in one of these networks.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "is_absent")]
    pub cidr: List<Networks>,
    /// The client's connection came in at one of these addresses of `listeners`.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "is_absent")]
    pub listener: List<StreamAddress>,
    /// The client's connection is in clear text (`http`) or over TLS (`https`). Behind a trusted
    /// proxy it's the scheme that the proxy names in X-Forwarded-Proto.
    pub scheme: Option<Located<Scheme>>,
    /// One of these is met.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "is_absent")]
    pub any: List<Condition>,
    /// All of these are met.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "is_absent")]
    pub all: List<Condition>,
    /// This is not met.
    pub not: Option<Located<Box<Condition>>>,
}

fn is_absent<T>(value: &Located<T>) -> bool {
    value.node == NodeId::ABSENT
}

/// Names and columns of clients are no secrets.
fn shown<'de, D: Deserializer<'de>>(from: D) -> Result<Table<Text, ValueMatch>, D::Error> {
    Shown::deserialize(from).map(|Shown(table)| table)
}

fn show<S: Serializer>(columns: &Table<Text, ValueMatch>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(columns.iter().map(|(name, value)| (name, value.shown())))
}

impl Condition {
    /// Its keys, such as `method`.
    pub(in crate::config) fn keys(&self) -> Vec<String> {
        let written = serde_json::to_value(self).unwrap_or_default();
        let entries = written.as_object().into_iter().flatten();
        let given = entries.filter(|(_, value)| !value.is_null());
        given.map(|(key, _)| key.clone()).collect()
    }

    /// The condition and those inside it.
    pub(in crate::config) fn all(&self) -> Vec<&Self> {
        let lists = self.any.iter().chain(self.all.iter()).map(|one| &one.value);
        let not = self.not.iter().map(|not| &*not.value);
        let inner = lists.chain(not).flat_map(Self::all);
        std::iter::once(self).chain(inner).collect()
    }

    /// The values of its fields, parameters, cookies, claims and parts of the body.
    pub(in crate::config) fn values(&self) -> impl Iterator<Item = &Located<ValueMatch>> {
        let texts = self.texts().into_iter().flat_map(|table| table.values());
        self.header.values().chain(self.body.values()).chain(texts)
    }

    fn texts(&self) -> [&Table<Text, ValueMatch>; 5] {
        [
            &self.query,
            &self.cookie,
            &self.jwt,
            &self.form,
            &self.client,
        ]
    }

    /// The claims, and the columns of the client, that it asks for itself.
    pub(in crate::config) fn verified_parts(
        &self,
    ) -> impl Iterator<Item = (config::value::KeyPart, NodeId)> {
        use config::value::KeyPart::{Claim, Client, ClientColumn};
        let claims = self.jwt.iter();
        let claims = claims.map(|(name, value)| (Claim(name.to_string()), value.node));
        let columns = self.client.iter().map(|(name, value)| match name.as_str() {
            clients::NAME => (Client, value.node),
            _ => (ClientColumn(name.to_string()), value.node),
        });
        claims.chain(columns)
    }

    /// True if it asks for the value of a field, a parameter or a cookie, which can be a key or a
    /// password.
    pub(in crate::config) fn has_secrets(&self) -> bool {
        let tables = [&self.query, &self.cookie];
        !self.header.is_empty() || tables.iter().any(|table| !table.is_empty())
    }

    /// A text that tells it apart from others. It has the values, and so is never shown.
    pub(in crate::config) fn identity(&self) -> String {
        // Serialising hides the values.
        let shape = serde_json::to_string(self).unwrap_or_default();
        let values = self.all().into_iter().flat_map(|one| one.values());
        let values: Vec<_> = values.flat_map(|value| value.texts()).collect();
        format!("{shape} {values:?}")
    }

    /// The files that list values, and if these ignore the case of letters.
    pub(in crate::config) fn value_files(&self) -> Vec<(&Located<FilePath>, bool)> {
        let all = self.all().into_iter();
        all.flat_map(|one| one.values().filter_map(|value| value.file()))
            .collect()
    }

    /// The files that list networks.
    pub(in crate::config) fn network_files(&self) -> Vec<&Located<FilePath>> {
        let all = self.all().into_iter();
        all.flat_map(|one| one.cidr.iter().filter_map(|one| one.file()))
            .collect()
    }
}

/// Checks the condition at `node` and those inside it.
pub(crate) fn check(condition: &Condition, node: NodeId, config: &Config, findings: &Findings<'_>) {
    if condition.keys().is_empty() {
        let finding = Finding::error(node, Code::NoValue, "a condition that says nothing");
        findings.add(finding.help("add a condition, as in `{ method: [POST] }`, or remove it"));
    }
    check_fields(&condition.header, "host", findings);
    if let Some(path) = &condition.path {
        path.check(findings);
        check_encoded_slash(path, config, findings);
    }
    let texts = condition
        .texts()
        .into_iter()
        .flat_map(|table| table.values());
    for value in condition.body.values().chain(texts) {
        value_match::check(value, value.node, false, findings);
    }
    for listener in condition.listener.iter() {
        check_listener(listener, config, findings);
    }
    for inner in condition.any.iter().chain(condition.all.iter()) {
        check(inner, inner.node, config, findings);
    }
    if let Some(not) = &condition.not {
        check(not, not.node, config, findings);
    }
    report_empty_options(node, findings);
    report_twice(&condition.method, findings);
    report_twice(&condition.host, findings);
    let networks = condition.cidr.iter();
    let networks = networks.map(|one| (one.to_string(), one.node));
    report_repeated(networks, REMOVE_ONE, findings, |one| {
        format!("`{one}` twice")
    });
}

/// Checks conditions on header fields. The option `host` compares hosts.
pub(crate) fn check_fields(
    fields: &Table<FieldName, ValueMatch>,
    host: &str,
    findings: &Findings<'_>,
) {
    for (name, value) in fields.iter() {
        value_match::check(value, value.node, true, findings);
        if *name.get() == HOST {
            let message = "requests of HTTP/2 have no `host` field, and spellings of hosts differ";
            let finding = conflict(value.node, message).at_key();
            findings.add(finding.help(format!("use `{host}`, which compares hosts")));
        }
    }
}

/// Checks that a route takes paths such as this one, if it has an encoded slash.
fn check_encoded_slash(path: &Located<PathSelection>, config: &Config, findings: &Findings<'_>) {
    let keeps = |route: &Located<Route>| route.encoded_slashes.value == EncodedSlashes::Keep;
    let has_slash =
        |segment: &Segment| matches!(segment, Segment::Literal(text) if has_encoded_slash(text));
    let pattern = path.pattern().into_iter();
    let mut literals = pattern.flat_map(|pattern| &pattern.segments);
    if literals.any(has_slash) && !config.routes.iter().any(keeps) {
        let message = "this would never match: requests with `%2F` are refused";
        findings.add(conflict(path.node, message).help("add `encoded_slashes: keep` to a route"));
    }
}

/// Checks that there is such a listener.
fn check_listener(listener: &Located<StreamAddress>, config: &Config, findings: &Findings<'_>) {
    let mut listeners = config.listeners.iter();
    if !listeners.any(|known| known.address.value == listener.value) {
        let message = format!("nothing listens on `{listener}`");
        let finding = Finding::error(listener.node, Code::UnknownName, message);
        findings.add(finding.help("name an `address` of `listeners`, as it is written there"));
    }
}

/// Compiles checked conditions for a route.
#[derive(Clone, Copy)]
pub(crate) struct ConditionCompiler<'a> {
    /// The paths that the route treats as equal.
    pub(crate) paths: PathEquivalence,
    /// The lists in files.
    pub(crate) lists: &'a FileLists,
}

impl ConditionCompiler<'_> {
    pub(crate) fn condition(self, written: &Condition) -> rules::Condition {
        let mut all = Vec::new();
        if !written.method.is_empty() {
            all.push(rules::Condition::Method(methods(&written.method)));
        }
        if !written.host.is_empty() {
            all.push(rules::Condition::Host(written.host.values()));
        }
        if let Some(scheme) = &written.scheme {
            all.push(rules::Condition::Scheme(scheme.value));
        }
        if !written.listener.is_empty() {
            all.push(rules::Condition::Listener(written.listener.values()));
        }
        if !written.cidr.is_empty() {
            let sets = network_sets(&written.cidr, self.lists).into_iter();
            let networks = sets.map(rules::Condition::ClientIp).collect();
            all.push(rules::Condition::Any(networks));
        }
        if let Some(path) = &written.path {
            all.push(path.condition(self.paths));
        }
        all.extend(self.headers(&written.header));
        all.extend(self.named(&written.query, KeyPart::Query));
        all.extend(self.named(&written.cookie, KeyPart::Cookie));
        all.extend(self.named(&written.jwt, KeyPart::Claim));
        all.extend(self.named(&written.client, |name| match &*name {
            clients::NAME => KeyPart::Client,
            _ => KeyPart::ClientColumn(name),
        }));
        all.extend(self.named(&written.form, KeyPart::Form));
        let body = written.body.iter();
        all.extend(body.map(|(part, value)| {
            rules::Condition::Value((&part.value).into(), value.compile(self.lists))
        }));
        if !written.any.is_empty() {
            all.push(rules::Condition::Any(self.list(&written.any)));
        }
        all.append(&mut self.list(&written.all));
        if let Some(not) = &written.not {
            all.push(rules::Condition::Not(Box::new(self.condition(not))));
        }
        match <[rules::Condition; 1]>::try_from(all) {
            Ok([only]) => only,
            Err(all) => rules::Condition::All(all),
        }
    }

    pub(crate) fn list(self, list: &List<Condition>) -> Vec<rules::Condition> {
        list.iter().map(|one| self.condition(one)).collect()
    }

    /// Compiles conditions on header fields.
    pub(crate) fn headers(
        self,
        fields: &Table<FieldName, ValueMatch>,
    ) -> impl Iterator<Item = rules::Condition> {
        let fields = fields.iter();
        fields.map(move |(name, value)| {
            let (part, matcher) = (
                KeyPart::field(name.get().clone()),
                value.compile(self.lists),
            );
            let matcher = match part {
                KeyPart::Credentials(_) => matcher.for_credentials(),
                _ => matcher,
            };
            rules::Condition::Value(part, matcher)
        })
    }

    /// Compiles conditions on parts of this kind.
    pub(crate) fn named(
        self,
        values: &Table<Text, ValueMatch>,
        part: fn(String) -> KeyPart,
    ) -> impl Iterator<Item = rules::Condition> {
        let values = values.iter();
        values.map(move |(name, value)| {
            rules::Condition::Value(part(name.to_string()), value.compile(self.lists))
        })
    }
}

/// Compiles a list of methods.
pub(crate) fn methods(list: &List<Method>) -> rules::Methods {
    let methods = list.iter().map(|method| method.get().clone());
    methods.collect::<Vec<_>>().into()
}
