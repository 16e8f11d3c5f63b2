//! Bodies of requests that a route reads: what may depend on them, and where.

use crate::config::sections::cost;
use crate::config::sections::prelude::*;

/// Checks what routes, access rules and limits read of bodies.
pub(super) fn check(config: &Config, findings: &Findings<'_>) {
    for limit in config.limits.iter() {
        if let Some((policy, _)) = config.policy(limit)
            && let Some(node) = read_by(policy)
        {
            let message = "a top-level limit can't read the body";
            let finding = conflict(limit.node, message).related(node, "what it reads");
            findings.add(finding.help(
                "put it into `limits` of the routes that take such bodies, with `request: { read_body: 64KiB }`",
            ));
        }
    }
    for exemption in config.exempt.iter() {
        let part = exemption.part.as_ref().filter(|part| part.is_from_body());
        let when = exemption.when.as_ref().and_then(|when| of_condition(when));
        let node = part.map(|part| part.node).or(when);
        refuse(
            node,
            "an exemption from all limits can't depend on the body",
            findings,
        );
    }
    let accesses = config
        .routes
        .iter()
        .filter_map(|route| route.access.as_ref());
    for access in config.access.iter().chain(accesses) {
        let node = access
            .conditions()
            .find_map(|condition| of_condition(condition));
        refuse(node, "`access` decides before the body has come", findings);
    }
    for route in config.routes.iter() {
        check_route(route, config, findings);
    }
}

/// Reports what reads the body at this place.
fn refuse(node: Option<NodeId>, message: &str, findings: &Findings<'_>) {
    if let Some(node) = node {
        findings.add(
            conflict(node, message)
                .help("use a policy, on routes with `request: { read_body: 64KiB }`"),
        );
    }
}

fn check_route(route: &Route, config: &Config, findings: &Findings<'_>) {
    let RequestChanges {
        read_body,
        set_body,
        ..
    } = &route.request.value;
    let when = route
        .matches
        .when
        .as_ref()
        .and_then(|when| of_condition(when));
    refuse(when, "a route is found before the body has come", findings);
    let balance = route
        .upstream_name()
        .and_then(|name| config.upstreams.get(name.as_str()));
    let hashed = balance
        .and_then(|upstream| upstream.balance.key())
        .into_iter();
    let hashed = hashed
        .flat_map(|key| &key.0)
        .filter(|part| part.is_from_body());
    let limits = route
        .limits
        .iter()
        .filter_map(|limit| Some((limit.node, read_by(config.policy(limit)?.0)?)));
    let mut readers = limits
        .chain(hashed.map(|part| (part.node, part.node)))
        .peekable();
    match read_body {
        Some(read) if readers.peek().is_none() && set_body.is_empty() => {
            let finding = warn_no_effect(read.node, "no limit of this route reads the body");
            findings.add(
                finding
                    .at_key()
                    .help("remove `read_body`, or use a part of the body: `key: body:/model`"),
            );
        }
        Some(_) => {}
        None => {
            for (place, node) in readers {
                let finding = missing(place, "the route doesn't read the body");
                let finding = finding.related(node, "what is read of it");
                findings.add(finding.help("add `request: { read_body: 64KiB }` to the route"));
            }
            if let Some(node) = set_body.given() {
                let finding = missing(node, "the route doesn't read the body that it changes");
                findings.add(finding.at_key().help("add `read_body: 64KiB` beside it"));
            }
        }
    }
}

/// The place where a policy first reads the body.
pub(crate) fn read_by(policy: &Policy) -> Option<NodeId> {
    let mut parts = policy.parts();
    let part = parts.find_map(|(part, node)| part.is_from_body().then_some(node));
    let exceptions = policy.selections().filter_map(|one| one.when.as_ref());
    let mut conditions = policy.when.iter().chain(exceptions);
    let overrides = policy.overrides.iter();
    let overrides = overrides.filter_map(|one| one.on_limit.as_ref());
    let soft = policy.soft_limits.iter().map(|soft| &soft.on_limit);
    let mut answers = overrides.chain(soft).chain([&policy.on_limit]);
    part.or_else(|| conditions.find_map(|when| of_condition(when)))
        .or_else(|| cost::body_node(policy))
        .or_else(|| answers.find_map(|on_limit| on_limit.set_body.given()))
}

/// The place where a condition first reads the body.
fn of_condition(condition: &Condition) -> Option<NodeId> {
    let all = condition.all();
    let mut nodes = all
        .iter()
        .flat_map(|one| [one.body.given(), one.form.given()]);
    nodes.find_map(|node| node)
}
