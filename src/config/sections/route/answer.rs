//! Routes that answer instead of an upstream: `redirect` and `respond`.

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};

use crate::config::sections::content;
use crate::config::sections::prelude::*;
use crate::proxy::TemplateError;
use crate::proxy::answers::redirect::RedirectTarget;
use crate::proxy::answers::route_answer::RouteAnswer;

/// The largest body, in bytes. All responses share it.
const MAX_BODY: usize = 1 << 20;

/// The status of a redirect.
pub type RedirectStatus = Whole<301, 308, 308>;

/// `redirect` of a route: where clients are sent.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Redirect {
    /// An `http` or `https` URL, or a path, with `{host}` (without its port), `{path}`, `{query}`,
    /// `{path_and_query}`, and `{name}` for a captured segment.
    pub to: Located<Text>,
    /// 301, 302, 303, 307 or 308.
    #[serde(default)]
    pub status: Located<RedirectStatus>,
    /// `true` lets `{host}` be any host that a client names, where the route has no `match.hosts`.
    #[serde(default)]
    pub any_host: Located<Flag<false>>,
}

/// `respond` of a route: the response to all of its requests.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct Respond {
    /// The status, 200 to 599.
    pub status: Located<Whole<200, 599>>,
    /// Its fields. With a body, `content-type` is `text/plain; charset=utf-8` unless given.
    pub headers: Table<FieldName, FieldValue>,
    /// Its body: a text, or `{ file: PATH }`; empty unless given.
    pub body: Option<Located<Content>>,
}

/// Checks what answers requests. `is_faulty` is true if another finding may explain why nothing does.
pub(super) fn check(route: &Located<Route>, is_faulty: impl Fn() -> bool, findings: &Findings<'_>) {
    let options = options!(route, upstream, redirect, respond);
    let help = "add `upstream`, `redirect` or `respond`, as in `upstream: http://10.0.0.11:3000`";
    let none = missing(route.node, "the route goes nowhere").help(help);
    let is_given = options.iter().any(|(_, node)| node.is_some());
    if is_given || !is_faulty() {
        exactly_one(&options, none, "keep one of them", findings);
    }
    if let Some(redirect) = &route.redirect {
        check_unforwarded(route, redirect.node, findings);
        check_redirect(redirect, route, findings);
    }
    if let Some(respond) = &route.respond {
        check_unforwarded(route, respond.node, findings);
        check_respond(respond, findings);
    }
}

/// Reports changes to requests that the proxy itself answers, by the option at `answer`.
pub(super) fn check_unforwarded(route: &Route, answer: NodeId, findings: &Findings<'_>) {
    for (key, node) in given(options!(route, request, rewrite, forward_path, upgrades)) {
        let finding = no_effect(node, "the request is not forwarded").at_key();
        let finding = finding.related(answer, "the proxy answers it");
        findings.add(finding.help(format!("remove `{key}`")));
    }
}

fn check_redirect(redirect: &Redirect, route: &Route, findings: &Findings<'_>) {
    if let 304..=306 = redirect.status.get() {
        let message = format!("{} isn't a redirect", redirect.status.get());
        let finding = invalid(redirect.status.node, message);
        findings.add(finding.help("write 301, 302, 303, 307 or 308"));
    }
    let target = match target(redirect, route) {
        Ok(target) => target,
        Err(error) => return findings.add(wrong_text(redirect.to.node, &error)),
    };
    let is_open = target.has_host() && route.matches.hosts.is_empty();
    if is_open && !redirect.any_host.get() {
        let message = "clients choose `{host}`, because the route takes any host";
        let finding = conflict(redirect.to.node, message);
        findings.add(finding.help(
            "name the hosts, as in `match: { hosts: [example.com] }`, or set `any_host: true`",
        ));
    }
    if !is_open && redirect.any_host.get() {
        let message = "clients can't choose the host of this redirect";
        findings.add(warn_no_effect(redirect.any_host.node, message).help("remove `any_host`"));
    }
}

fn target(redirect: &Redirect, route: &Route) -> Result<RedirectTarget, TemplateError> {
    let path = route.matches.path_pattern().unwrap_or_default();
    RedirectTarget::parse(redirect.to.as_str(), &path, route.form())
}

fn check_respond(respond: &Respond, findings: &Findings<'_>) {
    for (name, value) in respond.headers.iter() {
        report_reserved(name, value.node, &[], "remove it", findings);
    }
    let Some(body) = &respond.body else {
        return;
    };
    content::check(body, MAX_BODY, findings);
    if let status @ (204 | 205 | 304) = respond.status.get() {
        let message = format!("a response with status {status} has no body");
        let finding = conflict(body.node, message).related(respond.status.node, "the status");
        findings.add(finding.help("remove `body`, or choose another status"));
    }
}

impl Compiler<'_> {
    /// The answer of a checked route; `None` if its requests are forwarded.
    pub(crate) fn route_answer(&mut self, route: &Route) -> Option<RouteAnswer> {
        if let Some(UpstreamRef::BuiltIn(built_in)) = route.upstream.as_deref() {
            return match built_in {
                BuiltIn::Echo => None,
                BuiltIn::Status => Some(RouteAnswer::Status),
                BuiltIn::Decide => Some(RouteAnswer::Decision),
                BuiltIn::DecideBatch => Some(RouteAnswer::Decisions),
            };
        }
        if let Some(redirect) = &route.redirect {
            let target = target(redirect, route);
            return Some(RouteAnswer::Redirect {
                target: self.usable(redirect.to.node, target)?,
                status: status(redirect.status.get()),
            });
        }
        let respond = route.respond.as_ref()?;
        let mut headers: Vec<_> = fields(&respond.headers).collect();
        let body = respond.body.as_ref();
        if body.is_some() && !headers.iter().any(|(name, _)| *name == CONTENT_TYPE) {
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            headers.push((CONTENT_TYPE, plain));
        }
        Some(RouteAnswer::Fixed {
            status: status(respond.status.get()),
            headers,
            body: body.map_or_else(Default::default, |body| self.content(body, MAX_BODY)),
        })
    }
}

fn status(code: u32) -> StatusCode {
    let code = u16::try_from(code).ok();
    let status = code.and_then(|code| StatusCode::from_u16(code).ok());
    status.expect("bounds are within 100 to 999")
}
