//! Exceptions of a policy: exemptions, overrides, and a candidate in shadow.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::checks::{exactly_one, report_repeated};
use crate::config::schema::{Amounts, Config, Mode, OnMissingKey, Policy, Zone};
use crate::config::sections::algorithm;
use crate::config::value::{Cidr, Hidden, KeyPart, Text, TimeZone};
use crate::config::{Code, Finding, Findings, Located, NodeId, node_of};
use crate::rules::{self, Exceptions, Selector, Selectors};

/// An item of `exempt`: to whom the policy does not apply, or no policy where it stands at the top.
/// Overrides select clients with the same options.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Exemption")]
#[schemars(extend("oneOf" = [{ "required": ["value"] }, { "required": ["prefix"] }, { "required": ["cidr"] }]))]
pub struct Selection {
    /// The part of the key that `value` or `prefix` is about; needed where the key has several, and
    /// at the top.
    pub part: Option<Located<KeyPart>>,
    /// Clients with this value in that part.
    pub value: Option<Located<Hidden<Text>>>,
    /// Clients whose value in that part starts so.
    pub prefix: Option<Located<Hidden<Text>>>,
    /// Clients with this address, or in this network, whatever the key.
    pub cidr: Option<Located<Cidr>>,
}

/// An item of `overrides`: clients with another quota.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("anyOf" = [{ "required": ["quota"] }, { "required": ["capacity", "refill"] }, { "required": ["max"] }, { "required": ["time_zone"] }]))]
pub struct Override {
    /// The clients.
    #[serde(rename = "$selection")]
    #[schemars(flatten)]
    pub selection: Selection,
    /// The amounts, in place of the policy's.
    #[serde(rename = "$amounts")]
    #[schemars(flatten)]
    pub amounts: Amounts,
    /// Where days, weeks, months and years begin, instead of the policy's `time_zone`: the IANA
    /// name of a time zone. With it the quota is the policy's unless given.
    pub time_zone: Option<Located<TimeZone>>,
}

/// `candidate` of a policy: a quota that is tried out beside its own.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("anyOf" = [{ "required": ["quota"] }, { "required": ["capacity", "refill"] }, { "required": ["max"] }]))]
pub struct Candidate {
    /// The amounts, in place of the policy's.
    #[serde(rename = "$amounts")]
    #[schemars(flatten)]
    pub amounts: Amounts,
}

impl Candidate {
    /// The policy in shadow that tries the candidate out. It exempts clients with an override.
    pub fn applied_to(&self, policy: &Policy) -> Policy {
        let overridden = policy.overrides.iter();
        let overridden = overridden.map(|one| Located::from(one.selection.clone()));
        let exempt = policy.exempt.iter().cloned().chain(overridden);
        Policy {
            amounts: self.amounts.clone(),
            mode: Mode::Shadow.into(),
            percent: None,
            exempt: exempt.collect::<Vec<_>>().into(),
            overrides: Vec::new().into(),
            candidate: None,
            penalty: None,
            ..policy.clone()
        }
    }
}

impl Override {
    /// The policy for the selected clients.
    pub fn applied_to(&self, policy: &Policy) -> Policy {
        let zone = self.time_zone.as_ref();
        let time_zone = zone.map(|zone| Located {
            value: Zone::Named(zone.value.clone()),
            node: zone.node,
        });
        let time_zone = time_zone.or_else(|| policy.time_zone.clone());
        if zone.is_some() && self.amounts.is_empty() {
            return Policy {
                time_zone,
                ..policy.clone()
            };
        }
        Policy {
            amounts: self.amounts.clone(),
            time_zone,
            ..policy.clone()
        }
    }
}

impl Selection {
    /// A text that tells it apart from others. It has the value or the prefix, and so is never shown.
    pub(in crate::config) fn identity(&self) -> String {
        let part = self.part.as_ref().map(|part| format!("{part} "));
        let clients = match (&self.value, &self.prefix, &self.cidr) {
            (Some(value), ..) => format!("value {}", value.reveal()),
            (None, Some(prefix), _) => format!("prefix {}", prefix.reveal()),
            (None, None, Some(cidr)) => format!("cidr {cidr}"),
            (None, None, None) => "nothing".to_owned(),
        };
        part.unwrap_or_default() + &clients
    }

    /// The key part of `value` or `prefix`: the named one, or the only part of the key.
    fn part_of<'p>(&'p self, policy: &'p Policy) -> Option<&'p KeyPart> {
        let named = self.part.as_ref().map(|part| &part.value);
        let mut parts = policy.key.0.iter().map(|part| &part.value);
        match named {
            Some(named) => parts.find(|part| *part == named),
            None => parts.next().filter(|_| parts.next().is_none()),
        }
    }
}

