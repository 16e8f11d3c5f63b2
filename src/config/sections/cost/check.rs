//! Checks of costs: their settings fit together, and to the policy.

use super::{Pointers, StatedCost, StatedReserve};
use crate::config::sections::algorithm;
use crate::config::sections::prelude::*;
use crate::proxy::answers::limit_headers::QuotaUnit;
use crate::rules::UsageApi;

pub(crate) fn check(policy: &Policy, findings: &Findings<'_>) {
    if let Cost::Stated(stated) = &policy.cost.value {
        check_stated(stated, policy.cost.node, findings);
    }
    check_unit(policy, findings);
    check_statuses(policy, findings);
    if policy.count.is_empty() && policy.count_own.get() {
        let message = "`count_own` without `count`: all responses are charged";
        let finding = no_effect(policy.count_own.node, message);
        findings.add(finding.help("say which statuses are charged: `count: [401, 403]`"));
    }
    check_unreserved(policy, findings);
    if let (Some(node), Some(overflow)) = (settlement_node(policy), &policy.overflow) {
        let message = "what a response settles is charged to one bucket";
        let finding = conflict(node, message).help("remove it, or `overflow`");
        findings.add(finding.related(overflow.node, "the further bucket"));
    }
    if let Some(node) = settlement_node(policy) {
        check_algorithm(policy, node, findings);
    }
}

/// Only responses that count charge an unreserved cost, which is known beforehand.
fn check_unreserved(policy: &Policy, findings: &Findings<'_>) {
    let (code, message, help) = match &policy.cost.value {
        _ if policy.count_reserve.get() => return,
        _ if policy.count.is_empty() => (
            Code::NoEffect,
            "`count_reserve` without `count`: all requests are charged",
            "say which statuses are charged: `count: [401, 403]`",
        ),
        Cost::Stated(_) => (
            Code::Conflict,
            "a cost that is stated is reserved",
            "use a constant `cost`, or remove `count_reserve`",
        ),
        Cost::Constant(_) => return,
    };
    findings.add(Finding::error(policy.count_reserve.node, code, message).help(help));
}

fn check_statuses(policy: &Policy, findings: &Findings<'_>) {
    let all: Vec<_> = policy.count.iter().collect();
    for (place, statuses) in all.iter().enumerate() {
        let before = &all[..place];
        if let Some(first) = before.iter().find(|first| first.overlaps(statuses)) {
            let message = if first.value == statuses.value {
                format!("the status {statuses} twice")
            } else {
                format!("`{}` and `{}` overlap", first.value, statuses.value)
            };
            let finding = Finding::error(statuses.node, Code::DuplicateName, message);
            let finding = finding.help("remove one of them");
            findings.add(finding.related(first.node, "it stands here first"));
        }
    }
}

/// The setting that makes responses settle the cost.
pub(crate) fn settlement_node(policy: &Policy) -> Option<NodeId> {
    let counted = policy.count.iter().next().map(|status| status.node);
    let stated = match &policy.cost.value {
        Cost::Constant(_) => None,
        Cost::Stated(stated) => sources(stated)[2..].iter().find_map(|(_, node)| *node),
    };
    stated.or(counted)
}

/// The place where a cost reads the body.
pub(crate) fn body_node(policy: &Policy) -> Option<NodeId> {
    let Cost::Stated(stated) = &policy.cost.value else {
        return None;
    };
    let parts = match stated.reserve.as_deref() {
        Some(Reserve::Stated(reserve)) => &reserve.from[..],
        _ => &[],
    };
    let mut parts = parts.iter().chain(&stated.model);
    let of_part = || Some(parts.find(|part| part.is_from_body())?.node);
    let usage = &stated.include_usage;
    let usage = usage.get().then_some(usage.node);
    stated.body.given().or(usage).or_else(of_part)
}

