//! `cost` of a policy: the units of a request, constant or stated by the request or its response,
//! and their settlement.

use std::sync::Arc;

use crate::config::sections::algorithm;
use crate::config::sections::prelude::*;
use crate::rules::{self, CostSource, CountedResponses, SettlementRule};

by_form! {
    /// Units that a request takes.
    pub enum Cost("Cost", "a number of units, or where a request or its response says it: `{ header: x-cost, max: 100 }`") {
        /// So many units.
        Constant(Units) = "scalar",
        /// Stated by the request or its response.
        Stated(Box<StatedCost>) = "mapping",
    }
}

/// The cost of a request, as it says itself, or as its response does.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "ToldCost")]
#[schemars(extend("oneOf" = [{ "required": ["header"] }, { "required": ["body"] }, { "required": ["response_header"] }, { "required": ["response_trailer"] }, { "required": ["response_json"] }, { "required": ["response_bytes"] }]))]
pub struct StatedCost {
    /// The request's field with a whole number of units; without it a request takes 1, and with
    /// anything else it is answered 400.
    pub header: Option<Located<FieldName>>,
    /// The whole number of units in a JSON body, as a JSON pointer, instead of `header`: for routes
    /// with `read_body`. A longer body costs `max`.
    pub body: Option<Located<Pointer>>,
    /// Units of a request that states none by `header` or `body`, 1 to 4294967295; 1 unless given.
    pub default: Option<Located<Units>>,
    /// The response's field with a whole number of units; without it, or with anything else, the
    /// request has taken its `reserve`.
    pub response_header: Option<Located<FieldName>>,
    /// The field of the response's trailers with a whole number of units, as behind a stream.
    pub response_trailer: Option<Located<FieldName>>,
    /// Where a JSON response states a whole number of units: a JSON pointer, `/usage/total_tokens`,
    /// or up to 4, whose values are added. Of an event stream, the last event that has it counts.
    pub response_json: Option<Located<Pointers>>,
    /// Bytes of the response's body that are a unit, `1B` to `1024GiB`; part of as many is one,
    /// too.
    pub response_bytes: Option<Located<UnitSize>>,
    /// Units that are charged until the response says what it was, 1 to 4294967295; 1 unless given.
    /// Or the field of the request that says it: `{ header: x-estimate, default: 500 }`.
    pub reserve: Option<Located<Reserve>>,
    /// The most that counts, 1 to 4294967295.
    pub max: Located<Units>,
}

by_form! {
    /// Units that a request reserves.
    pub enum Reserve("Reserve", "a number of units, or the field of the request that says it: `{ header: x-estimate, default: 500 }`") {
        /// So many units for every request.
        Constant(Units) = "scalar",
        /// Stated by the request.
        Stated(StatedReserve) = "mapping",
    }
}

impl StatedCost {
    /// Units that a request reserves if it states none itself.
    pub fn reserved(&self) -> u32 {
        match self.reserve.as_deref() {
            None => 1,
            Some(Reserve::Constant(units)) => units.get(),
            Some(Reserve::Stated(stated)) => stated.default.get(),
        }
    }
}

/// Units that a request reserves, as it says itself.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "ToldReserve")]
pub struct StatedReserve {
    /// The request's field with a whole number of units; with anything else the request is answered
    /// 400.
    pub header: Located<FieldName>,
    /// Units that a request without the field reserves, 1 to 4294967295; 1 unless given.
    #[serde(default)]
    pub default: Located<Units>,
    /// The most that counts of the field, 1 to 4294967295; the cost's `max` unless given.
    pub max: Option<Located<Units>>,
}

/// Where a document states a number: one place, or several whose numbers are added.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Pointers(#[schemars(length(min = 1, max = 4))] pub Vec<Located<Pointer>>);

/// Bytes that are charged as one unit.
pub type UnitSize = Size<1, { 1 << 40 }>;

pub(crate) fn check(policy: &Policy, findings: &Findings<'_>) {
    if let Cost::Stated(stated) = &policy.cost.value {
        check_stated(stated, policy.cost.node, findings);
    }
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
    match &policy.cost.value {
        Cost::Constant(_) => None,
        Cost::Stated(stated) => stated.body.given(),
    }
}

