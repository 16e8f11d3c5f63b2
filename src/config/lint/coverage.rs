//! Requests that no policy of a route covers.

use std::collections::HashSet;

use super::{AppliedPolicy, RouteLimits};
use crate::config::sections::prelude::*;

/// Warns of routes with policies for several values of a claim or field, and none for other values.
pub(super) fn uncovered_requests(places: &[RouteLimits<'_>]) -> Vec<Finding> {
    let mut reported = HashSet::new();
    let found = places.iter().filter_map(uncovered);
    let found = found.filter(|finding| reported.insert(finding.node));
    found.collect()
}

fn uncovered(place: &RouteLimits<'_>) -> Option<Finding> {
    let enforced = place.policies();
    let enforced: Vec<_> = enforced.filter(|applied| applied.is_enforced()).collect();
    let conditions: Option<Vec<_>> = enforced.iter().map(|applied| wanted(applied)).collect();
    let conditions = conditions?;
    let [first, others @ ..] = conditions.as_slice() else {
        return None;
    };
    let (name, _) = first;
    let is_of_one = !others.is_empty() && others.iter().all(|(other, _)| other == name);
    let values: HashSet<_> = conditions.iter().map(|(_, value)| value).collect();
    if !is_of_one || values.len() < 2 {
        return None;
    }
    let node = enforced.first()?.policy.when.as_ref()?.node;
    let message = format!("requests with another {name} than these policies name meet no limit");
    let finding = Finding::warning(node, Code::UncoveredRequests, message);
    Some(finding.help(
        "add a policy for the others: without `when`, or with `when: { not: { any: [..] } }`",
    ))
}

/// Warns of rules of access by keys or passwords whose denials no limit of a route counts.
pub(super) fn unlimited_guesses(config: &Config, places: &[RouteLimits<'_>]) -> Vec<Finding> {
    let asks = |access: &&Located<Access>| {
        let mut allowed = access.allow.iter().flat_map(|list| list.iter());
        allowed.any(|condition| condition.all().iter().any(|one| one.has_secrets()))
    };
    // Once for all routes.
    let on_top = config.access.as_ref().filter(asks);
    let status = |access: &Located<Access>| (access.node, access.status.get() as u16);
    let clients = config.clients.as_ref();
    let clients = clients.filter(|clients| clients.unknown.value == UnknownClients::Refuse);
    let on_top = on_top.map(status).into_iter();
    let on_top: Vec<_> = on_top
        .chain(clients.map(|clients| (clients.node, 401)))
        .collect();
    let mut reported = HashSet::new();
    let mut findings = Vec::new();
    for place in places {
        let own = place.route.and_then(|route| route.access.as_ref());
        let own = own.filter(asks).map(status);
        for (node, status) in own.into_iter().chain(on_top.iter().copied()) {
            let counts = |applied: &&AppliedPolicy<'_>| {
                let mut counted = applied.policy.count.iter();
                counted.any(|statuses| statuses.range().contains(&status))
            };
            let mut limiting = place.policies().filter(counts).chain(
                (place.inherited.iter()).filter(|applied| applied.counts_denied_addresses()),
            );
            if !limiting.any(AppliedPolicy::is_enforced) && reported.insert(node) {
                let message = "keys and passwords can be guessed without a limit";
                let finding = Finding::warning(node, Code::UnlimitedGuesses, message);
                findings.push(finding.help(
                    "add a limit on top for each address, as in `limits: [{ quota: 100/1m }]`, or one \
                     that counts these answers",
                ));
            }
        }
    }
    findings
}

/// Warns of routes with `upstream: status` on which no limit is enforced.
pub(super) fn unlimited_status(places: &[RouteLimits<'_>]) -> impl Iterator<Item = Finding> {
    let unlimited = places.iter().filter_map(|place| {
        let upstream = place.route?.built_in(BuiltIn::Status)?;
        let is_limited = place.policies().any(AppliedPolicy::is_enforced);
        (!is_limited).then_some(upstream)
    });
    unlimited.map(move |upstream| {
        let message = "clients can ask for the state of limits as often as they like";
        let finding = Finding::warning(upstream, Code::UnlimitedStatus, message);
        finding.help("give the route a limit, as in `limits: [{ key: client_ip, quota: 60/1m }]`")
    })
}

/// The only claim or field that the policy's condition tests, with its value, which is never shown.
fn wanted(applied: &AppliedPolicy<'_>) -> Option<(String, String)> {
    let when = &applied.policy.when.as_ref()?.value;
    let keys = when.keys();
    if !keys
        .iter()
        .all(|key| ["jwt", "header", "client"].contains(&&**key))
    {
        return None;
    }
    let text = |value: &ValueMatch| value.text().map(|text| text.reveal().to_string());
    let claims = when.jwt.iter();
    let claims = claims.map(|(name, value)| Some((format!("claim `{name}`"), text(value)?)));
    let columns = when.client.iter();
    let columns = columns.map(|(name, value)| Some((format!("client's `{name}`"), text(value)?)));
    let fields = when.header.iter();
    let fields = fields.map(|(name, value)| {
        let text = text(value)?;
        Some((format!("field `{name}`"), text))
    });
    let mut wanted = claims.chain(columns).chain(fields);
    wanted.next()?.filter(|_| wanted.next().is_none())
}
