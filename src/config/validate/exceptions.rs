//! Exceptions of policies: whom they are about, and that nobody is named twice.

use super::{algorithms, report_repeated};
use crate::config::diagnostic::Code;
use crate::config::document::NodeId;
use crate::config::finding::{Finding, Findings};
use crate::config::schema::{Config, Policy, Selection};
use crate::config::value::KeyPart;

pub(super) fn check(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    for exemption in policy.exempt.iter() {
        check_selection(exemption.selection(), exemption.node, policy, findings);
    }
    for one in policy.overrides.iter() {
        check_selection(one.selection(), one.node, policy, findings);
        algorithms::check(&one.applied_to(policy), one.node, config, findings);
    }
    if let Some(candidate) = &policy.candidate {
        algorithms::check(&candidate.beside(policy), candidate.node, config, findings);
    }
    let exempt = policy.exempt.iter();
    let exempt = exempt.map(|one| (one.selection().to_string(), one.node));
    report_repeated(exempt, findings, twice);
    let overrides = policy.overrides.iter();
    let overrides = overrides.map(|one| (one.selection().to_string(), one.node));
    report_repeated(overrides, findings, twice);
}

fn twice(who: &String) -> (String, &'static str) {
    (
        format!("an exception of `{who}` twice"),
        "remove one of them",
    )
}

fn check_selection(who: Selection<'_>, node: NodeId, policy: &Policy, findings: &Findings<'_>) {
    let kinds = [
        who.value.map(|value| value.node),
        who.prefix.map(|prefix| prefix.node),
        who.cidr.map(|cidr| cidr.node),
    ];
    let given: Vec<_> = kinds.into_iter().flatten().collect();
    match given.as_slice() {
        [] => {
            let finding = Finding::error(node, Code::MissingKey, "nobody is named");
            findings.add(finding.help("say who: `value`, `prefix` or `cidr`"));
        }
        [_] => check_part(who, node, policy, findings),
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

fn check_part(who: Selection<'_>, node: NodeId, policy: &Policy, findings: &Findings<'_>) {
    if who.cidr.is_some() {
        if let Some(part) = who.part {
            let message = "a network is about the client's address, and about no part of the key";
            findings.add(Finding::error(part.node, Code::NoEffect, message).help("remove `part`"));
        }
        return;
    }
    match (who.part_of(policy), who.part) {
        (Some(KeyPart::ClientIp | KeyPart::ClientIpPrefix(_)), _) => {
            let finding = Finding::error(node, Code::Conflict, "an address is no text");
            findings.add(finding.help("use `cidr`, which takes single addresses too"));
        }
        (Some(KeyPart::Constant), _) => {
            let finding = Finding::error(node, Code::Conflict, "`constant` has no value");
            findings.add(finding.help("name another part of the key"));
        }
        (Some(_), _) => {}
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
