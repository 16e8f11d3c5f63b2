//! What refused clients are told, and in which fields.

use super::{is_framing, report_repeated};
use crate::config::diagnostic::Code;
use crate::config::finding::{Finding, Findings};
use crate::config::nearest;
use crate::config::schema::{Action, BodyFormat, Config, HeaderStyle, OnLimit};
use crate::proxy::{Template, TemplateError};

/// The largest body of one's own.
const MAX_BODY: usize = 64 << 10;

pub(super) fn check(config: &Config, findings: &Findings<'_>) {
    let styles = &config.responses.headers;
    report_repeated(
        styles.iter().map(|style| (style.value, style.node)),
        findings,
        |_| ("the same style twice".to_owned(), "remove one of them"),
    );
    let find = |wanted| styles.iter().find(|style| style.value == wanted);
    if let (Some(plain), Some(github)) = (find(HeaderStyle::XRatelimit), find(HeaderStyle::Github))
    {
        let message = "`x-ratelimit` and `github` write the same fields with different meanings";
        let finding = Finding::error(github.node, Code::Conflict, message)
            .related(plain.node, "the other style");
        findings.add(finding.help("choose one: `X-RateLimit-Reset` is seconds from now in `x-ratelimit`, and since 1970 in `github`"));
    }
    check_policy(&config.responses.on_limit, &OnLimit::default(), findings);
}

/// Checks one `on_limit`, which takes what it does not say from `general`.
pub(super) fn check_policy(own: &OnLimit, general: &OnLimit, findings: &Findings<'_>) {
    for (name, value) in own.headers.iter() {
        if is_framing(name.get()) || *name.get() == http::header::RETRY_AFTER {
            let finding = Finding::error(
                value.node,
                Code::Conflict,
                format!("`{}` is written by the proxy", name.value),
            );
            findings.add(finding.help("remove it"));
        }
    }
    if let Some(body) = own
        .body
        .as_ref()
        .filter(|body| body.as_str().len() > MAX_BODY)
    {
        let message = format!(
            "the body has {} bytes; {MAX_BODY} are allowed",
            body.as_str().len()
        );
        findings.add(
            Finding::error(body.node, Code::InvalidValue, message)
                .help("link to a page instead, with `docs_url`"),
        );
    }
    if let Some(name) = own
        .tag_header
        .as_ref()
        .filter(|name| is_framing(name.get()))
    {
        let message = format!("`{}` is written by the proxy", name.value);
        let finding = Finding::error(name.node, Code::Conflict, message);
        findings.add(finding.help("choose another name, as in `x-over-limit`"));
    }
    check_template(own, findings);
    check_action(own, own.action_beside(general), findings);
    match own.inherits(general) {
        true => check_body(own, general, findings),
        false => check_body(own, &OnLimit::default(), findings),
    }
}

/// Settings that suit what happens.
fn check_action(own: &OnLimit, action: Action, findings: &Findings<'_>) {
    let (codes, such_as) = match action {
        Action::Drop | Action::Tag => (200..=599, "any will do"),
        Action::Decoy => (
            200..=399,
            "a decoy has a status from 200 to 399, as a success has",
        ),
        _ => (400..=599, "a refusal has a status from 400 to 599"),
    };
    if let Some(status) = own
        .status
        .as_ref()
        .filter(|code| !codes.contains(&code.get()))
    {
        let message = format!("{} does not fit: {such_as}", status.get());
        let help = "leave it out, or choose another `action`";
        findings.add(Finding::error(status.node, Code::Conflict, message).help(help));
    }
    for (key, node, actions) in own.settings() {
        if !actions.contains(&action) {
            let suited: Vec<_> = actions.iter().map(|action| action.as_str()).collect();
            let message = format!("`{key}` says nothing to `action: {}`", action.as_str());
            let finding = Finding::error(node, Code::NoEffect, message);
            findings.add(finding.help(format!("it is for {}", nearest::list(&suited))));
        }
    }
}

fn check_template(own: &OnLimit, findings: &Findings<'_>) {
    let Some(body) = &own.body else { return };
    let Err(error) = Template::parse(body.as_str()) else {
        return;
    };
    let help = match &error {
        TemplateError::Unclosed => "write `{{{{` for two braces that are no placeholder".to_owned(),
        TemplateError::Unknown(name) => {
            nearest::advice(name, &Template::NAMES, "known placeholders")
        }
    };
    findings.add(Finding::error(body.node, Code::InvalidValue, error.to_string()).help(help));
}

/// `auto` goes by `Accept`, and one body cannot be of several types.
fn check_body(own: &OnLimit, general: &OnLimit, findings: &Findings<'_>) {
    let format = own.format.as_ref().or(general.format.as_ref());
    let is_fixed = format.is_some_and(|format| format.value != BodyFormat::Auto);
    let mut headers = own.headers.iter().chain(general.headers.iter());
    let content_type = headers.find(|(name, _)| *name.get() == http::header::CONTENT_TYPE);
    let body = own.body.as_ref().or(general.body.as_ref());
    match (body, content_type) {
        (Some(_), Some(_)) => {}
        (Some(body), None) if !is_fixed => {
            let node = own.format.as_ref().map_or(body.node, |format| format.node);
            let finding = Finding::error(node, Code::Conflict, "a body without a type")
                .related(body.node, "the body");
            findings.add(finding.help("say what it is: `format: text`, `html`, `json` or `problem`, or a `content-type` under `headers`"));
        }
        (None, Some((_, value))) => {
            let finding =
                Finding::error(value.node, Code::Conflict, "a content type without a body");
            findings.add(finding.help("give a `body`, or choose a `format`"));
        }
        _ => {}
    }
}
