//! `responses`, and `on_limit` of policies.

use strum::IntoStaticStr;

use super::ErrorPage;
use crate::config::sections::prelude::*;
use crate::proxy::answers::cors::OriginPattern;
use crate::proxy::answers::limit_headers::Style;

/// `responses`: what clients are told.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct Responses {
    /// Styles of rate-limit fields, in every answer that a limit had a say in; `[]` for none.
    pub headers: List<HeaderFields>,
    /// The beginning of the names of all policies towards clients, in fields and bodies: several
    /// proxies in a row need different names. None unless given.
    pub policy_prefix: Option<Located<Name>>,
    /// CORS: rights of scripts of other origins.
    pub cors: Located<Cors>,
    /// Responses to refused clients, where their policy does not say otherwise.
    pub on_limit: Located<OnLimit>,
    /// A field that adds the decisions of limits to responses, for requests with a token.
    pub debug: Option<Located<DebugHeader>>,
    /// Bodies of the proxy's own errors and refusals, by status: `404`, `5xx` or `500-504`.
    pub error_pages: Table<Statuses<400>, ErrorPage>,
    /// Fields to set in all responses, in place of those of the upstream, with `{{client_ip}}`,
    /// `{{host}}`, `{{method}}`, `{{path}}`, `{{request_id}}` and `{{route}}`.
    pub set_headers: Table<FieldName, FieldValue>,
    /// Fields to add to all responses.
    pub add_headers: Table<FieldName, FieldValue>,
    /// Fields to remove from all responses.
    pub remove_headers: List<FieldName>,
}

impl Default for Responses {
    fn default() -> Self {
        Self {
            headers: vec![HeaderFields::default().into()].into(),
            policy_prefix: None,
            cors: Located::default(),
            on_limit: Located::default(),
            debug: None,
            error_pages: Table::default(),
            set_headers: Table::default(),
            add_headers: Table::default(),
            remove_headers: List::default(),
        }
    }
}

/// An item of `responses.headers`: a style, or a style with a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(expecting = "a style, or a mapping: `{ style: x-ratelimit, prefix: x-acme }`")]
pub struct HeaderFields {
    /// The fields and their form.
    pub style: Located<Style>,
    /// The beginning of the fields' names, in place of `x-ratelimit` (of `ratelimit` in `draft-6`).
    pub prefix: Option<Located<FieldName>>,
}

/// `responses.cors`, and `response.cors` of a route: what scripts of other origins may do (CORS).
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct Cors {
    /// `true` names `Retry-After` and the rate-limit fields in `Access-Control-Expose-Headers`.
    pub expose_headers: Located<Flag>,
    /// `true` applies limits to preflight requests too.
    pub limit_preflight: Located<Flag<true>>,
    /// The origins whose scripts may read responses in which the upstream doesn't say who may:
    /// `https://app.example.com`, `https://*.example.com` for all names below, or `*`. None unless
    /// given.
    #[schemars(length(min = 1))]
    pub origins: Option<List<OriginPattern>>,
    /// `true` allows these origins cookies and other credentials.
    pub credentials: Located<Flag<false>>,
    /// `true` answers preflight requests of these origins, instead of the upstream.
    pub answer_preflight: Located<Flag<false>>,
    /// How long browsers keep these answers, `0s` to `1d`.
    pub max_age: Located<PreflightAge>,
}

/// How long browsers keep the answer to a preflight request; in whole seconds.
pub type PreflightAge = Duration<0, DAY, { 5 * SECOND }>;

/// `on_limit`: what refused clients are told. A policy's own goes before `responses.on_limit`, key
/// by key.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct OnLimit {
    /// The action on requests beyond the quota; `reject` unless given.
    pub action: Option<Located<Action>>,
    /// The status code: 400 to 599, and 429 unless given; for `decoy` 200 to 399, and that of
    /// the route's real answers, or 200, unless given.
    pub status: Option<Located<Whole<200, 599>>>,
    /// The form of the body: `auto` (the default) goes by `Accept`; `problem` is RFC 9457, `json`
    /// the same under `application/json`, `text` and `html` are what they say, and `openai` and
    /// `anthropic` the error objects that their SDKs read.
    pub format: Option<Located<BodyFormat>>,
    /// A body of your own, up to 64 KiB; `format` then says what it is. `{{retry_after}}` and other
    /// placeholders stand for values, escaped for that format.
    pub body: Option<Located<Text>>,
    /// Further fields.
    pub headers: Table<FieldName, FieldValue>,
    /// A page about the limits, for the body and a `Link` field.
    pub docs_url: Option<Located<WebUrl>>,
    /// How long a request is held before it is refused, `1ms` to `5m`; `10s` unless given. For
    /// `tarpit` only.
    pub delay: Option<Located<HoldTime>>,
    /// Requests that are held at a time, 1 to 1000000, 1000 unless given; further ones are refused
    /// at once. For `tarpit` only.
    pub max_held: Option<Located<Whole<1, 1_000_000>>>,
    /// The field that tells the upstream which policies a request exceeds; `x-over-limit` unless
    /// given. For `tag` only.
    pub tag_header: Option<Located<FieldName>>,
    /// Where these requests go instead: the name of an upstream, a URL, or `echo`. For `route` only.
    pub upstream: Option<Located<UpstreamRef>>,
    /// Values to set in JSON objects, as `request.set_body` of a route does. For `route` only, on routes
    /// with `request.read_body`.
    pub set_body: Table<Pointer, Text>,
    /// How long a request may wait for units, `1ms` to `5m`; `30s` unless given. One whose units come
    /// later is refused at once. For `wait` only.
    pub max_wait: Option<Located<HoldTime>>,
    /// Requests of a key that wait, 1 to 1000000, 100 unless given; further ones are refused at once.
    /// For `wait` only.
    pub queue: Option<Located<Whole<1, 1_000_000>>>,
}