/// The settings that name the statement of the cost: the request's first.
fn sources(stated: &StatedCost) -> [(&'static str, Option<NodeId>); 6] {
    options!(
        stated,
        header,
        body,
        response_header,
        response_trailer,
        response_json,
        response_bytes
    )
}

fn check_stated(stated: &StatedCost, node: NodeId, findings: &Findings<'_>) {
    let help = "name the source: `header`, `body`, `response_header`, `response_trailer`, `response_json` or `response_bytes`";
    let none = missing(node, "nothing says what a request costs").help(help);
    exactly_one(&sources(stated), none, "keep one of them", findings);
    if let Some(pointers) = &stated.response_json {
        check_pointers(pointers, findings);
    }
    let of_request = stated.header.given().or(stated.body.given());
    if let Some(default) = &stated.default {
        if of_request.is_none() {
            let message = "the request doesn't say what it costs";
            findings.add(no_effect(default.node, message).help("write `reserve` instead"));
        }
        if default.get() > stated.max.get() {
            let finding = conflict(default.node, "the default is above the most that counts");
            let finding = finding.related(stated.max.node, "the most");
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
    match &reserve.value {
        Reserve::Constant(value) => {
            let (value, node) = (*value, reserve.node);
            check_reserved(&Located { value, node }, &stated.max, findings);
        }
        Reserve::Stated(reserve) => {
            let most = reserve.max.as_ref().unwrap_or(&stated.max);
            check_reserved(most, &stated.max, findings);
            check_reserved(&reserve.default, most, findings);
        }
    }
}

/// A reservation must not exceed `max`.
fn check_reserved(units: &Located<Units>, max: &Located<Units>, findings: &Findings<'_>) {
    if units.get() > max.get() {
        let finding = conflict(units.node, "more is reserved than ever counts");
        let finding = finding.related(max.node, "the most that counts");
        findings.add(finding.help("lower `reserve`, or raise `max`"));
    }
}

fn check_pointers(pointers: &Located<Pointers>, findings: &Findings<'_>) {
    let all = &pointers.0;
    if all.is_empty() || all.len() > 4 {
        let message = format!("{} JSON pointers, where there can be 1 to 4", all.len());
        let finding = invalid(pointers.node, message);
        findings.add(finding.help("name the numbers whose sum is the cost: `/usage/total_tokens`"));
    }
    report_twice(all, findings);
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

/// The charge at admission.
pub(crate) fn cost(written: &Cost) -> rules::Cost {
    match written {
        Cost::Constant(cost) => rules::Cost::Constant(cost.get()),
        Cost::Stated(stated) => {
            let header = stated.header.as_ref();
            let header = header.map(|name| rules::KeyPart::Header(name.get().clone()));
            let body = stated.body.as_ref();
            let body = body.map(|pointer| rules::KeyPart::Body(Arc::clone(pointer.get())));
            match header.or(body) {
                Some(part) => rules::Cost::Stated {
                    from: vec![part],
                    default: stated.default.as_ref().map_or(1, |units| units.get()),
                    max: stated.max.get(),
                },
                None => reserve(stated),
            }
        }
    }
}

/// The reservation until the response settles the cost.
fn reserve(stated: &StatedCost) -> rules::Cost {
    match stated.reserve.as_deref() {
        Some(Reserve::Stated(reserve)) => rules::Cost::Stated {
            from: vec![rules::KeyPart::Header(reserve.header.get().clone())],
            default: reserve.default.get(),
            max: reserve.max.as_ref().unwrap_or(&stated.max).get(),
        },
        _ => rules::Cost::Constant(stated.reserved()),
    }
}

/// The settlement by responses, if any.
pub(crate) fn settlement(policy: &Policy) -> Option<SettlementRule> {
    let (by, max, unreserved, least) = match &policy.cost.value {
        Cost::Constant(cost) => {
            let unreserved = (!policy.count_reserve.get()).then(|| cost.get());
            (CostSource::Reserve, u32::MAX, unreserved, 0)
        }
        Cost::Stated(stated) => {
            let max = stated.max.get();
            let least = match stated.reserve.as_deref() {
                Some(Reserve::Stated(reserve)) => reserve.default.get().min(max),
                _ => 0,
            };
            (settled_by(stated), max, None, least)
        }
    };
    let statuses = policy.count.iter().flat_map(|statuses| statuses.range());
    let statuses: Vec<_> = statuses.collect();
    let counted = (!statuses.is_empty()).then(|| CountedResponses {
        statuses,
        own: policy.count_own.get(),
    });
    let settles = counted.is_some() || by != CostSource::Reserve;
    settles.then_some(SettlementRule {
        counted,
        by,
        max,
        unreserved,
        least,
    })
}

fn settled_by(stated: &StatedCost) -> CostSource {
    if let Some(name) = &stated.response_header {
        CostSource::Header(name.get().clone())
    } else if let Some(name) = &stated.response_trailer {
        CostSource::Trailer(name.get().clone())
    } else if let Some(pointers) = &stated.response_json {
        let pointers = pointers.0.iter().map(|pointer| Arc::clone(pointer.get()));
        CostSource::Json(pointers.collect())
    } else if let Some(unit) = &stated.response_bytes {
        CostSource::Bytes(unit.get())
    } else {
        CostSource::Reserve
    }
}
