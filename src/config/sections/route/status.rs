//! `upstream: status` of a route: the limits that it reports.

use std::collections::{BTreeSet, HashSet};

use super::answer::check_unforwarded;
use super::compile::RouteCompiler;
use super::limits;
use crate::config::sections::policy::Policies;
use crate::config::sections::prelude::*;
use crate::proxy::ruleset::{CompiledRoute, LimitSpec};

/// The largest number of policies in a report: their buckets are read together.
const MOST_POLICIES: usize = 100;

/// The reason why no report has a policy.
#[derive(Clone, Copy)]
enum Unreported<'a> {
    /// No response speaks of it; the setting that says so.
    Undisclosed(NodeId),
    /// A part of its key belongs to a request, not to a client.
    NotOfClient(&'a KeyPart, NodeId),
}

pub(super) fn check(route: &Route, config: &Config, findings: &Findings<'_>) {
    let Some(upstream) = route.built_in(BuiltIn::Status) else {
        if let Some(status) = &route.status {
            let finding = no_effect(status.node, "only `upstream: status` reports limits").at_key();
            let finding = finding.related(route.upstream.given(), "the upstream");
            findings.add(finding.help("remove it, or use `upstream: status`"));
        }
        return;
    };
    check_unforwarded(route, upstream, findings);
    let policies = route.status.as_ref();
    match policies.and_then(|status| status.policies.as_ref()) {
        Some(names) => check_names(names, config, findings),
        None => check_number(upstream, config, findings),
    }
}

fn check_names(names: &List<Name>, config: &Config, findings: &Findings<'_>) {
    report_empty(names, findings, OPTIONAL);
    report_twice(names, findings);
    if names.len() > MOST_POLICIES {
        findings.add(too_many(names.node, names.len()));
    }
    for name in names.iter() {
        match config.policies.get(name.as_str()) {
            Some(policy) => check_reported(name, policy, config, findings),
            None => limits::report_unknown(name, name.node, config, findings),
        }
    }
}

fn check_reported(name: &Located<Name>, policy: &Policy, config: &Config, findings: &Findings<'_>) {
    match unreported(policy, config) {
        None => {}
        Some(Unreported::Undisclosed(setting)) => {
            let finding = conflict(name.node, format!("no response speaks of `{name}`"));
            let finding = finding.related(setting, "which keeps it to itself");
            findings.add(finding.help("remove one of them"));
        }
        Some(Unreported::NotOfClient(part, node)) => {
            let message = format!("requests of one client have several buckets of `{name}`");
            let finding = conflict(name.node, message).help("leave it out of the report");
            findings.add(finding.related(node, format!("`{part}` differs between requests")));
        }
    }
}

fn check_number(upstream: NodeId, config: &Config, findings: &Findings<'_>) {
    let policies = config.all_limits().filter_map(|limit| config.policy(limit));
    let reported = policies.filter(|(policy, _)| is_reported(policy, config));
    let count = reported.map(|(_, node)| node).collect::<HashSet<_>>().len();
    if count > MOST_POLICIES {
        findings.add(too_many(upstream, count));
    }
}

fn too_many(node: NodeId, count: usize) -> Finding {
    let message = format!("{count} policies in one report; {MOST_POLICIES} are allowed");
    let finding = invalid(node, message);
    finding.help("name those that clients ask for: `status: { policies: [per-key, daily] }`")
}

/// True if reports have the policy for clients that it is enforced for.
fn is_reported(policy: &Policy, config: &Config) -> bool {
    policy.mode.value == Mode::Enforce && unreported(policy, config).is_none()
}

fn unreported<'a>(policy: &'a Policy, config: &Config) -> Option<Unreported<'a>> {
    if !policy.announce.get() {
        return Some(Unreported::Undisclosed(policy.announce.node));
    }
    let action = policy.on_limit.action_over(&config.responses.on_limit);
    if action == Action::Decoy || action.forwards() {
        return Some(Unreported::Undisclosed(policy.on_limit.node));
    }
    let mut parts = policy.parts();
    let (part, node) = parts.find(|(part, _)| !is_of_client(part))?;
    Some(Unreported::NotOfClient(part, node))
}

/// True if all requests of a client have the same part.
fn is_of_client(part: &KeyPart) -> bool {
    let is_fixed = matches!(part, KeyPart::Host | KeyPart::Constant);
    part.is_address() || part.is_claimed() || part.is_of_client() || is_fixed
}

impl RouteCompiler<'_> {
    /// Adds the limits that routes with `upstream: status` report. `routes` and `unmatched` have
    /// all limits that requests meet.
    pub(crate) fn report_status(
        &self,
        policies: &Policies<'_>,
        routes: &mut [CompiledRoute],
        unmatched: &[LimitSpec],
    ) {
        let written = self.config.routes.iter();
        let is_report =
            |(route, _): &(&Located<Route>, _)| route.built_in(BuiltIn::Status).is_some();
        let mut reports = written.zip(0..).filter(is_report).peekable();
        if reports.peek().is_none() {
            return;
        }
        let limits = routes.iter().flat_map(|route| &route.limits);
        let limits = limits.chain(unmatched);
        let used: BTreeSet<_> = limits.map(|limit| limit.policy).collect();
        for (route, place) in reports {
            let reported = self.reported(route, &routes[place], policies, &used);
            routes[place].reported = reported;
        }
    }

    fn reported(
        &self,
        route: &Route,
        compiled: &CompiledRoute,
        policies: &Policies<'_>,
        used: &BTreeSet<usize>,
    ) -> Vec<LimitSpec> {
        let status = route.status.as_ref();
        let names = status.and_then(|status| status.policies.as_ref());
        let named = names.map(|names| {
            let names = names.iter();
            let indices = names.filter_map(|name| policies.named(name.as_str()));
            indices.collect::<BTreeSet<_>>()
        });
        let name = &compiled.spec.name;
        let from_all = self.exempt_from_all(name, &compiled.matches);
        let is_named = |index: &&usize| named.as_ref().is_none_or(|all| all.contains(index));
        let indices = used.iter().filter(is_named);
        let applied = indices.map(|&index| (index, policies.get(index)));
        let reported = applied.filter(|(_, policy)| is_reported(policy, self.config));
        reported
            .map(|(index, policy)| self.limit(index, policy, &from_all, name, &compiled.matches))
            .collect()
    }
}
