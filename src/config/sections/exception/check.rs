//! Checks of exceptions: each names its requests, and none stands twice.

use crate::config::sections::prelude::*;
use crate::config::sections::{algorithm, condition, responses};

/// The most items with a condition in one list: requests try one after the other.
const MAX_CONDITIONAL: usize = 100;

/// Checks the exemptions from all limits, which have no key to name parts of.
pub(crate) fn check_top_level(config: &Config, findings: &Findings<'_>) {
    check_conditions(config.exempt.iter().map(|one| &one.value), config, findings);
    for exemption in config.exempt.iter() {
        check_selection(exemption, exemption.node, findings, || {
            match exemption.part.as_ref().map(|part| (part, &part.value)) {
                Some((part, KeyPart::Capture(_))) => {
                    let finding = conflict(part.node, "a captured segment is of one route's path");
                    findings.add(finding.help("put it into the `exempt` of a policy"));
                }
                Some((_, part)) => check_value(part, exemption.node, findings),
                None => {
                    let finding = missing(exemption.node, "it is not said what this is a value of");
                    findings.add(finding.help("name it: `part: header:x-api-key`"));
                }
            }
        });
    }
    let all = config.exempt.iter();
    report_same(all.map(|one| (&one.value, one.node)), findings);
}

pub(crate) fn check(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    let overridden = policy.overrides.iter().map(|one| &one.selection);
    check_conditions(overridden, config, findings);
    check_conditions(policy.exempt.iter().map(|one| &one.value), config, findings);
    for exemption in policy.exempt.iter() {
        check_selection(exemption, exemption.node, findings, || {
            check_part(exemption, exemption.node, policy, findings);
        });
    }
    if !policy.overrides.is_empty() {
        let base = policy.without_exceptions();
        for one in policy.overrides.iter() {
            check_selection(&one.selection, one.node, findings, || {
                check_part(&one.selection, one.node, policy, findings);
            });
            let has_effect = one.mode.is_some() || one.on_limit.is_some();
            if one.has_buckets() || one.shared_burst().is_some() || !has_effect {
                algorithm::check(&one.applied_to(&base), one.node, config, findings);
            }
            check_effect(one, policy, config, findings);
        }
    }
    if let Some(candidate) = &policy.candidate {
        let applied = candidate.applied_to(policy);
        algorithm::check(&applied, candidate.node, config, findings);
    }
    let exempt = policy.exempt.iter();
    report_same(exempt.map(|one| (&one.value, one.node)), findings);
    let overrides = policy.overrides.iter();
    report_same(overrides.map(|one| (&one.selection, one.node)), findings);
}

/// Checks the burst, the mode and the answers of an override. If a policy tags, it does so for all requests.
fn check_effect(one: &Override, policy: &Policy, config: &Config, findings: &Findings<'_>) {
    let burst = one.shared_burst();
    if let Some(burst) = burst.filter(|burst| burst.units() > policy.amounts.capacity()) {
        let message = "the burst of a shared bucket is at most that of the policy";
        let finding = conflict(burst.node, message);
        let finding = finding.related(
            policy.amounts.at_once().map(|(_, node)| node),
            "the policy's",
        );
        findings.add(finding.help(
            "give the policy the largest `burst`, and others a smaller one; or add a `quota`, for a bucket of its own",
        ));
    }
    if let Some(mode) = &one.mode
        && mode.value == Mode::Disabled
    {
        let finding = conflict(mode.node, "an override is enforced or in shadow");
        findings.add(finding.help("put its clients into `exempt`"));
    }
    let Some(own) = &one.on_limit else { return };
    let general = &config.responses.on_limit;
    let of_policy = policy.on_limit.over(general);
    responses::check_policy(own, &of_policy, config, findings);
    let actions = [
        own.action_over(&of_policy),
        policy.on_limit.action_over(general),
    ];
    let [own_forwards, policy_forwards] = actions.map(Action::forwards);
    if own_forwards != policy_forwards {
        let message = "a policy forwards all requests beyond its quota (`tag`, `route`), or none";
        let finding = conflict(own.node, message);
        findings.add(finding.help("use two policies: one that forwards, and one that refuses"));
    }
}

/// Checks the conditions of one list.
fn check_conditions<'a>(
    selections: impl Iterator<Item = &'a Selection>,
    config: &Config,
    findings: &Findings<'_>,
) {
    let conditions = selections.filter_map(|one| one.when.as_ref());
    for (number, when) in (1..).zip(conditions) {
        condition::check(when, when.node, config, findings);
        if number == MAX_CONDITIONAL + 1 {
            let message = format!("more than {MAX_CONDITIONAL} exceptions with `when` in one list");
            let finding = invalid(when.node, message).at_key();
            findings.add(finding.help(
                "requests try one after the other: join conditions with `any`, or name clients by `value`, `prefix` or `cidr`",
            ));
        }
    }
}

fn report_same<'a>(
    selections: impl Iterator<Item = (&'a Selection, NodeId)>,
    findings: &Findings<'_>,
) {
    let selections = selections.map(|(one, node)| (one.identity(), node));
    report_repeated(selections, REMOVE_ONE, findings, |_| {
        "the same exception twice".into()
    });
}

/// Checks that an exception has one selector, or a condition; `check_part` checks the key part of a value or
/// prefix.
fn check_selection(
    selection: &Selection,
    node: NodeId,
    findings: &Findings<'_>,
    check_part: impl FnOnce(),
) {
    let kinds = options!(selection, value, prefix, cidr);
    let none = missing(node, "no client is named");
    let none = none.help("name clients by `value`, `prefix` or `cidr`, or requests by `when`");
    if selection.when.is_some() && kinds.iter().all(|(_, node)| node.is_none()) {
        if let Some(part) = &selection.part {
            let message = "there is no `value` and no `prefix` of this part";
            findings.add(no_effect(part.node, message).help("add one, or remove `part`"));
        }
        return;
    }
    match exactly_one(&kinds, none, "make it two exceptions", findings) {
        Some("cidr") => {
            if let Some(part) = &selection.part {
                let message =
                    "a network is about the client's address, and about no part of the key";
                findings.add(no_effect(part.node, message).help("remove `part`"));
            }
        }
        Some(_) => check_part(),
        None => {}
    }
}

fn check_part(selection: &Selection, node: NodeId, policy: &Policy, findings: &Findings<'_>) {
    match (selection.part_of(policy), &selection.part) {
        (Some(part), _) => check_value(part, node, findings),
        (None, Some(part)) => {
            let message = format!("`{part}` isn't a part of this key");
            let finding = Finding::error(part.node, Code::UnknownName, message);
            let finding = finding.help("name a part of `key`");
            findings.add(finding.related(policy.key.node, "the key"));
        }
        (None, None) => {
            let message = "the key has several parts, and it is not said which one is meant";
            findings.add(missing(node, message).help("name it: `part: header:x-api-key`"));
        }
    }
}

/// Checks that a part has textual values.
fn check_value(part: &KeyPart, node: NodeId, findings: &Findings<'_>) {
    match part {
        KeyPart::ClientIp | KeyPart::ClientIpPrefix(_) => {
            let finding = conflict(node, "an address isn't a text");
            findings.add(finding.help("use `cidr`, which takes single addresses too"));
        }
        KeyPart::Constant => {
            let finding = conflict(node, "`constant` has no value");
            findings.add(finding.help("name another part of the key"));
        }
        _ => {}
    }
}
