//! Which fields tell a client where it stands, and what they are called.

use std::collections::HashSet;

use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderName, HeaderValue, RETRY_AFTER};

use super::{RATELIMIT, RATELIMIT_POLICY, RETRY_AFTER_MS};
use crate::http::headers::Headers;

/// A family of header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `RateLimit-Policy` and `RateLimit`: draft-ietf-httpapi-ratelimit-headers, -08 to -11.
    Ietf,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` in seconds from now: the same draft, up to -06.
    Draft6,
    /// `RateLimit-Policy` and `RateLimit`, as in draft -07: of the deciding policy alone, without its name.
    Draft7,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset` in seconds from now.
    XRateLimit,
    /// The same with `-Used` and `-Resource`, and `-Reset` in seconds since the epoch.
    GitHub,
    /// `x-ratelimit-limit-requests`, `-tokens` and their kin, with durations such as `6m0s`, and `retry-after-ms`.
    OpenAi,
}

/// The fields of one style, under their names.
#[derive(Clone, Debug)]
pub struct StyleFields {
    pub(super) style: Style,
    pub(super) limit: HeaderName,
    pub(super) remaining: HeaderName,
    pub(super) reset: HeaderName,
    pub(super) used: HeaderName,
    pub(super) resource: HeaderName,
    /// Limit, remaining and reset of limits in tokens.
    pub(super) tokens: [HeaderName; 3],
}

/// All fields of responses.
#[derive(Clone, Debug)]
pub struct HeaderStyles {
    pub(super) all: Vec<StyleFields>,
    /// What scripts of other origins are told that they may read.
    exposed: Option<HeaderValue>,
}

impl Style {
    /// What the names of its fields begin with; `None` where they are fixed.
    pub fn prefix(self) -> Option<&'static str> {
        match self {
            Self::Ietf | Self::Draft7 => None,
            Self::Draft6 => Some("ratelimit"),
            Self::XRateLimit | Self::GitHub | Self::OpenAi => Some("x-ratelimit"),
        }
    }

    /// The customary names of the limit, of what remains, of the reset, of what is used, and of the resource.
    fn names(self) -> [&'static str; 5] {
        match self {
            Self::Draft6 => [
                "ratelimit-limit",
                "ratelimit-remaining",
                "ratelimit-reset",
                "ratelimit-used",
                "ratelimit-resource",
            ],
            Self::OpenAi => [
                "x-ratelimit-limit-requests",
                "x-ratelimit-remaining-requests",
                "x-ratelimit-reset-requests",
                "x-ratelimit-used-requests",
                "x-ratelimit-resource-requests",
            ],
            Self::Ietf | Self::Draft7 | Self::XRateLimit | Self::GitHub => [
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
                "x-ratelimit-reset",
                "x-ratelimit-used",
                "x-ratelimit-resource",
            ],
        }
    }
}

/// The customary names of the limit, of what remains, and of the reset, of limits in tokens.
const TOKEN_FIELDS: [&str; 3] = [
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
];

impl StyleFields {
    /// The fields of `style`, with names that begin with `prefix`, where they are not fixed.
    pub fn new(style: Style, prefix: Option<&HeaderName>) -> Self {
        let customary = style.prefix().unwrap_or_default();
        let named = |name: &'static str| match prefix {
            // Static ones are cloned without counting references, on every response.
            None => HeaderName::from_static(name),
            Some(prefix) => {
                let own = format!("{prefix}{}", &name[customary.len()..]);
                HeaderName::try_from(own).expect("letters and hyphens after a name make a name")
            }
        };
        let [limit, remaining, reset, used, resource] = style.names().map(named);
        StyleFields {
            style,
            limit,
            remaining,
            reset,
            used,
            resource,
            // Of `openai` alone, whose prefix may be another.
            tokens: match style {
                Style::OpenAi => TOKEN_FIELDS.map(named),
                _ => TOKEN_FIELDS.map(HeaderName::from_static),
            },
        }
    }

    /// The style.
    pub fn style(&self) -> Style {
        self.style
    }

    /// The names of all that it writes but Retry-After.
    pub fn names(&self) -> Vec<HeaderName> {
        let mut names = match self.style {
            Style::Ietf | Style::Draft7 => return vec![RATELIMIT_POLICY, RATELIMIT],
            _ => [&self.limit, &self.remaining, &self.reset]
                .map(Clone::clone)
                .to_vec(),
        };
        match self.style {
            Style::OpenAi => {
                names.extend(self.tokens.iter().cloned());
                names.push(RETRY_AFTER_MS);
            }
            Style::GitHub => names.extend([&self.used, &self.resource].map(Clone::clone)),
            _ => {}
        }
        names
    }
}

/// Whether scripts of other origins may read the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// It is not said.
    Unsaid,
    /// `Access-Control-Expose-Headers` names them.
    Exposed,
}

impl HeaderStyles {
    /// These fields.
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
            exposed: (exposure == Exposure::Exposed).then(names),
            all,
        }
    }

    /// Whether one of them is of `style`.
    pub(super) fn contains(&self, style: Style) -> bool {
        self.all.iter().any(|fields| fields.style == style)
    }

    /// Appended: the upstream may have fields of its own to expose.
    pub(super) fn expose(&self, headers: &mut Headers) {
        if let Some(exposed) = &self.exposed {
            headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, exposed.clone());
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
    fn a_prefix_stands_in_for_the_customary_one() {
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
        HeaderStyles::new(all.to_vec(), Exposure::Unsaid).expose(&mut headers);
        assert!(headers.is_empty());
    }
}
