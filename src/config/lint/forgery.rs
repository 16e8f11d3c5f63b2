//! Keys that clients can forge.

use ipnet::IpNet;

use super::{AppliedPolicy, RouteLimits};
use crate::config::sections::prelude::*;

/// Fields in which proxies name the client, and which any client can send.
const FORWARDING: [&str; 8] = [
    "cf-connecting-ip",
    "fastly-client-ip",
    "forwarded",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded-for",
    "x-real-ip",
];

/// Warns of client-made keys on routes without another limit: each made-up key gets a new bucket.
pub(super) fn forgeable_keys(places: &[RouteLimits<'_>]) -> Vec<Finding> {
    let mut reported = std::collections::HashSet::new();
    let mut findings = Vec::new();
    for place in places {
        let enforced = || place.policies().filter(|applied| applied.is_enforced());
        if enforced().any(|applied| is_inescapable(applied, place)) {
            continue;
        }
        for applied in enforced() {
            let Some(part) = forgeable_part(applied, place) else {
                continue;
            };
            // `untrusted_forwarding` explains these better.
            if !is_forwarding(part) && reported.insert(applied.node) {
                findings.push(forgeable(applied, part, place));
            }
        }
    }
    findings
}

/// True if clients cannot leave the policy, or change the bucket, with what they send.
fn is_inescapable(applied: &AppliedPolicy<'_>, place: &RouteLimits<'_>) -> bool {
    let policy = applied.policy;
    let left_out = |part: &KeyPart| part.is_verified() || matches!(part, KeyPart::Capture(_));
    let skips = policy.on_missing_key.value == OnMissingKey::Word(MissingKeyWord::Skip)
        && policy.key.0.iter().any(|part| left_out(part));
    policy.when.is_none() && !skips && forgeable_part(applied, place).is_none()
}

fn forgeable(applied: &AppliedPolicy<'_>, part: &KeyPart, place: &RouteLimits<'_>) -> Finding {
    let message = format!("a client that sends another `{part}` each time is never refused");
    let finding = Finding::warning(applied.key_node(), Code::ForgeableKey, message);
    let mut finding = finding.related(place.node, "nothing else limits these requests");
    let route = place.route.into_iter();
    let mut removed = route.flat_map(|route| route.request.remove_headers.iter());
    if let Some(name) = removed.find(|name| *part == KeyPart::Header(name.value.clone())) {
        finding = finding.related(name.node, "the upstream can't check it");
    }
    finding.help(
        "add a limit by what a client cannot choose, as in `{ key: client_ip, quota: 1000/1m }`",
    )
}

/// The first part of the key that a client chooses freely: neither `when` nor `access` lists its
/// values.
fn forgeable_part<'a>(applied: &AppliedPolicy<'a>, place: &RouteLimits<'_>) -> Option<&'a KeyPart> {
    let own = place.route.and_then(|route| route.access.as_ref());
    let access = applied.config.access.iter().chain(own);
    let allowed = access.filter_map(|access| access.allow.as_ref());
    let is_listed = |part: &KeyPart| {
        let (mut allowed, when) = (allowed.clone(), applied.policy.when.as_ref());
        when.is_some_and(|when| lists(when, part))
            || allowed.any(|allow| allow.iter().all(|one| lists(one, part)))
    };
    let parts = applied.policy.key.0.iter().map(|part| &part.value);
    // A client can omit the token, or its key.
    let stand_in = match &applied.policy.on_missing_key.value {
        OnMissingKey::Word(MissingKeyWord::Part(part))
            if parts.clone().any(KeyPart::is_verified) =>
        {
            Some(part)
        }
        _ => None,
    };
    parts.chain(stand_in).find(|part| match part {
        KeyPart::Header(_)
        | KeyPart::Cookie(_)
        | KeyPart::Query(_)
        | KeyPart::Body(_)
        | KeyPart::Form(_) => !is_listed(part),
        KeyPart::BasicUser => true,
        // A wildcard host allows any number of names.
        KeyPart::Host => place.route.is_none_or(|route| {
            let hosts = &route.matches.hosts;
            let is_wildcard = |host: &HostPattern| matches!(host, HostPattern::Subdomains(_));
            hosts.is_empty() || hosts.iter().any(|host| is_wildcard(host))
        }),
        _ => false,
    })
}

/// True if requests that meet the condition have one of the listed values of this part.
fn lists(condition: &Condition, part: &KeyPart) -> bool {
    let headers = condition.header.iter();
    let headers = headers.map(|(name, value)| (KeyPart::Header(name.value.clone()), value));
    let cookies = condition.cookie.iter();
    let cookies = cookies.map(|(name, value)| (KeyPart::Cookie(name.to_string()), value));
    let queries = condition.query.iter();
    let queries = queries.map(|(name, value)| (KeyPart::Query(name.to_string()), value));
    let bodies = condition.body.iter();
    let bodies = bodies.map(|(part, value)| (KeyPart::Body(part.value.clone()), value));
    let forms = condition.form.iter();
    let forms = forms.map(|(name, value)| (KeyPart::Form(name.to_string()), value));
    let values = headers.chain(cookies).chain(queries);
    let mut values = values.chain(bodies).chain(forms);
    values.any(|(known, value)| known == *part && value.lists())
        || condition.all.iter().any(|one| lists(one, part))
        || !condition.any.is_empty() && condition.any.iter().all(|one| lists(one, part))
}

fn is_forwarding(part: &KeyPart) -> bool {
    matches!(part, KeyPart::Header(name) if FORWARDING.contains(&name.get().as_str()))
}

/// Warns of a key from a forwarding field, which clients can send too.
pub(super) fn untrusted_forwarding(part: &Located<KeyPart>) -> Option<Finding> {
    let message = format!("`{part}` is whatever the client sends");
    let finding = Finding::warning(part.node, Code::UntrustedForwarding, message);
    is_forwarding(part).then(|| finding.help(
        "use `client_ip`, and name your proxies in `client_ip.trusted_proxies`: only what these say is believed",
    ))
}

/// Warns of windows in a user's time zone, in buckets that several users share. The first user sets
/// the zone, and a request without a token gets another.
pub(super) fn borrowed_zone(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let claim = applied.policy.time_zone.as_ref()?.part()?;
    if applied.policy.key.0.iter().any(|part| part.is_verified()) {
        return None;
    }
    let message = format!(
        "the client that opens a window decides by `{claim}` when it ends for all clients of the bucket"
    );
    let finding = Finding::warning(claim.node, Code::BorrowedZone, message);
    let finding = finding.related(applied.key_node(), "a bucket is not that of a token's user");
    Some(finding.help("use a key that the same token has verified, as in `key: jwt:sub`"))
}

/// Warns of a quota that any client may state.
pub(super) fn forgeable_quota(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let policy = applied.policy;
    if policy.when.as_ref().is_some_and(|when| is_verified(when)) {
        return None;
    }
    let overrides = policy.overrides.iter();
    let overrides = overrides.filter(|one| !is_trusted(&one.selection));
    let amounts = std::iter::once(&policy.amounts).chain(overrides.map(|one| &one.amounts));
    let mut stated = amounts.filter_map(|amounts| amounts.quota.as_ref()?.stated());
    let stated = stated.find(|stated| !stated.from.is_verified())?;
    let message = format!(
        "any client that sends `{}` has the quota of its choice",
        stated.from.value
    );
    let finding = Finding::warning(stated.from.node, Code::ForgeableQuota, message);
    Some(finding.help(
        "state it in an item of `overrides` with a `cidr`, or a `when` of `cidr`, `jwt`, `client` or `listener`; or in a claim or column: `from: jwt:NAME` or `from: client:NAME`",
    ))
}

/// True if the clients of an override have this address, know this value, or are verified.
fn is_trusted(selection: &Selection) -> bool {
    let when = selection.when.as_ref();
    selection.cidr.is_some()
        || selection.value.is_some()
        || when.is_some_and(|when| is_verified(when))
}

/// True if no client meets the condition by what it sends alone.
fn is_verified(condition: &Condition) -> bool {
    !condition.cidr.is_empty()
        || !condition.listener.is_empty()
        || condition.verified_parts().next().is_some()
        || condition.all.iter().any(|one| is_verified(one))
        || !condition.any.is_empty() && condition.any.iter().all(|one| is_verified(one))
}

/// Warns of trusted proxies that include every address.
pub(super) fn trusts_everyone(config: &Config) -> impl Iterator<Item = Finding> {
    let trusted = config.client_ip.trusted_proxies.iter();
    let everybody = trusted.filter(|proxy| is_world(proxy));
    everybody.map(move |proxy| {
        let message = format!("any client from `{proxy}` can choose its address");
        Finding::warning(proxy.node, Code::TrustsEveryone, message)
            .help("name the networks of your proxies alone, as in `10.0.0.0/8`")
    })
}

/// True for a network that holds more than any one owner's, such as a half of all addresses.
fn is_world(proxy: &TrustedProxy) -> bool {
    match proxy {
        TrustedProxy::Network(network) => match network.get() {
            IpNet::V4(network) => network.prefix_len() < 8,
            // Unique local addresses are `fc00::/7` (RFC 4193).
            IpNet::V6(network) => network.prefix_len() < 7,
        },
        TrustedProxy::Unix => false,
    }
}
