//! What clients are told.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::located::{List, Located, Table};
use crate::config::value::{FieldName, FieldValue, Text, WebUrl, Whole};

/// `responses`: what clients are told.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Responses {
    /// Styles of rate-limit fields, in every answer that a limit had a say in; `[]` for none.
    pub headers: List<HeaderStyle>,
    /// What refused clients are told, where their policy does not say otherwise.
    pub on_limit: Located<OnLimit>,
}

impl Default for Responses {
    fn default() -> Self {
        Self {
            headers: vec![HeaderStyle::Ietf.into()].into(),
            on_limit: Located::default(),
        }
    }
}

/// A style of rate-limit fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HeaderStyle {
    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11).
    #[default]
    Ietf,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset` in seconds from now.
    XRatelimit,
    /// The same with `-Used`, `-Resource` and `-Reset` in seconds since the epoch.
    Github,
    /// `x-ratelimit-limit-requests`, `-remaining-requests`, `-reset-requests` as a duration, and
    /// `retry-after-ms`.
    Openai,
}

/// `on_limit`: what refused clients are told. A policy's own goes before `responses.on_limit`, key
/// by key.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OnLimit {
    /// What happens: `reject` answers with an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Located<Action>>,
    /// The status code, 400 to 599; 429 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Located<Whole<400, 599>>>,
    /// The form of the body: `auto` (the default) goes by `Accept`; `problem` is RFC 9457, `json`
    /// the same under `application/json`, and `text` and `html` are what they say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Located<BodyFormat>>,
    /// A body of your own, up to 64 KiB; `format` then says what it is. `{{retry_after}}` and other
    /// placeholders stand for values, escaped for that format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Located<Text>>,
    /// Further fields.
    pub headers: Table<FieldName, FieldValue>,
    /// A page about the limits, for the body and a `Link` field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docs_url: Option<Located<WebUrl>>,
}

/// What happens to a refused request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is answered with an error.
    #[default]
    Reject,
}

/// The form of a refusal's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BodyFormat {
    /// As the client's `Accept` asks: problem, plain text or HTML.
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
}