impl OnLimit {
    /// The action; `general` fills in.
    pub(in crate::config) fn action_over(&self, general: &Self) -> Action {
        let action = self.action.as_ref().or(general.action.as_ref());
        action.map_or(Action::Reject, |action| action.value)
    }

    /// These settings; `general` fills in, key by key.
    pub(in crate::config) fn over(&self, general: &Self) -> Self {
        fn or<T: Clone>(own: &Option<T>, general: &Option<T>) -> Option<T> {
            own.as_ref().or(general.as_ref()).cloned()
        }
        let mut headers = general.headers.clone();
        headers.value.extend(self.headers.value.clone());
        Self {
            action: or(&self.action, &general.action),
            status: or(&self.status, &general.status),
            format: or(&self.format, &general.format),
            body: or(&self.body, &general.body),
            headers,
            docs_url: or(&self.docs_url, &general.docs_url),
            delay: or(&self.delay, &general.delay),
            max_held: or(&self.max_held, &general.max_held),
            tag_header: or(&self.tag_header, &general.tag_header),
            upstream: or(&self.upstream, &general.upstream),
            set_body: self.set_body.clone(),
            max_wait: or(&self.max_wait, &general.max_wait),
            queue: or(&self.queue, &general.queue),
        }
    }

    /// These settings, with those of `general` if they fill in here.
    pub(in crate::config) fn merged(&self, general: &Self) -> Self {
        if self.inherits(general) {
            self.over(general)
        } else {
            self.clone()
        }
    }

    /// These settings of an override or a soft limit; those of its policy fill in.
    pub(in crate::config) fn within(&self, policy: &Policy, general: &Self) -> Self {
        if self.inherits(&policy.on_limit.over(general)) {
            self.over(&policy.on_limit)
        } else {
            self.clone()
        }
    }

    /// The settings that not every action has: key, place, and their actions.
    pub(in crate::config) fn settings(
        &self,
    ) -> impl Iterator<Item = (&'static str, NodeId, &'static [Action])> {
        const TELLING: &[Action] = &[Action::Reject, Action::Tarpit, Action::Wait];
        const ANSWERING: &[Action] = &[Action::Reject, Action::Decoy, Action::Tarpit, Action::Wait];
        const HOLDING: &[Action] = &[Action::Tarpit];
        const TAGGING: &[Action] = &[Action::Tag];
        const ROUTING: &[Action] = &[Action::Route];
        const WAITING: &[Action] = &[Action::Wait];
        let headers = (!self.headers.is_empty()).then_some(self.headers.node);
        let settings = [
            ("status", self.status.given(), ANSWERING),
            ("format", self.format.given(), ANSWERING),
            ("body", self.body.given(), ANSWERING),
            ("headers", headers, ANSWERING),
            ("docs_url", self.docs_url.given(), TELLING),
            ("delay", self.delay.given(), HOLDING),
            ("max_held", self.max_held.given(), HOLDING),
            ("tag_header", self.tag_header.given(), TAGGING),
            ("upstream", self.upstream.given(), ROUTING),
            ("set_body", self.set_body.given(), ROUTING),
            ("max_wait", self.max_wait.given(), WAITING),
            ("queue", self.queue.given(), WAITING),
        ];
        let said = |(key, node, actions): (_, Option<_>, _)| Some((key, node?, actions));
        settings.into_iter().filter_map(said)
    }

    /// True if settings of `general` fill in here. A decoy must not look like a refusal, nor a
    /// refusal like a decoy.
    fn inherits(&self, general: &Self) -> bool {
        let is_decoy = |action| action == Action::Decoy;
        is_decoy(self.action_over(general)) == is_decoy(general.action_over(&Self::default()))
    }
}

/// How long a request is held.
pub type HoldTime = Duration<1, { 5 * MINUTE }>;

/// The action on requests beyond the quota.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Action {
    /// It is answered with an error.
    #[default]
    Reject,
    /// It is answered with what looks like success, and never reaches the upstream.
    Decoy,
    /// It is answered with an error, after a while.
    Tarpit,
    /// It is not answered: the connection is closed, the stream of HTTP/2 reset.
    Drop,
    /// It is forwarded, with a header field that says so.
    Tag,
    /// It is forwarded to another upstream.
    Route,
    /// It waits for units, and is answered with an error if they don't come in time.
    Wait,
}

impl Action {
    /// The written word.
    pub(in crate::config) fn as_str(self) -> &'static str {
        self.into()
    }

    /// True if requests beyond the quota are forwarded nevertheless.
    pub(in crate::config) fn forwards(self) -> bool {
        matches!(self, Self::Tag | Self::Route)
    }
}

/// The form of a refusal's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BodyFormat {
    /// As the client's `Accept` asks: problem, plain text or HTML. With the header style `openai` or
    /// `anthropic`, the first one's error object.
    #[default]
    Auto,
    /// `application/problem+json` (RFC 9457).
    Problem,
    /// `application/json`, with the members of `problem`.
    Json,
    /// `text/plain`.
    Text,
    /// `text/html`.
    Html,
    /// OpenAI's error object.
    #[serde(rename = "openai")]
    OpenAi,
    /// Anthropic's error object.
    Anthropic,
}
