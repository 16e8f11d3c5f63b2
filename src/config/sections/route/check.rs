//! Checks of routes: names, matches, upstreams, changes to requests.

use http::header::HOST;

use super::{rewrite, upgrades};
use crate::config::checks::check_removed;
use crate::config::sections::prelude::*;
use crate::config::sections::secret_value::{self, FIELD};
use crate::config::sections::upstream::unknown_upstream;
use crate::config::sections::{access, condition, value_match};

pub(crate) fn check(config: &Config, findings: &Findings<'_>) {
    if config.routes.is_empty() && !findings.has_at("routes") {
        let message = "there are no routes, so that nothing would be served";
        let finding = missing(NodeId::ROOT, message);
        findings.add(finding.help("the smallest ones are `routes: [{ upstream: echo }]`"));
    }
    let names = config.routes.iter().filter_map(|route| route.name.as_ref());
    let names = names.map(|name| (&name.value, name.node));
    let help = "give each a name of its own, or none";
    report_repeated(names, help, findings, |name| {
        format!("two routes are called `{name}`")
    });
    super::body::check(config, findings);
    // A misspelt key is one mistake.
    let faulty = findings.faulty_routes();
    for (place, route) in config.routes.iter().enumerate() {
        let is_faulty = || faulty.contains(&format!("routes[{place}]"));
        super::answer::check(route, is_faulty, findings);
        check_match(route, config, findings);
        if let Some(access) = &route.access {
            access::check(access, access.node, config, findings);
        }
        if let (Some(name), Some(upstream)) = (route.upstream_name(), &route.upstream) {
            findings.extend(unknown_upstream(name, upstream.node, config, findings));
        }
        check_changes(&route.request, findings);
        rewrite::check(route, findings);
        upgrades::check(route, config, findings);
        super::status::check(route, config, findings);
        super::decide::check(route, config, findings);
    }
}

fn check_match(route: &Route, config: &Config, findings: &Findings<'_>) {
    let matches = &route.matches;
    condition::check_fields(&matches.headers, "hosts", findings);
    for value in matches.query.values().chain(matches.cookies.values()) {
        value_match::check(value, value.node, false, findings);
    }
    if let Some(when) = &matches.when {
        condition::check(when, when.node, config, findings);
        for one in when.all() {
            let finding = conflict(one.client.node, "a route can't depend on the client").at_key();
            findings.add(finding.help(
                "the client is looked up once the route is found; put `client` into `when` of a policy, or into `access`",
            ));
            let finding = conflict(one.jwt.node, "a route can't depend on a claim").at_key();
            findings.add(finding.help(
                "tokens are verified for the limits of a route, once it is found; put `jwt` into `when` of a policy",
            ));
        }
    }
    report_twice(&matches.hosts, findings);
    report_twice(&matches.methods, findings);
    check_grpc(matches, findings);
    if let Some(path) = &matches.path {
        path.check(findings);
    }
}

/// A method of gRPC is a path, and its requests are POST.
fn check_grpc(matches: &Match, findings: &Findings<'_>) {
    let Some(grpc) = &matches.grpc else {
        return;
    };
    let methods = matches.methods.first().map(|method| method.node);
    for (key, node) in given([("path", matches.path.given()), ("methods", methods)]) {
        let finding = conflict(node, format!("`grpc` and `{key}` in one match"));
        let finding = finding.related(grpc.node, "says the path and the method");
        findings.add(finding.help(format!("remove `{key}`, or `grpc`")));
    }
}

fn check_changes(request: &RequestChanges, findings: &Findings<'_>) {
    for (name, value) in request.set_headers.iter() {
        secret_value::check(value, &FIELD, findings);
        let help = if *name.get() == HOST {
            "remove it; `preserve_host: false` sends the host of the endpoint"
        } else {
            "remove it"
        };
        report_reserved(name, value.node, &[], help, findings);
    }
    let (removed, set) = (&request.remove_headers, &request.set_headers);
    check_removed(removed, set, &[], "client", findings);
}
