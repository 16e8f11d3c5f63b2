//! The conditions of a route.

use std::borrow::Cow;
use std::fmt;

use derive_more::Display;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::{Condition, Methods};
use super::{Head, segments};
use crate::http::path;

/// All conditions of a route. An empty list is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteMatch {
    /// One of these hosts.
    pub hosts: Vec<HostPattern>,
    /// This path.
    pub path: PathPattern,
    /// Further conditions, all of which must be certainly met.
    pub conditions: Vec<Condition>,
    /// The paths that count as equal.
    pub form: PathEquivalence,
}

/// A pattern for hosts, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Display)]
pub enum HostPattern {
    /// This host.
    Exact(String),
    /// Every host below this one at any depth, without the host itself: `*.example.com`.
    #[display("*.{_0}")]
    Subdomains(String),
}

/// A pattern for paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathPattern {
    /// The segments, in order; a trailing slash is an empty last one.
    pub segments: Vec<Segment>,
    /// True if the pattern also matches all paths below.
    pub is_prefix: bool,
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// This text.
    Literal(String),
    /// Any text but an empty one, under this name.
    Capture(String),
}

/// The paths that a route treats as equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathEquivalence {
    /// Does `/Login` equal `/login`?
    pub case: CaseSensitivity,
    /// Does `/login/` equal `/login`?
    pub trailing_slash: TrailingSlash,
    /// Does `/login;x` equal `/login`?
    pub path_match: PathMatch,
}

/// The comparison of letters in paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CaseSensitivity {
    /// `/A` differs from `/a`.
    #[default]
    Sensitive,
    /// ASCII letters compare without case.
    Insensitive,
}

/// The meaning of a slash at the end of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrailingSlash {
    /// `/a/` differs from `/a`.
    #[default]
    Strict,
    /// `/a/` equals `/a`.
    Ignore,
}

/// The comparison of segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PathMatch {
    /// `/a;x` and `/a.` differ from `/a`.
    #[default]
    Exact,
    /// `/a;x`, `/a%20`, `/a.` and `/;x/a` equal `/a`, as they do for some servers.
    Loose,
}

/// The first condition of a route that a request does not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Mismatch<'a> {
    /// Another host.
    #[display("another host")]
    Host,
    /// Another path.
    #[display("another path")]
    Path,
    /// This condition isn't certainly met.
    Condition(&'a Condition),
}

/// The conditions in words: `POST api.example.com /v1/items/{id} header:x-beta`. Values of fields and
/// parameters are left out: they may be secrets.
impl fmt::Display for RouteMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for condition in &self.conditions {
            if let Condition::Method(methods) = condition {
                let methods: Vec<_> = methods.named.iter().map(Method::as_str).collect();
                write!(f, "{} ", methods.join(","))?;
            }
        }
        let hosts: Vec<_> = self.hosts.iter().map(ToString::to_string).collect();
        if !hosts.is_empty() {
            write!(f, "{} ", hosts.join(","))?;
        }
        write!(f, "{}", self.path)?;
        for condition in &self.conditions {
            match condition {
                Condition::Method(_) => {}
                Condition::Value(part, _) => write!(f, " {part}")?,
                Condition::Grpc => f.write_str(" grpc")?,
                _ => f.write_str(" when")?,
            }
        }
        Ok(())
    }
}

/// The pattern as the configuration writes it: `/a/{name}/**`.
impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => write!(f, "/{text}")?,
                Segment::Capture(name) => write!(f, "/{{{name}}}")?,
            }
        }
        match (self.is_prefix, self.segments.is_empty()) {
            (true, _) => f.write_str("/**"),
            (false, true) => f.write_str("/"),
            (false, false) => Ok(()),
        }
    }
}

/// Matches every path.
impl Default for PathPattern {
    fn default() -> Self {
        PathPattern {
            segments: Vec::new(),
            is_prefix: true,
        }
    }
}

impl PathPattern {
    /// The names of the captured segments.
    pub fn captures(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Capture(name) => Some(name.as_str()),
            Segment::Literal(_) => None,
        })
    }

    /// Returns the patterns of which a folded path has to match one: folded too, and with and
    /// without a slash at the end if the slash does not count.
    pub(super) fn spellings(&self, form: PathEquivalence) -> Vec<Self> {
        let pattern = self.folded(form);
        if pattern.is_prefix || form.trailing_slash == TrailingSlash::Strict {
            return vec![pattern];
        }
        let slash = Segment::Literal(String::new());
        let mut other = pattern.clone();
        if other.segments.pop_if(|last| *last == slash).is_none() {
            other.segments.push(slash);
        }
        vec![pattern, other]
    }

    /// The pattern for folded paths.
    pub(super) fn folded(&self, form: PathEquivalence) -> Self {
        self.map_literals(|text| form.fold(text))
    }

    /// The pattern with its literals in the form in which paths are matched.
    #[must_use]
    pub fn comparable(&self) -> Self {
        self.map_literals(path::comparable)
    }

    fn map_literals(&self, change: impl Fn(&str) -> Cow<'_, str>) -> Self {
        let segments = self.segments.iter().map(|segment| match segment {
            Segment::Literal(text) => Segment::Literal(change(text).into_owned()),
            capture => capture.clone(),
        });
        Self {
            segments: segments.collect(),
            is_prefix: self.is_prefix,
        }
    }

    /// Only the pattern for every path matches `*`, which begins with no slash.
    pub(super) fn matches(&self, path: &str) -> bool {
        if !path.starts_with('/') {
            return self.is_prefix && self.segments.is_empty();
        }
        let mut actual = segments(path);
        self.segments
            .iter()
            .all(|wanted| actual.next().is_some_and(|text| wanted.matches(text)))
            && (self.is_prefix || actual.next().is_none())
    }

    /// Returns the index of the segment that is captured as `name`.
    pub fn capture(&self, name: &str) -> Option<usize> {
        let captures =
            |segment: &Segment| matches!(segment, Segment::Capture(text) if text == name);
        self.segments.iter().position(captures)
    }
}

