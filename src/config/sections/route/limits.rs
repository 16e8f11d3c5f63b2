//! Checks of `limits`: names resolve, no policy is charged twice, captures exist.

use std::collections::{HashMap, HashSet};

use crate::config::sections::policy::captures;
use crate::config::sections::prelude::*;

pub(crate) fn check_limits(config: &Config, findings: &Findings<'_>) {
    let routes = config.routes.iter();
    let everywhere: HashSet<_> = routes.flat_map(|route| route.matches.captures()).collect();
    check_list(&config.limits, config, findings);
    check_captures(&config.limits, config, &everywhere, findings);
    let inherited: HashMap<_, _> = names(&config.limits).collect();
    for route in config.routes.iter() {
        check_list(&route.limits, config, findings);
        let own = route.matches.captures().collect();
        check_captures(&route.limits, config, &own, findings);
        if route.inherit.get() {
            check_inherited(route, &inherited, findings);
        } else if config.limits.is_empty() {
            let message = "there are no top-level limits to leave out";
            findings.add(warn_no_effect(route.inherit.node, message).help("remove `inherit`"));
        }
    }
}

fn names(limits: &List<Limit>) -> impl Iterator<Item = (&Name, NodeId)> {
    let limits = limits.iter();
    limits.filter_map(|limit| Some((limit.name()?, limit.node)))
}

/// Reports the name at `node` of a policy that isn't there.
pub(super) fn report_unknown(name: &Name, node: NodeId, config: &Config, findings: &Findings<'_>) {
    let known: Vec<_> = config.policies.keys().map(|name| name.as_str()).collect();
    let help = if known.is_empty() {
        format!("define it: `policies: {{ {name}: {{ key: client_ip, quota: 100/1m }} }}`")
    } else {
        findings.advice(name.as_str(), &known, "known policies")
    };
    let message = format!("there is no policy `{name}`");
    findings.add(Finding::error(node, Code::UnknownName, message).help(help));
}

fn check_list(limits: &List<Limit>, config: &Config, findings: &Findings<'_>) {
    for (name, node) in names(limits) {
        if !config.policies.contains_key(name.as_str()) {
            report_unknown(name, node, config, findings);
        }
    }
    report_repeated(names(limits), REMOVE_ONE, findings, |name| {
        format!("`{name}` twice in one list would be charged twice")
    });
}

fn check_inherited(route: &Route, inherited: &HashMap<&Name, NodeId>, findings: &Findings<'_>) {
    for (name, node) in names(&route.limits) {
        if let Some(&above) = inherited.get(name) {
            let message =
                format!("`{name}` would be charged twice: it is a limit of every request already");
            let finding = Finding::error(node, Code::DuplicateName, message)
                .related(above, "the top-level limit");
            findings.add(finding.help("remove one of them, or say `inherit: false`"));
        }
    }
}

/// A capture without its segment in the path would be missing from every request.
fn check_captures(
    limits: &List<Limit>,
    config: &Config,
    known: &HashSet<&str>,
    findings: &Findings<'_>,
) {
    for limit in limits.iter() {
        let policy = config.policy(limit).map(|(policy, _)| policy);
        let used = policy.into_iter().flat_map(captures);
        for (capture, part) in used.filter(|(capture, _)| !known.contains(capture)) {
            let message = format!("the path captures no segment `{capture}`");
            let finding = match &limit.value {
                Limit::InPlace(_) => Finding::error(part, Code::UnknownName, message),
                Limit::Named(_) => Finding::error(limit.node, Code::UnknownName, message)
                    .related(part, "the key that wants it"),
            };
            findings.add(finding.help(capture_help(capture, known, findings)));
        }
    }
}

fn capture_help(capture: &str, known: &HashSet<&str>, findings: &Findings<'_>) -> String {
    let mut known: Vec<_> = known.iter().copied().collect();
    known.sort_unstable();
    if known.is_empty() {
        format!("write the path with a segment `{{{capture}}}`, as in `/users/{{{capture}}}`")
    } else {
        findings.advice(capture, &known, "captured segments")
    }
}
