//! Checks of costs: one source, and settlement only where units can be given back.

use crate::config::diagnostic::Code;
use crate::config::document::NodeId;
use crate::config::finding::{Finding, Findings};
use crate::config::located::Located;
use crate::config::schema::{
    AlgorithmName, Cost, Pointers, Policy, Reserve, StatedCost, StatedReserve, Units,
};

use crate::config::sections::algorithm;
use crate::config::validate::report_repeated;

pub(in crate::config) fn check(policy: &Policy, findings: &Findings<'_>) {
    if let Cost::Stated(stated) = &policy.cost.value {
        check_stated(stated, policy.cost.node, findings);
    }
    check_statuses(policy, findings);
    if policy.count.is_empty() && policy.count_own.get() {
        let message = "`count_own` without `count`: all responses are charged";
        let finding = Finding::error(policy.count_own.node, Code::NoEffect, message);
        findings.add(finding.help("say which statuses are charged: `count: [401, 403]`"));
    }
    if let (Some(node), Some(overflow)) = (settlement_node(policy), &policy.overflow) {
        let message = "what a response settles is charged to one bucket";
        let finding =
            Finding::error(node, Code::Conflict, message).help("remove it, or `overflow`");
        findings.add(finding.related(overflow.node, "the further bucket"));
    }
    if let Some(node) = settlement_node(policy) {
        check_algorithm(policy, node, findings);
    }
}

fn check_statuses(policy: &Policy, findings: &Findings<'_>) {
    let all: Vec<_> = policy.count.iter().collect();
    for (place, statuses) in all.iter().enumerate() {
        let before = &all[..place];
        if let Some(first) = before.iter().find(|first| first.overlaps(statuses)) {
            let message = match first.value == statuses.value {
                true => format!("the status {} twice", statuses.value),
                false => format!("`{}` and `{}` overlap", first.value, statuses.value),
            };
            let finding = Finding::error(statuses.node, Code::DuplicateName, message);
            findings.add(
                finding
                    .help("remove one of them")
                    .related(first.node, "it stands here first"),
            );
        }
    }
}

/// The setting that makes responses settle the cost.
pub(in crate::config) fn settlement_node(policy: &Policy) -> Option<NodeId> {
    let counted = policy.count.iter().next().map(|status| status.node);
    let stated = match &policy.cost.value {
        Cost::Constant(_) => None,
        Cost::Stated(stated) => response_sources(stated).into_iter().flatten().next(),
    };
    stated.or(counted)
}

/// The settings that name the response's statement of the cost.
fn response_sources(stated: &StatedCost) -> [Option<NodeId>; 4] {
    [
        stated.response_header.as_ref().map(|name| name.node),
        stated.response_trailer.as_ref().map(|name| name.node),
        stated.response_json.as_ref().map(|pointers| pointers.node),
        stated.response_bytes.as_ref().map(|unit| unit.node),
    ]
}

fn check_stated(stated: &StatedCost, node: NodeId, findings: &Findings<'_>) {
    let in_request = stated.header.as_ref().map(|name| name.node);
    let places = [in_request].into_iter().chain(response_sources(stated));
    let given: Vec<_> = places.flatten().collect();
    match given.as_slice() {
        [] => {
            let finding = Finding::error(node, Code::MissingKey, "nobody says what it is");
            findings.add(finding.help(
                "name who does: `header`, `response_header`, `response_trailer`, `response_json` or `response_bytes`",
            ));
        }
        [_] => {}
        [first, others @ ..] => {
            for other in others {
                let message = "a cost is said in one place";
                let finding = Finding::error(*other, Code::Conflict, message);
                findings.add(finding.related(*first, "another").help("keep one of them"));
            }
        }
    }
    if let Some(pointers) = &stated.response_json {
        check_pointers(pointers, findings);
    }
    let Some(reserve) = &stated.reserve else {
        return;
    };
    if let Some(header) = &stated.header {
        let message = "nothing is reserved where the request says what it costs";
        let finding =
            Finding::error(reserve.node, Code::NoEffect, message).help("remove `reserve`");
        findings.add(finding.related(header.node, "where it says so"));
        return;
    }
    match &reserve.value {
        Reserve::Constant(units) => {
            check_reserved((units.get(), reserve.node), &stated.max, findings);
        }
        Reserve::Stated(reserve) => check_stated_reserve(reserve, &stated.max, findings),
    }
}

/// A reservation must not exceed `max`.
fn check_reserved((units, node): (u32, NodeId), max: &Located<Units>, findings: &Findings<'_>) {
    if units > max.get() {
        let message = "more is reserved than ever counts";
        let finding = Finding::error(node, Code::Conflict, message);
        let finding = finding.related(max.node, "the most that counts");
        findings.add(finding.help("lower `reserve`, or raise `max`"));
    }
}

/// Checks a reservation that the request states.
fn check_stated_reserve(reserve: &StatedReserve, max: &Located<Units>, findings: &Findings<'_>) {
    let most = reserve.max.as_ref().unwrap_or(max);
    if let Some(own) = &reserve.max {
        check_reserved((own.get(), own.node), max, findings);
    }
    check_reserved(
        (reserve.default.get(), reserve.default.node),
        most,
        findings,
    );
}

fn check_pointers(pointers: &Located<Pointers>, findings: &Findings<'_>) {
    let all = &pointers.0;
    if all.is_empty() || all.len() > 4 {
        let message = format!("{} JSON pointers, where there can be 1 to 4", all.len());
        let finding = Finding::error(pointers.node, Code::InvalidValue, message);
        findings.add(finding.help("name the numbers whose sum is the cost: `/usage/total_tokens`"));
    }
    let texts = all
        .iter()
        .map(|pointer| (pointer.to_string(), pointer.node));
    report_repeated(texts, findings, |text| {
        (format!("the pointer `{text}` twice"), "remove one of them")
    });
}

/// Reports algorithms that cannot give back units, or charge them later.
fn check_algorithm(policy: &Policy, node: NodeId, findings: &Findings<'_>) {
    let parts = policy.precision.as_ref().map_or(1, |parts| parts.get());
    let (message, help) = match policy.algorithm.value {
        AlgorithmName::Concurrency => (
            "what is in flight comes back by itself, whatever the response",
            "make it a policy of its own, with a quota",
        ),
        AlgorithmName::LeakyBucket => (
            "whose turn is when is settled before there is a response",
            "use another `algorithm`",
        ),
        AlgorithmName::SlidingWindow if parts > 1 && !algorithm::counts_debt(policy) => (
            "so many counters of so large a quota cannot be charged beyond it",
            "count in a coarser unit, or lower `precision`",
        ),
        _ => return,
    };
    let finding = Finding::error(node, Code::Conflict, message).help(help);
    findings.add(finding.related(policy.algorithm.node, "the algorithm"));
}
