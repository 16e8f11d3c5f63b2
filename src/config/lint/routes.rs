//! Requests that pass by the limits, or the answer, of the route that was meant for them.

use http::Method;

use super::{AppliedPolicy, RouteLimits};
use crate::config::sections::prelude::*;
use crate::config::sections::route::matches;
use crate::config::sections::value_match::FileLists;
use crate::http::client_ip::NO_ADDRESS;
use crate::http::headers::Headers;
use crate::rules::{Head, PathPattern, Router};

/// The most routes whose spellings are tried.
const MAX_ROUTES: usize = 5_000;

/// Warns of routes whose paths have another spelling that reaches the same upstream by another
/// route, with fewer limits.
pub(super) fn unlimited_spellings(places: &[RouteLimits<'_>]) -> Vec<Finding> {
    let routes = places.iter().filter_map(|place| place.route);
    let lists = FileLists::default();
    let router = Router::new(routes.map(|route| matches(route, &lists)).collect());
    let mut found = Vec::new();
    for (own, place) in places.iter().enumerate().take(MAX_ROUTES) {
        let Some(route) = place.route else { break };
        let is_conditional = route.matches.when.is_some() || route.matches.values().count() > 0;
        let pattern = route.matches.written_pattern();
        // Prefixes are too common to warn of, unless they have rules of access.
        let is_worth_it = |path: &PathPattern| !path.is_prefix || route.access.is_some();
        let named = pattern.filter(|(path, _)| !is_conditional && is_worth_it(path));
        let Some((pattern, node)) = named else {
            continue;
        };
        // `{id}` and `**` are segments that the pattern takes.
        let path = pattern.comparable().to_string();
        let bare = path.strip_suffix('/').map(str::to_owned);
        let slashed = bare.unwrap_or_else(|| format!("{path}/"));
        for (spelling, option) in [
            (slashed, "`trailing_slash: ignore`"),
            (path.to_ascii_uppercase(), "`case_sensitive: false`"),
        ] {
            let [usual, other] = [&path, &spelling].map(|path| taker(&router, route, path));
            let other = other.filter(|other| usual == Some(own) && *other != own);
            let other = other.map(|other| &places[other]);
            let Some(other) = other.filter(|other| has_fewer_limits(other, place)) else {
                continue;
            };
            let message = format!(
                "`{spelling}` reaches the same upstream without a limit or `access` of this route"
            );
            let finding = Finding::warning(node, Code::UnlimitedSpelling, message);
            let finding = finding.related(other.node, "the route that forwards it");
            found.push(finding.help(format!(
                "add {option} to the route, unless the upstream tells `{path}` from it"
            )));
        }
    }
    found
}

/// The index of the route that takes a plain request for this path, with a method and a host of
/// `route`.
fn taker(router: &Router, route: &Route, path: &str) -> Option<usize> {
    let host = route.matches.hosts.first();
    let host = host.map_or_else(String::new, |host| host.to_string().replace('*', "x"));
    let method = route.matches.methods.first();
    let is_path = path.starts_with('/');
    let found = router.find(&Head {
        method: method.map_or(&Method::GET, |method| method.get()),
        host: &host,
        path,
        query: None,
        headers: &Headers::new(),
        client_ip: NO_ADDRESS,
        local: None,
        scheme: None,
        token: None,
        body: None,
        client: None,
        is_any_target: false,
    });
    found.filter(|_| is_path)
}

/// True if `other` forwards to the same upstream without a limit or the access rules of `place`.
fn has_fewer_limits(other: &RouteLimits<'_>, place: &RouteLimits<'_>) -> bool {
    let (Some(route), Some(taker)) = (place.route, other.route) else {
        return false;
    };
    // Each path is the same to `echo`.
    let is_same = route.upstream.is_some()
        && route.upstream == taker.upstream
        && route.built_in(BuiltIn::Echo).is_none()
        && route.rewrite.is_none()
        && taker.rewrite.is_none();
    let is_as_strict = |one: &AppliedPolicy<'_>, own: &AppliedPolicy<'_>| {
        let is_tighter = one.capacity() <= own.capacity() && one.window() >= own.window();
        let is_for_all = one.is_enforced() && one.policy.when.is_none();
        one.node == own.node || is_for_all && is_tighter && one.policy.key.0 == own.policy.key.0
    };
    let inherited = (!other.inherits()).then_some(&*place.inherited);
    let limits = inherited.into_iter().flatten().chain(&place.own);
    let mut limits = limits.filter(|own| own.is_enforced());
    let is_missing = |own: &AppliedPolicy<'_>| !other.policies().any(|one| is_as_strict(one, own));
    is_same && (limits.any(is_missing) || route.access.is_some() && taker.access.is_none())
}

/// Warns of routes that answer everything, as a page for maintenance or a redirect to TLS does, in
/// front of routes that are asked before them.
pub(super) fn bypassed_answers(config: &Config) -> impl Iterator<Item = Finding> {
    let takes_all = |route: &Route| {
        let path = route.matches.path_pattern().unwrap_or_default();
        path == PathPattern::default() && !route.matches.has_path_regex()
    };
    let scheme = |route: &Route| Some(route.matches.when.as_ref()?.scheme.as_ref()?.value);
    let routes = config.routes.iter().zip(1..);
    routes.filter_map(move |(route, next)| {
        let page = route.respond.as_ref();
        let page = page.filter(|respond| respond.status.get() == 503);
        let redirect = route.redirect.as_ref();
        let redirect = redirect.filter(|_| scheme(route) == Some(Scheme::Http));
        let node = page.map(|page| page.node).or(redirect.map(|to| to.node))?;
        let hosts = &route.matches.hosts;
        let open = config.routes.iter().skip(next).find(|other| {
            let is_same_host = other.matches.hosts == *hosts;
            let is_asked_first =
                hosts.is_empty() && !is_same_host || is_same_host && !takes_all(other);
            other.upstream.is_some() && scheme(other).is_none() && is_asked_first
        });
        let open = open.filter(|_| takes_all(route))?;
        let message = format!("`{}` is asked before this, and stays open", open.title());
        let finding = Finding::warning(node, Code::BypassedAnswer, message).at_key();
        let finding = finding.related(open.node, "its path or host is closer");
        Some(finding.help(match page {
            Some(_) => "close all routes by `access: { deny: [..], status: 503 }`",
            None => "add `when: { scheme: https }` to the `match` of that route",
        }))
    })
}
