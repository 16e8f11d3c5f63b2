//! `rewrite` of a route, and what else it says of paths.

use http::HeaderValue;

use crate::config::sections::prelude::*;
use crate::config::sections::value_match::not_an_expression;
use crate::http::path;
use crate::proxy::ruleset::ForwardedPath;
use crate::rules::{
    CaseSensitivity, LinearRegex, PathEquivalence, PathMatch, PathRewrite, TrailingSlash,
};

/// The longest replacement, in bytes.
const MAX_REPLACEMENT: usize = 1024;
/// The most references to groups in a replacement.
const MAX_REFERENCES: usize = 16;

/// The path that the upstream gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForwardPath {
    /// The normalised path, by which the request was matched.
    #[default]
    Normalised,
    /// The path as the client sent it, byte for byte, as signatures of URLs need it.
    AsReceived,
}

/// `rewrite` of a route: changes to the path that the upstream gets, in the order of these options.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("dependencies" = { "regex": ["replace"], "replace": ["regex"] }))]
pub struct Rewrite {
    /// A prefix to take away, in whole segments. `X-Forwarded-Prefix` names it.
    pub strip_prefix: Option<Located<PathPrefix>>,
    /// A regular expression. Everything that it finds in the path becomes `replace`.
    pub regex: Option<Located<Text>>,
    /// The text for what `regex` finds, 1,024 bytes at most; `$1` and `$name` stand for its groups.
    /// Braces around a name are written `$${name}`, because `${name}` is a variable.
    pub replace: Option<Located<Text>>,
    /// A prefix to put before the path.
    pub add_prefix: Option<Located<PathPrefix>>,
    /// `true` rewrites paths in `Location`, `Content-Location` and `Set-Cookie` back.
    pub responses: Located<Flag<false>>,
}

/// Compiles what a checked route says of the path that is forwarded.
pub(super) fn forwarded_path(route: &Route, form: PathEquivalence) -> ForwardedPath {
    let Some(written) = &route.rewrite else {
        return match route.forward_path.value {
            ForwardPath::Normalised => ForwardedPath::Normalised,
            ForwardPath::AsReceived => ForwardedPath::AsReceived,
        };
    };
    let strip = written.strip_prefix.as_ref();
    let text = |prefix: Option<&Located<PathPrefix>>| {
        prefix.map_or_else(String::new, |prefix| prefix.to_string())
    };
    let replace = written.regex.as_ref().zip(written.replace.as_ref());
    ForwardedPath::Rewritten(Box::new(PathRewrite {
        // An upstream that puts the prefix into its links needs nothing rewritten back.
        forwarded_prefix: strip
            .filter(|_| !written.responses.get())
            .and_then(|prefix| HeaderValue::from_str(prefix.as_str()).ok()),
        strip: text(strip),
        // A check has reported other expressions.
        replace: replace.and_then(|(regex, text)| {
            let ignores_case = form.case == CaseSensitivity::Insensitive;
            let regex = LinearRegex::new(regex.as_str(), ignores_case).ok()?;
            Some((regex, text.as_str().as_bytes().into()))
        }),
        add: text(written.add_prefix.as_ref()),
        responses: written.responses.get(),
        form,
        slashes: route.encoded_slashes.value,
    }))
}

/// Checks all that a route says of paths.
pub(super) fn check(route: &Route, findings: &Findings<'_>) {
    check_forms(route, findings);
    if let Some(rewrite) = &route.rewrite {
        findings.extend(foreign_prefix(route, rewrite));
        check_as_received(route, rewrite, findings);
        check_replacement(rewrite, findings);
        check_loose_replacement(route, rewrite, findings);
        check_responses(rewrite, findings);
    }
}

/// The lint of paths that upstreams may read in another way.
pub(crate) fn ambiguous_paths(config: &Config) -> impl Iterator<Item = Finding> {
    let routes = config.routes.iter();
    let as_received = routes.filter(|route| route.forward_path.value == ForwardPath::AsReceived);
    as_received.map(move |route| {
        let message = "the upstream may read another path than the limits and `access` do";
        let finding = Finding::warning(route.forward_path.node, Code::AmbiguousPath, message);
        finding.help("do this for upstreams that verify signed URLs only; `/public/../admin` is matched as `/admin`, and forwarded as it is")
    })
}

