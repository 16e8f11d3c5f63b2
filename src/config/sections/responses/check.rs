//! Checks of `on_limit` and of rate-limit fields.

use http::header::RETRY_AFTER;

use super::style_fields;
use crate::config::sections::content;
use crate::config::sections::prelude::*;
use crate::config::sections::upstream::unknown_upstream;
use crate::proxy::Template;
use crate::proxy::answers::limit_headers::StyleFields;

/// The largest custom body, in bytes.
const MAX_BODY: usize = 64 << 10;

pub(crate) fn check(config: &Config, findings: &Findings<'_>) {
    check_styles(&config.responses.headers, findings);
    let on_limit = &config.responses.on_limit;
    check_policy(on_limit, &OnLimit::default(), config, findings);
    if let Some(node) = on_limit.set_body.given() {
        let finding = conflict(node, "not all routes read the bodies that this changes").at_key();
        findings.add(finding.help("move it to `on_limit` of a policy"));
    }
    super::debug::check(config, findings);
    super::fields::check(config, findings);
    super::pages::check(config, findings);
}

/// Two styles must not write the same field.
fn check_styles(styles: &List<HeaderFields>, findings: &Findings<'_>) {
    let mut seen: Vec<(&Located<HeaderFields>, StyleFields)> = Vec::new();
    for item in styles.iter() {
        let fields = style_fields(item);
        if let (None, Some(prefix)) = (fields.style.prefix(), &item.prefix) {
            let finding = no_effect(prefix.node, "the names of this style's fields are fixed");
            findings.add(finding.help("remove the `prefix`, or choose another style"));
        }
        let shares = |(_, other): &&(_, StyleFields)| {
            let names = other.names();
            fields.names().iter().any(|name| names.contains(name))
        };
        if let Some((first, _)) = seen.iter().rev().find(shares) {
            let finding = if first.style == item.style {
                Finding::error(item.node, Code::DuplicateName, "the same style twice")
                    .related(first.node, "it stands here first")
                    .help("remove one of them, or give one a `prefix` of its own")
            } else {
                let [first_style, style] = [&first.style, &item.style].map(word);
                let message = format!(
                    "`{first_style}` and `{style}` write the same fields with different meanings"
                );
                conflict(item.node, message)
                        .related(first.node, "the other style")
                        .help("choose one; most can have a `prefix` of their own: `{ style: github, prefix: x-github }`")
            };
            findings.add(finding);
        }
        seen.push((item, fields));
    }
}

/// Checks an `on_limit`, which inherits missing settings from `general`.
pub(crate) fn check_policy(
    own: &OnLimit,
    general: &OnLimit,
    config: &Config,
    findings: &Findings<'_>,
) {
    for (name, value) in own.headers.iter() {
        report_reserved(name, value.node, &[RETRY_AFTER], "remove it", findings);
        // Values of fields are made with the ruleset, once.
        if value.to_string().contains("{{") {
            let message = "a header has no placeholders, and would be sent with its braces";
            let finding = invalid(value.node, message);
            findings.add(finding.help("write a constant value; `body` has placeholders"));
        }
    }
    if let Some(name) = &own.tag_header {
        let help = "choose another name, as in `x-over-limit`";
        report_reserved(name, name.node, &[], help, findings);
    }
    if let Some(body) = &own.body {
        let help = "link to a page instead, with `docs_url`";
        content::check_length(body, body.node, MAX_BODY, help, findings);
        if let Err(error) = Template::parse(body.as_str()) {
            findings.add(wrong_text(body.node, &error));
        }
    }
    let (action, all) = (own.action_over(general), own.merged(general));
    check_action(own, action, findings);
    check_route(own, &all, action, config, findings);
    check_body(own, &all, findings);
}

/// Settings have to suit the action.
fn check_action(own: &OnLimit, action: Action, findings: &Findings<'_>) {
    let (codes, such_as) = match action {
        Action::Drop | Action::Tag | Action::Route => (200..=599, "any will do"),
        Action::Decoy => (
            200..=399,
            "a decoy has a status from 200 to 399, as a success has",
        ),
        _ => (400..=599, "a refusal has a status from 400 to 599"),
    };
    if let Some(status) = &own.status
        && !codes.contains(&status.get())
    {
        let message = format!("{} does not fit: {such_as}", status.get());
        let help = "leave it out, or choose another `action`";
        findings.add(conflict(status.node, message).help(help));
    }
    if let (Some(status), Some(body)) = (&own.status, &own.body)
        && [204, 205, 304].contains(&status.get())
    {
        let message = format!("an answer with status {} has no body", status.get());
        let finding = conflict(body.node, message).related(status.node, "the status");
        findings.add(finding.help("leave one of them out"));
    }
    for (key, node, actions) in own.settings() {
        if !actions.contains(&action) {
            let suited: Vec<_> = actions.iter().map(|action| action.as_str()).collect();
            let message = format!("`{key}` says nothing to `action: {}`", action.as_str());
            let finding = no_effect(node, message);
            findings.add(finding.help(format!("it is for {}", nearest::list(&suited))));
        }
    }
}

/// A limit that routes needs an upstream, which serves requests as they come.
fn check_route(
    own: &OnLimit,
    all: &OnLimit,
    action: Action,
    config: &Config,
    findings: &Findings<'_>,
) {
    let Some(upstream) = &all.upstream else {
        if let (Action::Route, Some(action)) = (action, &own.action) {
            let finding = missing(action.node, "the key `upstream` is missing");
            findings.add(finding.help("say where requests go: `upstream: cheaper`"));
        }
        return;
    };
    if own.upstream.is_none() {
        return;
    }
    match &upstream.value {
        UpstreamRef::BuiltIn(BuiltIn::Echo) | UpstreamRef::Url(_) => {}
        UpstreamRef::BuiltIn(other) => {
            let message = format!("`{other}` serves no requests of other routes");
            findings
                .add(conflict(upstream.node, message).help("name one of `upstreams`, or a URL"));
        }
        UpstreamRef::Named(name) => {
            findings.extend(unknown_upstream(name, upstream.node, config, findings));
            let known = config.upstreams.get(name.as_str());
            if let Some(known) = known.filter(|known| known.balance.key().is_some()) {
                let message = "requests of other routes have no key for this hash, and go to a random address";
                let finding = warn_no_effect(upstream.node, message);
                let finding = finding.related(known.balance.node, "the hash");
                findings.add(finding.help("use an upstream with another `balance`"));
            }
        }
    }
}

/// A custom body needs one type: `auto` follows `Accept`.
fn check_body(own: &OnLimit, all: &OnLimit, findings: &Findings<'_>) {
    let format = all.format.as_ref();
    let is_fixed = format.is_some_and(|format| format.value != BodyFormat::Auto);
    let mut headers = all.headers.iter();
    let content_type = headers.find(|(name, _)| *name.get() == http::header::CONTENT_TYPE);
    match (&all.body, content_type) {
        (Some(_), Some(_)) => {}
        (Some(body), None) if !is_fixed => {
            let node = own.format.as_ref().map_or(body.node, |format| format.node);
            let finding = conflict(node, "a body without a type").related(body.node, "the body");
            findings.add(finding.help("say what it is: `format: text`, `html`, `json` or `problem`, or a `content-type` under `headers`"));
        }
        (None, Some((_, value))) => {
            let finding = conflict(value.node, "a content type without a body");
            findings.add(finding.help("give a `body`, or choose a `format`"));
        }
        _ => {}
    }
}
