//! The configuration with the proposed limits, in shadow.

use std::fmt::Write as _;

use super::report::Suggestion;

/// Writes the proposed policies; with `is_whole` also the routes that were found, so that it is a
/// whole configuration.
pub(super) fn write(suggestion: &Suggestion, is_whole: bool) -> String {
    let mut text = head(suggestion);
    if !is_whole {
        text.push_str("# Add these policies to your configuration, and to each route its limit.\n");
    }
    let key = serde_json::Value::from(&*suggestion.wishes.key);
    let policies = suggestion.routes.iter();
    let policies = policies
        .filter_map(|route| Some((route, route.policy.as_ref()?, route.proposal.as_ref()?)));
    for (place, (route, policy, proposal)) in policies.enumerate() {
        if place == 0 {
            text.push_str("policies:\n");
        }
        if !is_whole {
            _ = writeln!(text, "  # route {}: limits: [{policy}]", route.name);
        }
        let (quota, burst) = (&proposal.quota, proposal.burst);
        _ = writeln!(
            text,
            "  # {}\n  {}: {{ key: {key}, quota: {quota}, burst: {burst}, mode: shadow }}",
            proposal.reason,
            scalar(policy)
        );
    }
    if is_whole {
        write_routes(suggestion, &mut text);
    }
    text
}

fn write_routes(suggestion: &Suggestion, text: &mut String) {
    text.push_str(
        "upstreams:\n  app: { endpoints: [\"http://127.0.0.1:3000\"] } # where your application listens\nroutes:\n",
    );
    for route in &suggestion.routes {
        let (requests_for, name) = (&route.requests_for, scalar(&route.name));
        _ = write!(text, "  # {requests_for}: {} requests", route.requests);
        if let Some(reason) = route.no_limit {
            _ = write!(text, "; no limit: {}", reason.sentence());
        }
        _ = write!(text, "\n  - {{ name: {name}, ");
        if requests_for.starts_with('/') {
            _ = write!(text, "match: {{ path: \"{requests_for}\" }}, ");
        }
        text.push_str("upstream: app");
        if let Some(policy) = &route.policy {
            _ = write!(text, ", limits: [{}]", scalar(policy));
        }
        text.push_str(" }\n");
    }
}

/// A name as YAML has it. `null` means nothing there.
fn scalar(name: &str) -> String {
    if name.eq_ignore_ascii_case("null") {
        format!("{name:?}")
    } else {
        name.to_owned()
    }
}

fn head(suggestion: &Suggestion) -> String {
    let mut text = format!(
        "# Limits for {} requests, proposed by `sluicegate suggest`. All are in shadow: they count\n\
         # what they would refuse, and refuse nothing. Remove `mode: shadow` to enforce one.\n",
        suggestion.requests
    );
    if let (Some(from), Some(until)) = (&suggestion.from, &suggestion.until) {
        _ = writeln!(text, "# The log is from {from} to {until}.");
    }
    for remark in &suggestion.remarks {
        _ = writeln!(text, "# {remark}");
    }
    text
}