/// Checks the pattern against the forms of paths that the route tells apart.
fn check_forms(route: &Route, findings: &Findings<'_>) {
    let (slash, path_match) = (&route.trailing_slash, &route.path_match);
    if path_match.value == PathMatch::Loose && slash.value == TrailingSlash::Strict {
        let finding = conflict(slash.node, "`path_match: loose` ignores a slash at the end");
        findings.add(finding.related(path_match.node, "here").help("remove it"));
    }
    let Some((pattern, node)) = route.matches.written_pattern() else {
        return;
    };
    let literals = pattern.segments.iter().filter_map(|segment| match segment {
        Segment::Literal(text) => Some(text),
        Segment::Capture(_) => None,
    });
    let form = PathEquivalence {
        path_match: route.path_match.value,
        ..PathEquivalence::default()
    };
    for literal in literals {
        let comparable = path::comparable(literal);
        if form.fold(&comparable) != comparable {
            let message = format!("`path_match: loose` ignores a part of `{literal}`");
            let finding = conflict(node, message);
            let help =
                "write the path without `;`, and without dots and spaces at the end of segments";
            findings.add(finding.related(route.path_match.node, "here").help(help));
        }
        if path::has_encoded_slash(literal) && route.encoded_slashes.value == EncodedSlashes::Refuse
        {
            let message = format!("`{literal}` would never match: requests with `%2F` are refused");
            findings.add(conflict(node, message).help("add `encoded_slashes: keep` to the route"));
        }
    }
}

/// The finding on a stripped prefix with which not every path of the route starts.
fn foreign_prefix(route: &Route, rewrite: &Rewrite) -> Option<Finding> {
    let prefix = rewrite.strip_prefix.as_ref()?;
    let path = route.matches.written_pattern();
    let starts_so = path.is_some_and(|(path, _)| starts_with(path, prefix));
    let message = format!("not every path of this route starts with `{prefix}`");
    let finding = conflict(prefix.node, message);
    let finding = finding.related(route.matches.path.given(), "the paths that it takes");
    (!starts_so).then(|| finding.help(format!("match paths below it: `path: {prefix}/**`")))
}

fn starts_with(path: &PathPattern, prefix: &PathPrefix) -> bool {
    let mut wanted = prefix.as_str().split('/').skip(1);
    let mut segments = path.segments.iter();
    wanted.all(|wanted| matches!(segments.next(), Some(Segment::Literal(text)) if text == wanted))
}

fn check_as_received(route: &Route, rewrite: &Located<Rewrite>, findings: &Findings<'_>) {
    if route.forward_path.value == ForwardPath::AsReceived {
        let message = "a path can't be rewritten and forwarded as it was received";
        let finding = conflict(rewrite.node, message).at_key();
        let finding = finding.related(route.forward_path.node, "as it was received");
        findings.add(finding.help("remove one of them"));
    }
}

fn check_replacement(rewrite: &Located<Rewrite>, findings: &Findings<'_>) {
    let (regex, text) = match (&rewrite.regex, &rewrite.replace) {
        (Some(regex), Some(text)) => (regex, text),
        (Some(_), None) => {
            let finding = missing(rewrite.node, "`replace` is missing");
            return findings.add(finding.help("add the text for what `regex` finds"));
        }
        (None, Some(text)) => {
            let finding = missing(text.node, "`regex` is missing");
            return findings.add(finding.at_key().help("add what is replaced"));
        }
        (None, None) => return check_prefixes(rewrite, findings),
    };
    match LinearRegex::new(regex.as_str(), false) {
        Ok(compiled) => {
            if let Err((message, help)) = references(text.as_str(), &compiled) {
                findings.add(invalid(text.node, message).help(help));
            }
        }
        Err(message) => findings.add(not_an_expression(regex.node, &message)),
    }
}

