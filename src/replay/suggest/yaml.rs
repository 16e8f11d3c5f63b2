//! The configuration with the proposed limits, in shadow.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::paths::{plain_name, unique};
use super::quota::Proposal;
use super::report::Suggestion;
use crate::config::{self, Loaded, Report};
use crate::proxy::ruleset::RulesetSpec;

/// The name of the configuration in reports: nobody should ever see one.
const NAME: &str = "suggestion";

/// The rules of a text.
pub(super) fn compile(text: &str) -> Result<RulesetSpec, Report> {
    let loaded = config::parse(NAME, text.to_owned(), &|_| None)?;
    config::compile_rules(&loaded)
}

/// Writes a configuration, and names the policies of the routes that get one: a whole one, or the
/// policies that are to be added to `config`.
pub(super) fn write(suggestion: &mut Suggestion, config: Option<&Loaded>) -> String {
    match config {
        Some(config) => write_policies(suggestion, config),
        None => write_whole(suggestion),
    }
}

/// A whole configuration, with the routes that were found.
fn write_whole(suggestion: &mut Suggestion) -> String {
    let mut text = head(suggestion);
    text.push_str(
        "upstreams:\n  app: { endpoints: [\"http://127.0.0.1:3000\"] } # where your application listens\nroutes:\n",
    );
    let (margin, key) = (suggestion.margin, suggestion.key.clone());
    for route in &mut suggestion.routes {
        let no_limit = route.no_limit.as_ref();
        let no_limit = no_limit.map(|reason| format!("; no limit: {}", reason.sentence(route)));
        let (requests_for, no_limit) = (&route.requests_for, no_limit.unwrap_or_default());
        _ = writeln!(
            text,
            "  # {requests_for}: {} requests{no_limit}",
            route.requests
        );
        _ = writeln!(text, "  - name: {}", scalar(&route.name));
        if let Some(matches) = &route.matches {
            _ = writeln!(text, "    match: {matches}");
        }
        text.push_str("    upstream: app\n");
        if let Some(proposal) = route.limit.proposal.clone() {
            route.policy = Some(route.name.clone());
            text.push_str("    limits:\n");
            _ = writeln!(text, "      # {}", proposal.reason(margin));
            _ = writeln!(text, "      # {}", proposal.burst_reason(margin));
            let policy = policy(&key, &proposal).replacen(
                '{',
                &format!("{{ name: {},", scalar(&route.name)),
                1,
            );
            _ = writeln!(text, "      - {policy}");
        }
    }
    text
}

/// The policies for the routes of the user's configuration.
fn write_policies(suggestion: &mut Suggestion, config: &Loaded) -> String {
    let mut text = head(suggestion);
    text.push_str(
        "# Add these policies to your configuration, and to each route its limit.\npolicies:\n",
    );
    let (margin, key) = (suggestion.margin, suggestion.key.clone());
    let mut names = taken_names(config);
    for route in &mut suggestion.routes {
        if let Some(proposal) = &route.limit.proposal {
            let name = unique(&plain_name(&route.name), &mut names);
            _ = writeln!(text, "  # route {}: limits: [{name}]", route.name);
            _ = writeln!(text, "  # {}", proposal.reason(margin));
            _ = writeln!(text, "  # {}", proposal.burst_reason(margin));
            _ = writeln!(text, "  {}: {}", scalar(&name), policy(&key, proposal));
            route.policy = Some(name);
        }
    }
    text
}

/// A policy, and with a name a limit of a route.
fn policy(key: &str, Proposal { quota, burst, .. }: &Proposal) -> String {
    let key = serde_json::Value::from(key);
    format!("{{ key: {key}, quota: {quota}, burst: {burst}, mode: shadow }}")
}

/// A name as YAML has it. `null` means nothing there.
fn scalar(name: &str) -> String {
    if name.eq_ignore_ascii_case("null") {
        format!("{name:?}")
    } else {
        name.to_owned()
    }
}

/// The names of the policies of a configuration.
fn taken_names(config: &Loaded) -> HashSet<String> {
    let policies = config::compile_policies(config).unwrap_or_default();
    policies
        .iter()
        .map(|one| one.spec.name.to_string())
        .collect()
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