/// The settings that name the statement of the cost: the request's first.
fn sources(stated: &StatedCost) -> [(&'static str, Option<NodeId>); 7] {
    options!(
        stated,
        header,
        body,
        response_header,
        response_trailer,
        response_json,
        response_bytes,
        settle
    )
}

fn check_stated(stated: &StatedCost, node: NodeId, findings: &Findings<'_>) {
    let help = "name the source: `settle`, `header`, `body`, `response_header`, `response_trailer`, `response_json` or `response_bytes`";
    let none = missing(node, "nothing says what a request costs").help(help);
    let source = exactly_one(&sources(stated), none, "keep one of them", findings);
    if let (Some(source), None, None) = (source, &stated.settle, &stated.max) {
        let message = format!("`max` is missing beside `{source}`");
        findings.add(missing(node, message).help("say what counts at most: `max: 200000`"));
    }
    if let Some(pointers) = &stated.response_json {
        check_pointers(pointers, findings);
    }
    check_prices(stated, findings);
    let asks = stated.include_usage.get();
    if asks && stated.settle.as_deref() != Some(&UsageApi::OpenAi) {
        let message = "only streams of OpenAI's API have to be asked for their usage";
        let finding = conflict(stated.include_usage.node, message);
        findings.add(finding.help("remove `include_usage`, or use `settle: openai`"));
    }
    let of_request = stated.header.given().or(stated.body.given());
    if let Some(default) = &stated.default {
        if of_request.is_none() {
            let message = "the request doesn't say what it costs";
            findings.add(no_effect(default.node, message).help("write `reserve` instead"));
        }
        if let Some(max) = stated.max.as_ref().filter(|max| default.get() > max.get()) {
            let finding = conflict(default.node, "the default is above the most that counts");
            let finding = finding.related(max.node, "the most");
            findings.add(finding.help("lower `default`, or raise `max`"));
        }
    }
    let Some(reserve) = &stated.reserve else {
        return;
    };
    if let Some(node) = of_request {
        let message = "nothing is reserved where the request says what it costs";
        let finding = no_effect(reserve.node, message).help("remove `reserve`");
        findings.add(finding.related(node, "where it says so"));
        return;
    }
    let bound = stated.max.as_ref().filter(|_| stated.prices.is_none());
    match &reserve.value {
        Reserve::Constant(value) => {
            let (value, node) = (*value, reserve.node);
            check_reserved(&Located { value, node }, bound, findings);
        }
        Reserve::Stated(own) => {
            check_parts(stated, own, reserve.node, findings);
            let most = own.max.as_ref().or(bound);
            if let Some(max) = &own.max {
                check_reserved(max, bound, findings);
            }
            check_reserved(&own.default, most, findings);
        }
    }
}

/// Prices need tokens, and parts of requests that name models need prices.
fn check_prices(stated: &StatedCost, findings: &Findings<'_>) {
    match (&stated.prices, &stated.model) {
        (Some(prices), _) if stated.settle.is_none() => {
            let finding = conflict(prices.node, "only tokens by `settle` have prices");
            findings.add(finding.help("use `settle: openai`, `anthropic` or `gemini`"));
        }
        (None, Some(model)) => {
            let finding = no_effect(model.node, "`model` without `prices`");
            findings.add(finding.help("name the table of prices: `prices: prices.csv`"));
        }
        _ => {}
    }
    if let Some(model) = &stated.model
        && !(model.is_claimed() || matches!(model.value, KeyPart::Capture(_)))
    {
        let message = format!("`{}` doesn't name a model", model.value);
        let finding = conflict(model.node, message);
        findings.add(finding.help("use `body:/model`, `header:NAME` or `path:NAME`"));
    }
}

/// A reservation is in a field, or among parts that bound tokens.
fn check_parts(
    stated: &StatedCost,
    reserve: &StatedReserve,
    node: NodeId,
    findings: &Findings<'_>,
) {
    let from = (!reserve.from.is_empty()).then_some(reserve.from.node);
    let sources = [("header", reserve.header.given()), ("from", from)];
    let none = missing(node, "nothing says what a request reserves");
    let help = "name the field, `header: x-estimate`, or the parts: `from: [body:/max_tokens]`";
    exactly_one(&sources, none.help(help), "keep one of them", findings);
    if let (Some(from), None) = (from, &stated.settle) {
        let finding = conflict(from, "tokens are known only of costs by `settle`");
        findings.add(finding.help("use `settle`, or name the field with `header`"));
    }
    if let (Some(prompt), Some(header)) = (&reserve.prompt, &reserve.header) {
        let finding = no_effect(prompt.node, "the field says what the request reserves");
        let finding = finding.related(header.node, "the field");
        findings.add(finding.help("remove `prompt`, or use `from`"));
    }
    for part in reserve.from.iter().filter(|part| !part.is_claimed()) {
        let finding = conflict(part.node, format!("`{}` has no number", part.value));
        findings.add(finding.help("use `body:/max_tokens`, `header:NAME` or `query:NAME`"));
    }
    report_twice(&reserve.from, findings);
}

/// A reservation must not exceed `max`.
fn check_reserved(units: &Located<Units>, max: Option<&Located<Units>>, findings: &Findings<'_>) {
    let Some(max) = max.filter(|max| units.get() > max.get()) else {
        return;
    };
    let finding = conflict(units.node, "more is reserved than ever counts");
    let finding = finding.related(max.node, "the most that counts");
    findings.add(finding.help("lower `reserve`, or raise `max`"));
}

fn check_pointers(pointers: &Located<Pointers>, findings: &Findings<'_>) {
    let all = &pointers.0;
    if all.is_empty() || all.len() > 8 {
        let message = format!("{} JSON pointers, where there can be 1 to 8", all.len());
        let finding = invalid(pointers.node, message);
        findings.add(finding.help("name the numbers whose sum is the cost: `/usage/total_tokens`"));
    }
    let pointers = all.iter().map(|place| Located {
        value: place.pointer().clone(),
        node: place.node,
    });
    report_twice(&pointers.collect::<Vec<_>>(), findings);
}

/// The units in a policy that are written in dollars.
fn dollars(policy: &Policy) -> Vec<NodeId> {
    let overrides = policy.overrides.iter().map(|one| &one.amounts);
    let candidate = policy.candidate.iter().map(|one| &one.amounts);
    let all = std::iter::once(&policy.amounts).chain(overrides);
    let mut units: Vec<_> = all
        .chain(candidate)
        .flat_map(|one| one.burst.into_iter().chain(one.capacity))
        .collect();
    match &policy.cost.value {
        Cost::Constant(value) => units.push(Located {
            value: *value,
            node: policy.cost.node,
        }),
        Cost::Stated(stated) => {
            units.extend(stated.max.into_iter().chain(stated.default));
            units.extend(stated.reserved_units());
        }
    }
    let units = units.into_iter().filter(|one| one.is_money());
    let soft = policy.soft_limits.iter().map(|soft| soft.above);
    let soft = soft.filter(|above| above.is_money());
    units
        .map(|one| one.node)
        .chain(soft.map(|above| above.node))
        .collect()
}

/// The unit of a quota is that of its costs.
fn check_unit(policy: &Policy, findings: &Findings<'_>) {
    let is_money = policy.unit.value == QuotaUnit::Usd;
    for quota in policy
        .quotas()
        .filter(|one| one.largest().is_money() != is_money)
    {
        let (message, help) = if is_money {
            (
                "the quota of a policy in dollars isn't in dollars",
                "write `quota: $500/1mo`",
            )
        } else {
            (
                "a quota in dollars, of a policy that isn't",
                "set `unit: usd`",
            )
        };
        let finding = conflict(quota.node, message).help(help);
        findings.add(finding.related(policy.unit.node, "the unit"));
    }
    for node in dollars(policy).into_iter().filter(|_| !is_money) {
        let finding = conflict(node, "dollars, of a policy that isn't in dollars");
        let finding = finding.help("set `unit: usd`, or write a number of units");
        findings.add(finding.related(policy.unit.node, "the unit"));
    }
    let Cost::Stated(stated) = &policy.cost.value else {
        return;
    };
    let mut tokens = stated.reserved_units().filter(|_| stated.prices.is_some());
    if let Some(units) = tokens.find(|units| units.is_money()) {
        let finding = conflict(units.node, "a reservation is in tokens, which have prices");
        findings.add(finding.help("write how many: `default: 1000`"));
    }
    match (&stated.prices, &stated.settle) {
        (Some(prices), _) if !is_money => {
            let finding = conflict(prices.node, "prices are in dollars, and the quota isn't");
            findings.add(finding.help("set `unit: usd`, and write the quota as `$500/1mo`"));
        }
        (None, Some(settle)) if is_money => {
            let finding = conflict(settle.node, "tokens without prices aren't dollars");
            findings.add(finding.help("name the table of prices: `prices: prices.csv`"));
        }
        _ => {}
    }
}

/// Reports algorithms that cannot give back units, or charge them later.
fn check_algorithm(policy: &Policy, node: NodeId, findings: &Findings<'_>) {
    let (message, help) = match policy.algorithm.value {
        AlgorithmName::Concurrency => (
            "units in flight return by themselves, whatever the response says",
            "make it a policy of its own, with a quota",
        ),
        AlgorithmName::LeakyBucket => (
            "the turn of a request is fixed before there is a response",
            "use another `algorithm`",
        ),
        _ if policy.has_counters() && !algorithm::counts_debt(policy) => (
            "this many counters of a quota this large can't be charged beyond it",
            "count in a coarser unit, or lower `precision`",
        ),
        _ => return,
    };
    let finding = conflict(node, message).help(help);
    findings.add(finding.related(policy.algorithm.node, "the algorithm"));
}