/// An expression sees what a loose route ignores, and would miss such paths.
fn check_loose_replacement(route: &Route, rewrite: &Rewrite, findings: &Findings<'_>) {
    if let Some(regex) = &rewrite.regex
        && route.path_match.value == PathMatch::Loose
    {
        let message = "an expression does not find `/public;x` as `/public`";
        let finding = conflict(regex.node, message).help("use `strip_prefix` and `add_prefix`");
        findings.add(finding.related(route.path_match.node, "which the route takes for equal"));
    }
}

fn check_prefixes(rewrite: &Located<Rewrite>, findings: &Findings<'_>) {
    if rewrite.strip_prefix.is_none() && rewrite.add_prefix.is_none() {
        let message = "expected `strip_prefix`, `add_prefix`, or `regex` with `replace`";
        findings.add(missing(rewrite.node, message).help("add one, or remove `rewrite`"));
    }
}

/// Checks the replacement: its size, and the groups that it refers to.
fn references(text: &str, regex: &LinearRegex) -> Result<(), (String, String)> {
    if text.len() > MAX_REPLACEMENT {
        let message = format!("it has {} bytes; {MAX_REPLACEMENT} are allowed", text.len());
        return Err((message, "shorten it".to_owned()));
    }
    let wrong = |message: String, help: &str| Err((message, help.to_owned()));
    let is_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if text.split('\\').skip(1).any(is_digit) {
        let message = "a group is written with `$`".to_owned();
        return wrong(message, "write `$1` instead of `\\1`");
    }
    let is_wrong = |c: &char| matches!(c, '?' | '#' | '\\') || c.is_control();
    if let Some(c) = text.chars().find(is_wrong) {
        let message = format!("a path can't contain `{}`", c.escape_debug());
        return wrong(message, "percent-encode it; queries stay as they are");
    }
    let mut count = 0;
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('$') {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, after) = match behind
            .strip_prefix('{')
            .and_then(|name| name.split_once('}'))
        {
            Some(braced) => braced,
            None => behind.split_at(behind.find(|c| !is_word(c)).unwrap_or(behind.len())),
        };
        if let Some(escaped) = behind.strip_prefix('$') {
            rest = escaped;
            continue;
        }
        if !regex.has_group(name) {
            let message = format!("the expression has no group `{name}`");
            let help = "groups are `(..)` and `(?<name>..)`; write `$${1}x` for a group with a letter behind it, and `$$` for a dollar sign";
            return wrong(message, help);
        }
        count += 1;
        rest = after;
    }
    if count > MAX_REFERENCES {
        let message = format!("it refers to {count} groups; {MAX_REFERENCES} are allowed");
        return wrong(message, "refer to fewer");
    }
    Ok(())
}

fn check_responses(rewrite: &Rewrite, findings: &Findings<'_>) {
    let (message, help) = match (&rewrite.regex, &rewrite.strip_prefix, &rewrite.add_prefix) {
        _ if !rewrite.responses.get() => return,
        (Some(_), ..) => (
            "what `regex` replaces can't be rewritten back in responses",
            "use `strip_prefix` and `add_prefix`, or remove `responses`",
        ),
        (None, None, None) => (
            "there is no prefix to rewrite in responses",
            "remove `responses`",
        ),
        _ => return,
    };
    findings.add(conflict(rewrite.responses.node, message).help(help));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_have_to_be_groups() {
        let regex = LinearRegex::new("(?<id>a)(b)", false).expect("an expression");
        for text in ["/x", "/$1/${2}x", "/${id}/$id", "/$0", "/$$x", "/$1$2"] {
            assert_eq!(references(text, &regex), Ok(()), "{text}");
        }
        for text in ["/$3", "/$1x", "/${x}", "/$", "/${1", "/?a", "/a#b", "/a\n"] {
            assert!(references(text, &regex).is_err(), "{text}");
        }
        let (_, help) = references(r"/\1", &regex).expect_err("no group");
        assert_eq!(help, r"write `$1` instead of `\1`");
        assert!(references(&"$1".repeat(17), &regex).is_err());
        assert!(references(&"a".repeat(1_025), &regex).is_err());
    }
}
