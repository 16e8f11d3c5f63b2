//! Checks of exceptions: each selects one kind of clients, and none twice.

use crate::config::diagnostic::Code;
use crate::config::document::NodeId;
use crate::config::finding::{Finding, Findings};
use crate::config::schema::{Config, Policy, Selection};
use crate::config::sections::algorithm;
use crate::config::validate::report_repeated;
use crate::config::value::KeyPart;

/// Checks the exemptions from all limits, which have no key to name parts of.
pub(in crate::config) fn check_top_level(config: &Config, findings: &Findings<'_>) {
    for exemption in config.exempt.iter() {
        let selection = exemption.selection();
        check_selection(selection, exemption.node, findings, || {
            match selection.part.map(|part| (part, &part.value)) {
                Some((part, KeyPart::Capture(_))) => {
                    let message = "a captured segment is of one route's path";
                    let finding = Finding::error(part.node, Code::Conflict, message);
                    findings.add(finding.help("put it into the `exempt` of a policy"));
                }
                Some((_, part)) => check_value(part, exemption.node, findings),
                None => {
                    let message = "it is not said what this is a value of";
                    let finding = Finding::error(exemption.node, Code::MissingKey, message);
                    findings.add(finding.help("name it: `part: header:x-api-key`"));
                }
            }
        });
    }
    let all = config.exempt.iter();
    let all = all.map(|one| (one.selection().to_string(), one.node));
    report_repeated(all, findings, twice);
}

pub(in crate::config) fn check(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    for exemption in policy.exempt.iter() {
        let selection = exemption.selection();
        check_selection(selection, exemption.node, findings, || {
            check_part(selection, exemption.node, policy, findings);
        });
    }
    if !policy.overrides.is_empty() {
        let base = policy.without_exceptions();
        for one in policy.overrides.iter() {
            let selection = one.selection();
            check_selection(selection, one.node, findings, || {
                check_part(selection, one.node, policy, findings);
            });
            algorithm::check(&one.applied_to(&base), one.node, config, findings);
        }
    }
    if let Some(candidate) = &policy.candidate {
        algorithm::check(
            &candidate.applied_to(policy),
            candidate.node,
            config,
            findings,
        );
    }
    let exempt = policy.exempt.iter();
    let exempt = exempt.map(|one| (one.selection().to_string(), one.node));
    report_repeated(exempt, findings, twice);
    let overrides = policy.overrides.iter();
    let overrides = overrides.map(|one| (one.selection().to_string(), one.node));
    report_repeated(overrides, findings, twice);
}

fn twice(selection: &String) -> (String, &'static str) {
    (
        format!("an exception of `{selection}` twice"),
        "remove one of them",
    )
}

/// Checks that an exception has one selector; `check_part` checks the key part of a value or
/// prefix.
fn check_selection(
    selection: Selection<'_>,
    node: NodeId,
    findings: &Findings<'_>,
    check_part: impl FnOnce(),
) {
    let kinds = [
        selection.value.map(|value| value.node),
        selection.prefix.map(|prefix| prefix.node),
        selection.cidr.map(|cidr| cidr.node),
    ];
    let given: Vec<_> = kinds.into_iter().flatten().collect();
    match given.as_slice() {
        [] => {
            let finding = Finding::error(node, Code::MissingKey, "nobody is named");
            findings.add(finding.help("say who: `value`, `prefix` or `cidr`"));
        }
        [_] if selection.cidr.is_some() => {
            if let Some(part) = selection.part {
                let message =
                    "a network is about the client's address, and about no part of the key";
                let finding = Finding::error(part.node, Code::NoEffect, message);
                findings.add(finding.help("remove `part`"));
            }
        }
        [_] => check_part(),
        [first, others @ ..] => {
            for other in others {
                let message = "an exception is about a value, a prefix or a network";
                let finding = Finding::error(*other, Code::Conflict, message);
                findings.add(
                    finding
                        .related(*first, "another")
                        .help("make it two exceptions"),
                );
            }
        }
    }
}

fn check_part(selection: Selection<'_>, node: NodeId, policy: &Policy, findings: &Findings<'_>) {
    match (selection.part_of(policy), selection.part) {
        (Some(part), _) => check_value(part, node, findings),
        (None, Some(part)) => {
            let message = format!("`{part}` is no part of this key");
            let finding = Finding::error(part.node, Code::UnknownName, message);
            findings.add(
                finding
                    .help("name a part of `key`")
                    .related(policy.key.node, "the key"),
            );
        }
        (None, None) => {
            let message = "the key has several parts, and it is not said which one is meant";
            let finding = Finding::error(node, Code::MissingKey, message);
            findings.add(finding.help("name it: `part: header:x-api-key`"));
        }
    }
}

/// Checks that a part has textual values.
fn check_value(part: &KeyPart, node: NodeId, findings: &Findings<'_>) {
    match part {
        KeyPart::ClientIp | KeyPart::ClientIpPrefix(_) => {
            let finding = Finding::error(node, Code::Conflict, "an address is no text");
            findings.add(finding.help("use `cidr`, which takes single addresses too"));
        }
        KeyPart::Constant => {
            let finding = Finding::error(node, Code::Conflict, "`constant` has no value");
            findings.add(finding.help("name another part of the key"));
        }
        _ => {}
    }
}