impl RouteMatch {
    /// Returns the first condition that `head` does not meet.
    pub fn mismatch(&self, head: &Head<'_>) -> Option<Mismatch<'_>> {
        if !self.hosts.is_empty() && !self.hosts.iter().any(|host| host.matches(head.host)) {
            return Some(Mismatch::Host);
        }
        if !self.matches_path(head.path) {
            return Some(Mismatch::Path);
        }
        self.unmet_condition(head).map(Mismatch::Condition)
    }

    /// The first condition beyond host and path that `head` does not certainly meet.
    pub(super) fn unmet_condition(&self, head: &Head<'_>) -> Option<&Condition> {
        let mut conditions = self.conditions.iter();
        conditions.find(|condition| !condition.is_certain(head))
    }

    /// Returns true if each `HEAD` for these hosts and this path meets the conditions.
    pub(super) fn takes_head(&self) -> bool {
        let is_named = |methods: &Methods| methods.named.contains(&Method::HEAD);
        matches!(self.conditions.as_slice(), [Condition::Method(methods)] if is_named(methods))
    }

    /// Leaves `HEAD` to another route, unless it is named here.
    pub(super) fn leave_head(&mut self) {
        for condition in &mut self.conditions {
            if let Condition::Method(methods) = condition {
                methods.includes_head = false;
            }
        }
    }

    /// Returns true if the conditions beyond host and path match each request that those of `other`
    /// match.
    pub(super) fn is_at_least_as_general_as(&self, other: &Self) -> bool {
        self.conditions.iter().all(|own| {
            let mut others = other.conditions.iter();
            others.any(|other| own.is_implied_by(other))
        })
    }

    fn matches_path(&self, path: &str) -> bool {
        let path = self.form.fold(path);
        let mut patterns = self.path.spellings(self.form).into_iter();
        patterns.any(|pattern| pattern.matches(&path))
    }
}

impl HostPattern {
    /// Returns true for a host in lower case that the pattern takes.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(exact) => host == exact,
            Self::Subdomains(domain) => host
                .strip_suffix(domain.as_str())
                .and_then(|labels| labels.strip_suffix('.'))
                .is_some_and(|labels| !labels.is_empty()),
        }
    }
}

impl PathEquivalence {
    /// Folds a path, or a segment: returns equal texts for those that compare equal, except for a
    /// slash at the end.
    pub fn fold(self, text: &str) -> Cow<'_, str> {
        let text = match self.path_match {
            PathMatch::Exact => Cow::Borrowed(text),
            PathMatch::Loose => without_ignored(text),
        };
        let upper = |byte: u8| byte.is_ascii_uppercase();
        match self.case {
            CaseSensitivity::Insensitive if text.bytes().any(upper) => {
                Cow::Owned(text.to_ascii_lowercase())
            }
            CaseSensitivity::Insensitive | CaseSensitivity::Sensitive => text,
        }
    }

    /// The segment at this place of the folded path.
    pub(crate) fn segment(self, path: &str, place: usize) -> Option<Cow<'_, str>> {
        match self.fold(path) {
            Cow::Borrowed(path) => segments(path).nth(place).map(Cow::Borrowed),
            Cow::Owned(path) => {
                let segment = segments(&path).nth(place)?;
                Some(Cow::Owned(segment.to_owned()))
            }
        }
    }

    /// Returns true for a segment that folding removes.
    pub(super) fn passes_over(self, segment: &str) -> bool {
        self.path_match == PathMatch::Loose && !segment.is_empty() && bare(segment).is_empty()
    }

    /// Returns the same folding, whatever a slash at the end means.
    pub(super) fn folding(self) -> Self {
        Self {
            trailing_slash: TrailingSlash::Strict,
            ..self
        }
    }

    /// Returns the canonical form, which is equal for equal paths.
    pub(super) fn canonical(self, path: &str) -> Cow<'_, str> {
        let bare = path.strip_suffix('/').filter(|bare| !bare.is_empty());
        self.fold(match self.trailing_slash {
            TrailingSlash::Strict => path,
            TrailingSlash::Ignore => bare.unwrap_or(path),
        })
    }
}

/// A path, or a segment, without what some servers ignore in segments. Segments of nothing else go.
fn without_ignored(text: &str) -> Cow<'_, str> {
    if text
        .split('/')
        .all(|segment| bare(segment).len() == segment.len())
    {
        return Cow::Borrowed(text);
    }
    let mut folded = String::with_capacity(text.len());
    for (place, segment) in text.split('/').enumerate() {
        let bare = bare(segment);
        if bare.is_empty() && !segment.is_empty() {
            continue;
        }
        if place > 0 {
            folded.push('/');
        }
        folded.push_str(bare);
    }
    if folded.is_empty() && text.starts_with('/') {
        folded.push('/');
    }
    Cow::Owned(folded)
}

/// A segment without its parameters, and without dots and spaces at the end.
fn bare(segment: &str) -> &str {
    let mut bare = segment.split(';').next().unwrap_or_default();
    while let Some(shorter) = bare.strip_suffix('.').or(bare.strip_suffix("%20")) {
        bare = shorter;
    }
    bare
}

impl Segment {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => text == literal,
            Self::Capture(_) => !text.is_empty(),
        }
    }
}
