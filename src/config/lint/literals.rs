//! Values that mean more in other proxies than they do here.

use crate::config::sections::prelude::*;

/// Warns of paths, prefixes and values that are compared as they are, and that nginx, Traefik, Kong or
/// Envoy would read as a prefix or as a pattern.
pub(super) fn literal_values(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    for route in config.routes.iter() {
        found.extend(slash_at_the_end(config, &route.matches));
        found.extend(route.matches.path.as_ref().and_then(parameter));
        values(route.matches.values(), &mut found);
    }
    for condition in config.conditions().flat_map(|condition| condition.all()) {
        values(condition.values(), &mut found);
        found.extend(condition.path.as_ref().and_then(parameter));
    }
    for policy in config.all_policies() {
        let selections = policy.selections();
        selections.for_each(|selection| selected(selection, &mut found));
    }
    for selection in config.exempt.iter() {
        selected(selection, &mut found);
    }
    found
}

/// `/api/:id`, as Express writes `/api/{id}`.
fn parameter(path: &Located<PathSelection>) -> Option<Finding> {
    let mut segments = path.pattern()?.segments.iter();
    let name = segments.find_map(|segment| match segment {
        Segment::Literal(text) => text.strip_prefix(':').filter(|name| !name.is_empty()),
        Segment::Capture(_) => None,
    })?;
    let message = format!("`:{name}` is compared literally");
    let finding = Finding::warning(path.node, Code::LiteralValue, message);
    Some(finding.help(format!(
        "write `{{{name}}}` for any one segment, which is what `:{name}` means in Express"
    )))
}

/// `/api/`, where no route takes the paths below.
fn slash_at_the_end(config: &Config, matches: &Match) -> Option<Finding> {
    let (path, node) = matches.written_pattern()?;
    let (last, above) = path.segments.split_last()?;
    let has_slash = !path.is_prefix && *last == Segment::Literal(String::new());
    let takes_below = |other: &Match| match other.path_pattern() {
        Some(other) => other.is_prefix && other.segments == above,
        None => above.is_empty() && !other.has_path_regex(),
    };
    let mut routes = config.routes.iter();
    if !has_slash || routes.any(|route| takes_below(&route.matches)) {
        return None;
    }
    let below = PathPattern {
        segments: above.to_vec(),
        is_prefix: true,
    };
    let message = format!("`{path}` takes this path only, and none below it");
    let finding = Finding::warning(node, Code::LiteralValue, message);
    Some(finding.help(format!(
        "write `{below}` for everything below, which is what `location {path}` means in nginx"
    )))
}

/// Adds a finding for each value that is written in full and looks like a pattern.
fn values<'a>(values: impl Iterator<Item = &'a Located<ValueMatch>>, found: &mut Vec<Finding>) {
    let help = "write the value in full, or a pattern: `{ prefix: pro- }` or `{ regex: \"^v[0-9]\" }`; any value has `{ prefix: \"\" }`";
    let texts = values.filter_map(|value| Some((value.text()?, value.node)));
    found.extend(texts.filter_map(|(text, node)| pattern(text, node, help)));
}

fn selected(selection: &Selection, found: &mut Vec<Finding>) {
    let help = "write the value in full; for values that start alike, `exempt` and `overrides` have \
                `prefix`, without a `*`";
    let texts = [&selection.value, &selection.prefix].into_iter().flatten();
    found.extend(texts.filter_map(|text| pattern(&text.value, text.node, help)));
}

/// A finding for a value that looks like a pattern.
fn pattern(value: &Hidden<Text>, node: NodeId, help: &'static str) -> Option<Finding> {
    if !looks_like_pattern(value.reveal().as_str()) {
        return None;
    }
    let message = "this looks like a pattern, but it's compared literally";
    Some(Finding::warning(node, Code::LiteralValue, message).help(help))
}

/// True for `*`, `pro-*`, `/prod.*/`, `^prod$` and the like. `*/*` is a value of `Accept`.
fn looks_like_pattern(text: &str) -> bool {
    const SIGNS: [&str; 7] = [".*", ".+", "[^", "[0-9", "[a-z", "[A-Z", "(?"];
    let is_delimited = text.len() > 2 && text.starts_with('/') && text.ends_with('/');
    let has_sign = SIGNS.iter().any(|sign| text.contains(sign));
    let has_wildcard = text.ends_with('*') && !text.ends_with("/*");
    let is_anchored = text.len() > 1 && (text.starts_with('^') || text.ends_with('$'));
    has_sign || has_wildcard || is_anchored || (is_delimited && text.contains(['*', '|', '\\']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_told_from_values() {
        for pattern in [
            "pro-*", "/prod.*/", "^prod", "prod$", "v[0-9]", "/a|b/", ".*", "*",
        ] {
            assert!(looks_like_pattern(pattern), "{pattern}");
        }
        for value in [
            "", "*/*", "text/*", "/api/", "a.b", "$", "Bearer x", "a|b", "1*2",
        ] {
            assert!(!looks_like_pattern(value), "{value}");
        }
    }
}
