//! Styles of rate-limit fields, and the names of their fields.

use std::collections::HashSet;

use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderName, HeaderValue, RETRY_AFTER};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RETRY_AFTER_MS;
use crate::http::headers::Headers;

/// A style of rate-limit fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "HeaderStyle")]
pub enum Style {
    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11).
    #[default]
    Ietf,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` in seconds from now (the draft up to -06).
    #[serde(rename = "draft-6")]
    Draft6,
    // Of the deciding policy alone, without its name.
    /// `RateLimit-Policy: 100;w=60` and `RateLimit: limit=100, remaining=50, reset=30` (the
    /// draft's -07).
    #[serde(rename = "draft-7")]
    Draft7,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset` in seconds from now.
    #[serde(rename = "x-ratelimit")]
    XRateLimit,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Used`, `-Resource`, and `-Reset` in seconds since
    /// the epoch.
    #[serde(rename = "github")]
    GitHub,
    /// `x-ratelimit-limit-requests`, `-remaining-requests`, `-reset-requests` as a duration,
    /// and `retry-after-ms`.
    #[serde(rename = "openai")]
    OpenAi,
    /// `anthropic-ratelimit-requests-limit`, `-remaining`, `-reset` as an instant of RFC 3339; the
    /// same for `tokens`, `input-tokens` and `output-tokens`.
    Anthropic,
}

/// A style with the names of its fields.
#[derive(Clone, Debug)]
pub struct StyleFields {
    pub style: Style,
    /// In the older styles limit, remaining and reset. Then `github` has used and resource, and `openai`
    /// and `anthropic` have the first three for limits in tokens.
    pub(super) names: Vec<HeaderName>,
}

/// Rate-limit fields of all responses.
#[derive(Clone, Debug)]
pub struct HeaderStyles {
    pub(super) all: Vec<StyleFields>,
    /// Value of `Access-Control-Expose-Headers`.
    exposed: HeaderValue,
    exposure: Exposure,
}

impl Style {
    /// Prefix of the names of its fields; `None` for fixed names.
    pub fn prefix(self) -> Option<&'static str> {
        match self {
            Self::Ietf | Self::Draft7 => None,
            Self::Draft6 => Some("ratelimit"),
            Self::XRateLimit | Self::GitHub | Self::OpenAi => Some("x-ratelimit"),
            Self::Anthropic => Some("anthropic-ratelimit"),
        }
    }

    /// Default names of its fields.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Ietf | Self::Draft7 => &["ratelimit-policy", "ratelimit"],
            Self::Draft6 => &["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
            Self::XRateLimit => &[
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
                "x-ratelimit-reset",
            ],
            Self::GitHub => &[
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
                "x-ratelimit-reset",
                "x-ratelimit-used",
                "x-ratelimit-resource",
            ],
            Self::OpenAi => &[
                "x-ratelimit-limit-requests",
                "x-ratelimit-remaining-requests",
                "x-ratelimit-reset-requests",
                "x-ratelimit-limit-tokens",
                "x-ratelimit-remaining-tokens",
                "x-ratelimit-reset-tokens",
            ],
            Self::Anthropic => &[
                "anthropic-ratelimit-requests-limit",
                "anthropic-ratelimit-requests-remaining",
                "anthropic-ratelimit-requests-reset",
                "anthropic-ratelimit-tokens-limit",
                "anthropic-ratelimit-tokens-remaining",
                "anthropic-ratelimit-tokens-reset",
                "anthropic-ratelimit-input-tokens-limit",
                "anthropic-ratelimit-input-tokens-remaining",
                "anthropic-ratelimit-input-tokens-reset",
                "anthropic-ratelimit-output-tokens-limit",
                "anthropic-ratelimit-output-tokens-remaining",
                "anthropic-ratelimit-output-tokens-reset",
            ],
        }
    }
}

impl StyleFields {
    /// The fields of `style`, whose names begin with `prefix`, unless they are fixed.
    pub fn new(style: Style, prefix: Option<&HeaderName>) -> Self {
        let named = |name: &&'static str| match prefix.zip(style.prefix()) {
            // Cloning a static name counts no references.
            None => HeaderName::from_static(name),
            Some((prefix, default)) => {
                let own = format!("{prefix}{}", &name[default.len()..]);
                HeaderName::try_from(own).expect("letters and hyphens after a name make a name")
            }
        };
        StyleFields {
            style,
            names: style.names().iter().map(named).collect(),
        }
    }

    /// The names of all its fields except Retry-After.
    pub fn names(&self) -> Vec<HeaderName> {
        let milliseconds = (self.style == Style::OpenAi).then_some(RETRY_AFTER_MS);
        self.names.iter().cloned().chain(milliseconds).collect()
    }
}

/// Access of scripts from other origins to the fields (CORS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// The proxy adds nothing.
    Unchanged,
    /// `Access-Control-Expose-Headers` names them.
    Exposed,
}

/// No field.
impl Default for HeaderStyles {
    fn default() -> Self {
        Self::new(Vec::new(), Exposure::Unchanged)
    }
}

impl HeaderStyles {
    /// Builds the fields of responses.
    pub fn new(all: Vec<StyleFields>, exposure: Exposure) -> Self {
        let names = || {
            let names = all.iter().flat_map(StyleFields::names);
            let mut names: Vec<_> = std::iter::once(RETRY_AFTER).chain(names).collect();
            let mut seen = HashSet::new();
            names.retain(|name| seen.insert(name.clone()));
            let names: Vec<_> = names.iter().map(HeaderName::as_str).collect();
            HeaderValue::try_from(names.join(", ")).expect("names are visible ASCII")
        };
        HeaderStyles {
            exposed: names(),
            exposure,
            all,
        }
    }

    /// One of the styles is `style`.
    pub(super) fn contains(&self, style: Style) -> bool {
        self.all.iter().any(|fields| fields.style == style)
    }

    /// Appends: the upstream may expose fields of its own.
    pub(super) fn expose(&self, headers: &mut Headers) {
        if self.exposure == Exposure::Exposed {
            headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, self.exposed.clone());
        }
    }

    /// Appends to a response that an allowed origin gets, unless [`expose`](Self::expose) has.
    pub(in crate::proxy::answers) fn expose_to_origin(&self, headers: &mut Headers) {
        let mut exposed = headers.get_all(ACCESS_CONTROL_EXPOSE_HEADERS);
        let is_exposed = exposed.any(|value| value == self.exposed.as_bytes());
        drop(exposed);
        if !is_exposed {
            headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, self.exposed.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(style: Style, prefix: Option<&'static str>) -> Vec<String> {
        let prefix = prefix.map(HeaderName::from_static);
        let fields = StyleFields::new(style, prefix.as_ref());
        fields.names().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_prefix_replaces_the_default_one() {
        assert_eq!(
            names(Style::XRateLimit, Some("x-acme")),
            ["x-acme-limit", "x-acme-remaining", "x-acme-reset"]
        );
        assert_eq!(
            names(Style::OpenAi, Some("acme"))[..2],
            ["acme-limit-requests", "acme-remaining-requests"]
        );
        assert_eq!(names(Style::OpenAi, Some("acme"))[3], "acme-limit-tokens");
        assert_eq!(names(Style::Draft6, Some("a"))[0], "a-limit");
        assert_eq!(names(Style::GitHub, None)[3], "x-ratelimit-used");
    }

    #[test]
    fn every_field_is_exposed_once() {
        let all = [Style::Ietf, Style::XRateLimit, Style::Draft6]
            .map(|style| StyleFields::new(style, None));
        let mut headers = Headers::new();
        HeaderStyles::new(all.to_vec(), Exposure::Exposed).expose(&mut headers);
        let exposed = headers.get(ACCESS_CONTROL_EXPOSE_HEADERS);
        assert_eq!(
            exposed.expect("a field"),
            b"retry-after, ratelimit-policy, ratelimit, x-ratelimit-limit, x-ratelimit-remaining, \
             x-ratelimit-reset, ratelimit-limit, ratelimit-remaining, ratelimit-reset"
        );
        let mut headers = Headers::new();
        HeaderStyles::new(all.to_vec(), Exposure::Unchanged).expose(&mut headers);
        assert!(headers.is_empty());
    }
}
