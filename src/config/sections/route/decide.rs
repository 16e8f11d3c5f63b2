//! `upstream: decide` of a route: it tells other proxies if they may serve a request.

use super::answer::check_unforwarded;
use crate::config::sections::cost::settlement_node;
use crate::config::sections::prelude::*;

pub(super) fn check(route: &Route, config: &Config, findings: &Findings<'_>) {
    check_batch(route, config, findings);
    let Some(upstream) = route.built_in(BuiltIn::Decide) else {
        return;
    };
    check_unforwarded(route, upstream, findings);
    check_match(route, config, findings);
    let inherited = config.limits.iter().filter(|_| route.inherit.get());
    for limit in inherited.chain(route.limits.iter()) {
        if let Some((policy, _)) = config.policy(limit) {
            let named = limit.name().map(|_| limit.node);
            check_policy(policy, named, upstream, config, findings);
        }
    }
}

/// A list describes requests of others, which only trusted peers may do.
fn check_batch(route: &Route, config: &Config, findings: &Findings<'_>) {
    let Some(upstream) = route.built_in(BuiltIn::DecideBatch) else {
        return;
    };
    check_unforwarded(route, upstream, findings);
    if config.client_ip.trusted_proxies.is_empty() {
        let message = "no peer is trusted to send lists of requests here";
        let finding = conflict(upstream, message);
        findings.add(finding.help("add the addresses that ask to `client_ip.trusted_proxies`"));
    }
}

/// A request that is described is matched anew, and its path is another one than the question's.
fn check_match(route: &Route, config: &Config, findings: &Findings<'_>) {
    let takes_one_path = |route: &Route| {
        let path = route.matches.path_pattern();
        let is_question = route.built_in(BuiltIn::Decide).is_some();
        is_question && path.is_some_and(|path| path.captures().next().is_none() && !path.is_prefix)
    };
    if let Some((_, path)) = route.matches.written_pattern()
        && !config.client_ip.trusted_proxies.is_empty()
        && config.routes.iter().all(|route| takes_one_path(route))
    {
        let message = "no route takes the requests that questions describe, so that these get 404";
        let finding = warn_no_effect(path, message);
        findings.add(finding.help("remove `path`: the route then takes both"));
    }
}

/// Warns of what a question can't do as the request itself would. `named` is the place that names
/// the policy, unless that stands there itself.
fn check_policy(
    policy: &Policy,
    named: Option<NodeId>,
    upstream: NodeId,
    config: &Config,
    findings: &Findings<'_>,
) {
    let warn = |node, message: String, help: &str| {
        let place = named.unwrap_or(node);
        let finding = warn_no_effect(place, message);
        let finding = finding.related(upstream, "the proxy only answers questions here");
        findings.add(finding.related(node, "set here").help(help));
    };
    if policy.algorithm.value == AlgorithmName::Concurrency {
        let message = "a permit is free again once the question is answered";
        let help = "limit a rate here, and the concurrency where requests are served";
        warn(policy.algorithm.node, message.to_owned(), help);
    }
    if let Some(node) = settlement_node(policy) {
        let message = "the response to the request doesn't pass here, so that it settles nothing";
        let help = "use `cost: { header: x-cost }` without a response, or a fixed cost";
        warn(node, message.to_owned(), help);
    }
    let action = policy.on_limit.action_over(&config.responses.on_limit);
    if !matches!(action, Action::Reject | Action::Wait) {
        let name = action.as_str();
        let message = match action {
            Action::Tag => "`tag` marks nothing, because nothing is forwarded".to_owned(),
            Action::Route => "`route` changes nothing, because nothing is forwarded".to_owned(),
            _ => format!("questions are refused at once, not by `{name}`"),
        };
        warn(policy.on_limit.node, message, "use `action: reject`");
    }
    let address = policy.key.0.iter().find(|part| part.is_address());
    if let Some(part) = address
        && config.client_ip.trusted_proxies.is_empty()
    {
        let message = format!("`{part}` is the address of the proxy that asks");
        let help = "name that proxy in `client_ip.trusted_proxies`: only then its fields count";
        warn(part.node, message, help);
    }
}