/// Checks the exemptions from all limits, which have no key to name parts of.
pub(in crate::config) fn check_top_level(config: &Config, findings: &Findings<'_>) {
    for exemption in config.exempt.iter() {
        check_selection(exemption, exemption.node, findings, || {
            match exemption.part.as_ref().map(|part| (part, &part.value)) {
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
    report_same(all.map(|one| (&one.value, one.node)), findings);
}

pub(in crate::config) fn check(policy: &Policy, config: &Config, findings: &Findings<'_>) {
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
            algorithm::check(&one.applied_to(&base), one.node, config, findings);
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

fn report_same<'a>(
    selections: impl Iterator<Item = (&'a Selection, NodeId)>,
    findings: &Findings<'_>,
) {
    let selections = selections.map(|(one, node)| (one.identity(), node));
    report_repeated(selections, findings, |_| {
        ("the same exception twice".to_owned(), "remove one of them")
    });
}

/// Checks that an exception has one selector; `check_part` checks the key part of a value or
/// prefix.
fn check_selection(
    selection: &Selection,
    node: NodeId,
    findings: &Findings<'_>,
    check_part: impl FnOnce(),
) {
    let kinds = [
        ("value", node_of(&selection.value)),
        ("prefix", node_of(&selection.prefix)),
        ("cidr", node_of(&selection.cidr)),
    ];
    let none = (
        "no client is named",
        "name clients by `value`, `prefix` or `cidr`",
    );
    match exactly_one(&kinds, node, none, "make it two exceptions", findings) {
        Some("cidr") => {
            if let Some(part) = &selection.part {
                let message =
                    "a network is about the client's address, and about no part of the key";
                let finding = Finding::error(part.node, Code::NoEffect, message);
                findings.add(finding.help("remove `part`"));
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
            let message = format!("`{part}` is no part of this key");
            let finding = Finding::error(part.node, Code::UnknownName, message);
            let finding = finding.help("name a part of `key`");
            findings.add(finding.related(policy.key.node, "the key"));
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

/// The compiled exceptions of all policies. Routes with the same compiled key parts share them.
#[derive(Default)]
pub(in crate::config) struct ExceptionCache {
    by_policy: RefCell<HashMap<usize, PolicyExceptions>>,
}

struct PolicyExceptions {
    /// The key parts that exceptions name.
    parts: Vec<KeyPart>,
    /// Compiled key parts, with the exceptions on them.
    known: Vec<(Vec<rules::KeyPart>, CompiledExceptions)>,
}

/// The compiled exceptions of one policy.
#[derive(Clone, Default)]
struct CompiledExceptions {
    exempt: Arc<Selectors>,
    overrides: Arc<Selectors>,
}

impl ExceptionCache {
    /// The exceptions of the checked policy at `index`, joined with the global exemptions. `part`
    /// compiles key parts for the route.
    pub(in crate::config) fn of(
        &self,
        (index, policy): (usize, &Policy),
        from_all: &Arc<Selectors>,
        part: impl Fn(&KeyPart) -> rules::KeyPart,
    ) -> Option<Exceptions> {
        let CompiledExceptions { exempt, overrides } = self.own(index, policy, part);
        Exceptions::new(Arc::clone(from_all), exempt, overrides)
    }

    fn own(
        &self,
        index: usize,
        policy: &Policy,
        part: impl Fn(&KeyPart) -> rules::KeyPart,
    ) -> CompiledExceptions {
        if policy.exempt.is_empty() && policy.overrides.is_empty() {
            return CompiledExceptions::default();
        }
        let mut by_policy = self.by_policy.borrow_mut();
        let of_policy = by_policy.entry(index).or_insert_with(|| PolicyExceptions {
            parts: parts(policy),
            known: Vec::new(),
        });
        let parts: Vec<_> = of_policy.parts.iter().map(part).collect();
        let mut known = of_policy.known.iter();
        if let Some((_, own)) = known.find(|(known, _)| *known == parts) {
            return own.clone();
        }
        let compiled: Vec<_> = of_policy.parts.iter().zip(&parts).collect();
        let own = own(policy, &compiled);
        of_policy.known.push((parts, own.clone()));
        own
    }
}

fn parts(policy: &Policy) -> Vec<KeyPart> {
    let exempt = policy.exempt.iter().map(|one| &one.value);
    let overrides = policy.overrides.iter().map(|one| &one.selection);
    let mut parts = Vec::new();
    for part in exempt
        .chain(overrides)
        .filter_map(|one| one.part_of(policy))
    {
        if !parts.contains(part) {
            parts.push(part.clone());
        }
    }
    parts
}

/// Compiles the exceptions of a policy with the compiled key parts.
fn own(policy: &Policy, parts: &[(&KeyPart, &rules::KeyPart)]) -> CompiledExceptions {
    let selector = |selection: &Selection| {
        let part = selection.part_of(policy).and_then(|wanted| {
            let (_, part) = parts.iter().find(|(part, _)| *part == wanted)?;
            Some(rules::KeyPart::clone(part))
        });
        selector(selection, part)
    };
    let exempt = policy.exempt.iter();
    let overrides = policy.overrides.iter();
    let exempt = exempt.filter_map(|one| selector(one));
    let overrides = overrides.filter_map(|one| selector(&one.selection));
    let stand_in = match &policy.on_missing_key.value {
        OnMissingKey::Constant(constant) => Some(constant.value.as_str()),
        _ => None,
    };
    let selectors = |list| Arc::new(Selectors::new(list).with_stand_in(stand_in));
    CompiledExceptions {
        exempt: selectors(exempt.collect()),
        overrides: selectors(overrides.collect()),
    }
}

/// The exemptions from all limits.
pub(in crate::config) fn global_exemptions(
    config: &Config,
    part: impl Fn(&KeyPart) -> rules::KeyPart,
) -> Selectors {
    let exempt = config.exempt.iter();
    let selectors = exempt.filter_map(|one| {
        let named = one.part.as_ref().map(|named| part(&named.value));
        selector(one, named)
    });
    Selectors::new(selectors.collect())
}

fn selector(selection: &Selection, part: Option<rules::KeyPart>) -> Option<Selector> {
    if let Some(cidr) = &selection.cidr {
        return Some(Selector::Network(cidr.get()));
    }
    match (&selection.value, &selection.prefix) {
        (Some(value), _) => Some(Selector::Value(part?, value.reveal().as_str().to_owned())),
        (None, Some(prefix)) => Some(Selector::Prefix(part?, prefix.reveal().as_str().to_owned())),
        (None, None) => None,
    }
}
