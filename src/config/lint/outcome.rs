//! Policies with a known outcome: they never refuse, or always; and costs that are
//! forgiven, or known too late.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;

use crate::config::lint::{AppliedPolicy, RouteLimits};
use crate::config::sections::condition;
use crate::config::sections::prelude::*;
use crate::config::value::Quota;
use crate::limiter::bucket::Debt;

/// The most policies of a route with which each policy is compared.
const MAX_COMPARED: usize = 256;

/// Maps each policy to its routes.
struct PolicyIndex<'p, 'a> {
    /// Positions in the file.
    order: HashMap<NodeId, usize>,
    top_level: HashSet<NodeId>,
    /// The routes on which top-level policies apply.
    inheriting: Vec<&'p RouteLimits<'a>>,
    /// The other routes of a policy: those that name it.
    naming: HashMap<NodeId, Vec<&'p RouteLimits<'a>>>,
    /// A policy and a route that names it.
    named: HashSet<(NodeId, NodeId)>,
}

impl<'p, 'a> PolicyIndex<'p, 'a> {
    fn of(all: &[AppliedPolicy<'a>], places: &'p [RouteLimits<'a>]) -> Self {
        let inheriting: Vec<_> = places.iter().filter(|place| place.inherits()).collect();
        let inherited = inheriting.first().into_iter();
        let inherited = inherited.flat_map(|place| &*place.inherited);
        let mut index = PolicyIndex {
            order: all.iter().map(|applied| applied.node).zip(0..).collect(),
            top_level: inherited.map(|applied| applied.node).collect(),
            inheriting,
            naming: HashMap::new(),
            named: HashSet::new(),
        };
        for place in places {
            for applied in &place.own {
                if index.named.insert((applied.node, place.node)) {
                    index.naming.entry(applied.node).or_default().push(place);
                }
            }
        }
        index
    }

    /// The routes on which a policy applies.
    fn at(&self, applied: &AppliedPolicy<'_>) -> impl Iterator<Item = &'p RouteLimits<'a>> {
        let is_top_level = self.top_level.contains(&applied.node);
        let inheriting = self.inheriting.iter().filter(move |_| is_top_level);
        let naming = self.naming.get(&applied.node);
        inheriting.chain(naming.into_iter().flatten()).copied()
    }

    /// True if `other` applies on every route of `applied`.
    fn is_everywhere(&self, other: &AppliedPolicy<'_>, applied: &AppliedPolicy<'_>) -> bool {
        let is_top_level = self.top_level.contains(&other.node);
        self.at(applied).all(|place| {
            (is_top_level && place.inherits()) || self.named.contains(&(other.node, place.node))
        })
    }
}

/// Warns of enforced policies that can never refuse.
pub(super) fn never_refuses(all: &[AppliedPolicy<'_>], places: &[RouteLimits<'_>]) -> Vec<Finding> {
    let index = PolicyIndex::of(all, places);
    let why = |applied: &AppliedPolicy<'_>| {
        enforced_for_no_key(applied)
            .or_else(|| all_addresses_exempt(applied))
            .or_else(|| methods_never_match(applied, &index))
            .or_else(|| shielded(applied, &index))
    };
    all.iter().filter_map(why).collect()
}

fn never_refuses_warning(node: NodeId, message: impl Into<String>) -> Finding {
    Finding::warning(node, Code::NeverRefuses, message)
}

/// Finds a `percent` of 0.
fn enforced_for_no_key(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let percent = applied.policy.percent.as_ref();
    let percent = percent.filter(|percent| percent.get() == 0)?;
    let finding = never_refuses_warning(percent.node, "it is enforced for none of its keys");
    Some(finding.help("raise `percent`, or write `mode: shadow` if you mean that"))
}

/// Finds exemptions of all addresses.
fn all_addresses_exempt(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let whole = |v4: bool| {
        let exempt = applied.policy.exempt.iter();
        let exempt = exempt.filter(|one| one.when.is_none());
        let is_whole = |network: IpNet| network.prefix_len() == 0 && network.addr().is_ipv4() == v4;
        let mut networks = exempt.filter_map(|one| one.cidr.as_ref());
        Some(networks.find(|cidr| is_whole(*cidr.get()))?.node)
    };
    let (first, second) = (whole(true)?, whole(false)?);
    let finding = never_refuses_warning(first, "all addresses are exempt")
        .related(second, "and all other addresses");
    Some(finding.help("name the networks that are meant, or remove the policy"))
}

/// Finds a `when` with methods that none of its routes takes.
fn methods_never_match(
    applied: &AppliedPolicy<'_>,
    index: &PolicyIndex<'_, '_>,
) -> Option<Finding> {
    let wanted = &applied.policy.when.as_ref()?.method;
    let mut related = None;
    for place in index.at(applied) {
        let taken = &place.route?.matches.methods;
        let overlap = |one: &List<Method>, other: &List<Method>| {
            let one = condition::methods(one);
            other.iter().any(|method| one.contains(method.get()))
        };
        let is_met = overlap(taken, wanted) || overlap(wanted, taken);
        if taken.is_empty() || wanted.is_empty() || is_met {
            return None;
        }
        related = Some(taken.node);
    }
    let finding = never_refuses_warning(wanted.node, "none of its routes takes these methods");
    let finding = finding.related(related?, "the methods that a route takes");
    Some(finding.help("correct the methods, or remove the policy"))
}

/// Finds another policy on the same routes that always refuses first.
fn shielded(applied: &AppliedPolicy<'_>, index: &PolicyIndex<'_, '_>) -> Option<Finding> {
    let order = |wanted: &AppliedPolicy<'_>| index.order.get(&wanted.node);
    let place = index.at(applied).next()?;
    let others = place.policies().take(MAX_COMPARED);
    let mut others = others.filter(|other| applied.is_enforced() && other.node != applied.node);
    let shield = others.find(|other| {
        // The first of two equal policies refuses.
        let first = || !shields(applied, other) || order(other) < order(applied);
        shields(other, applied) && first() && index.is_everywhere(other, applied)
    })?;
    let message = "another policy with the same key always refuses first";
    let finding = never_refuses_warning(applied.quota_node(), message);
    let finding = finding.related(shield.quota_node(), "which is never more generous");
    let help = "remove one of them, or let the one for the longer window be less per second";
    Some(finding.help(help))
}

/// True if every request that `shield` admits is within `applied`.
fn shields(shield: &AppliedPolicy<'_>, applied: &AppliedPolicy<'_>) -> bool {
    let (one, other) = (shield.policy, applied.policy);
    let unconditional = one.when.is_none() && one.exempt.is_empty() && one.overrides.is_empty();
    shield.is_enforced()
        && unconditional
        && other.overrides.is_empty()
        && other.quotas().all(|quota| quota.stated().is_none())
        && [one, other].iter().all(|policy| only_counts(policy))
        && one.key.0 == other.key.0
        && one.on_missing_key == other.on_missing_key
        && matches!((&one.cost.value, &other.cost.value), (Cost::Constant(one), Cost::Constant(other)) if one == other)
        && shield.capacity() > 0
        && is_within(shield, applied)
}

/// True if admission takes units of one bucket, and does nothing else.
fn only_counts(policy: &Policy) -> bool {
    policy.overflow.is_none()
        && policy.count.is_empty()
        && !policy.charge_refused.get()
        && policy.penalty.is_none()
}

/// True if `wide` admits every sequence of requests that `tight` admits. Covers only certain cases:
/// buckets that recover at a rate, and equal windows.
fn is_within(tight: &AppliedPolicy<'_>, wide: &AppliedPolicy<'_>) -> bool {
    use AlgorithmName::{FixedWindow, Gcra, SlidingLog, SlidingWindow, TokenBucket};
    let (one, other) = (tight.policy, wide.policy);
    let (Some(a), Some(b)) = (&one.amounts.quota, &other.amounts.quota) else {
        return false;
    };
    let (a, b) = (a.largest(), b.largest());
    let limits = a.limit() <= b.limit();
    let windows = a.window() == b.window() && a.calendar() == b.calendar();
    let by_clock = |policy: &Policy| policy.start.value == WindowStart::Clock;
    match (one.algorithm.value, other.algorithm.value) {
        (Gcra | TokenBucket, Gcra | TokenBucket) => {
            let rates = rate_times(a, b) <= rate_times(b, a);
            rates && tight.capacity() <= wide.capacity()
        }
        (FixedWindow, FixedWindow) => {
            let zones = one.time_zone == other.time_zone && one.anchor == other.anchor;
            limits && windows && by_clock(one) && by_clock(other) && zones
        }
        (SlidingWindow, SlidingWindow) => {
            let parts = one.precision == other.precision && one.oldest == other.oldest;
            limits && windows && parts
        }
        (SlidingLog, SlidingLog) => limits && a.window() >= b.window(),
        _ => false,
    }
}

/// The units of `quota` in its own window times `other`'s window.
fn rate_times(quota: Quota, other: Quota) -> u128 {
    u128::from(quota.limit()) * other.window().as_micros()
}

fn always(node: NodeId, message: impl Into<String>) -> Finding {
    Finding::warning(node, Code::AlwaysRefuses, message)
}

/// Warns of a policy that refuses every request.
pub(super) fn nothing_to_take(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let policy = applied.enforced()?;
    let all = policy.when.is_none() && policy.exempt.is_empty() && policy.overrides.is_empty();
    let quota = policy.amounts.quota.as_ref();
    let quota = quota.filter(|quota| all && quota.largest().limit() == 0)?;
    let finding = always(quota.node, "a quota of 0 refuses every request");
    Some(finding.help("raise it, or say which requests it is for: `when`, `exempt`, `overrides`"))
}

/// Warns of a policy that refuses all requests that state a cost in bounds.
pub(super) fn costs_beyond(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let Cost::Stated(cost) = &applied.enforced()?.cost.value else {
        return None;
    };
    let most = match (&cost.header, cost.reserve.as_deref()) {
        (Some(_), _) => cost.max.as_ref(),
        (None, Some(Reserve::Stated(reserve))) if reserve.header.is_some() => {
            reserve.max.as_ref().or(cost.max.as_ref())
        }
        (None, _) => None,
    }?;
    let (at, most, capacity) = (most.node, most.units(), applied.capacity());
    if capacity == 0 || most <= capacity {
        return None;
    }
    let message = format!("requests that say more than {capacity} are always refused");
    let finding = always(at, message).related(applied.quota_node(), "what the bucket holds");
    Some(finding.help(format!(
        "use `max: {capacity}`, so that they count as that, or raise the quota or its burst"
    )))
}

/// Warns of captures that a route's path does not have, without a stand-in.
pub(super) fn without_key(places: &[RouteLimits<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for place in places {
        let Some(route) = place.route else { continue };
        let has = |name: &str| route.matches.captures().any(|one| one == name);
        for policy in place.policies().filter_map(AppliedPolicy::enforced) {
            let refuses = policy.on_missing_key.value == OnMissingKey::Word(MissingKeyWord::Refuse);
            let mut parts = policy.key.0.iter();
            let lacking =
                parts.find(|part| matches!(&part.value, KeyPart::Capture(name) if !has(name)));
            let Some(part) = lacking.filter(|_| refuses && policy.when.is_none()) else {
                continue;
            };
            let title = route.title();
            let message = format!("`{title}` has no such segment: all of its requests are refused");
            let finding = always(part.node, message).related(place.node, "the route");
            findings.push(finding.help("set `on_missing_key: skip`, or name the policy only where the path captures the segment"));
        }
    }
    findings
}

/// Warns of calls of a language model that pass the budget while they run: each may cost much, and
/// reserves one unit.
pub(super) fn unreserved(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let Cost::Stated(cost) = &applied.policy.cost.value else {
        return None;
    };
    let settle = cost.settle.as_ref().filter(|_| cost.reserve.is_none())?;
    let message = "a call reserves one unit, so calls in flight together can pass the quota";
    let finding = Finding::warning(settle.node, Code::UnreservedTokens, message);
    let help = "say what a call may take: `reserve: { from: [body:/max_tokens], default: 1000, prompt: estimate }`";
    Some(finding.help(help))
}

/// Warns of responses that may cost more than a bucket ever owes.
pub(super) fn forgiven(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    use AlgorithmName::{Gcra, TokenBucket};
    let Cost::Stated(cost) = &applied.policy.cost.value else {
        return None;
    };
    let quota = applied.policy.amounts.quota.as_ref();
    let limit = quota.map_or(applied.capacity(), |quota| quota.largest().limit());
    if cost.header.is_some() || limit == 0 {
        return None;
    }
    let windows = match applied.policy.algorithm.value {
        Gcra | TokenBucket => Debt::MAX_WINDOWS,
        _ => 1,
    };
    let owed = limit.saturating_mul(windows.into());
    let max = cost.max.as_ref();
    let max = max.filter(|max| u64::from(max.get()) > owed)?;
    let message = format!("what a response costs beyond {owed} units is forgiven");
    let finding = Finding::warning(max.node, Code::ForgivenCost, message);
    let finding = finding.related(applied.quota_node(), "a bucket owes no more than that");
    Some(match windows {
        1 => finding.help("use `algorithm: gcra`, which carries the debt on, or a longer window"),
        _ => finding.help(format!("lower `max` to {owed}, or raise the quota")),
    })
}
