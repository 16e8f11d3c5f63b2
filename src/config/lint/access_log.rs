//! The access log: settings without effect, and credentials, also in answers of the admin API.

use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION};

use super::{Finding, RouteLimits, policies};
use crate::config::diagnostic::Code;
use crate::config::schema::{AccessLog, AccessLogFormat, Config};
use crate::config::value::KeyPart;
use crate::config::{Located, NodeId, node_of};
use crate::telemetry::access_log::{KeyForm, LogField};

/// All lints about the access log, and about the keys that the admin API shows.
pub(super) fn options(config: &Config, places: &[RouteLimits<'_>]) -> Vec<Finding> {
    let mut findings = log_options(config, places);
    let keys = &config.admin.value.keys;
    findings.extend(readable_keys(keys, KeyReader::AdminApi, places));
    findings
}

fn log_options(config: &Config, places: &[RouteLimits<'_>]) -> Vec<Finding> {
    let Some(log) = &config.access_log else {
        return Vec::new();
    };
    match log.format.value {
        AccessLogFormat::Disabled => Vec::new(),
        AccessLogFormat::Combined => without_effect_in_combined(log),
        AccessLogFormat::Json => {
            let mut findings = without_effect_in_json(log);
            findings.extend(logged_fields(config, log));
            let keys = log.keys.iter();
            findings.extend(keys.flat_map(|keys| readable_keys(keys, KeyReader::Log, places)));
            findings
        }
    }
}

fn no_effect(node: NodeId, message: impl Into<String>) -> Finding {
    Finding::warning(node, Code::NoEffect, message)
}

/// Warns of options of JSON lines.
fn without_effect_in_combined(log: &AccessLog) -> Vec<Finding> {
    let options = [
        ("keys", node_of(&log.keys)),
        (
            "headers",
            (!log.headers.is_empty()).then_some(log.headers.node),
        ),
        ("fields", node_of(&log.fields)),
    ];
    let given = options
        .into_iter()
        .filter_map(|(key, node)| Some((key, node?)));
    let findings = given.map(|(key, node)| {
        no_effect(
            node,
            format!("lines of the combined format have no `{key}`"),
        )
        .related(log.format.node, "the format")
        .help(format!("use `format: json`, or remove `{key}`"))
    });
    findings.collect()
}

/// Warns of options of fields that lines do not have, and of a field that is always absent.
fn without_effect_in_json(log: &AccessLog) -> Vec<Finding> {
    let Some(fields) = &log.fields else {
        return Vec::new();
    };
    let of = |field: LogField| fields.iter().find(|one| one.value == field);
    let mut findings = Vec::new();
    if of(LogField::Headers).is_none() && !log.headers.is_empty() {
        findings.push(option_without_field(
            log.headers.node,
            "headers",
            fields.node,
        ));
    }
    if let (None, Some(keys)) = (of(LogField::Key), &log.keys) {
        findings.push(option_without_field(keys.node, "key", fields.node));
    }
    if let Some(field) = of(LogField::Headers).filter(|_| log.headers.is_empty()) {
        let finding = no_effect(field.node, "no header field is logged");
        findings.push(finding.help("name them in `access_log.headers`, or remove `headers` here"));
    }
    findings
}

fn option_without_field(node: NodeId, field: &str, fields: NodeId) -> Finding {
    no_effect(node, format!("lines do not have the field `{field}`"))
        .related(fields, "the fields that they have")
        .help(format!("add `{field}` to `fields`, or remove the option"))
}

/// Warns of header fields that have credentials.
fn logged_fields<'a>(
    config: &'a Config,
    log: &'a AccessLog,
) -> impl Iterator<Item = Finding> + use<'a> {
    let token = config.jwt.as_ref().map(|jwt| jwt.header.get());
    let is_secret = move |name: &HeaderName| is_credential(name) || token == Some(name);
    let secret = log.headers.iter().filter(move |name| is_secret(name.get()));
    secret.map(|name| {
        credentials(
            name.node,
            format!("a reader of the log can use what `{}` has", name.value),
        )
        .help("remove it; log what the upstream calls the client, if there is a field for that")
    })
}

/// The reader of the text of keys.
#[derive(Clone, Copy)]
enum KeyReader {
    Log,
    AdminApi,
}

/// Warns of keys with credentials that somebody reads as text.
fn readable_keys<'a>(
    keys: &'a Located<KeyForm>,
    reader: KeyReader,
    places: &'a [RouteLimits<'a>],
) -> impl Iterator<Item = Finding> + use<'a> {
    let (who, shown) = match reader {
        KeyReader::Log => ("a reader of the log", "keys are logged as they are"),
        KeyReader::AdminApi => ("a caller of the admin API", "keys are shown as they are"),
    };
    let readable = (keys.value == KeyForm::Readable).then_some(keys.node);
    let parts = readable.into_iter().flat_map(move |readable| {
        let parts = policies(places).into_iter();
        let parts = parts.flat_map(|applied| applied.policy.key.0.iter());
        parts.map(move |part| (readable, part))
    });
    let parts = parts.filter(|(_, part)| has_credentials(part));
    parts.map(move |(readable, part)| {
        let finding = credentials(
            part.node,
            format!("{who} can use what `{}` has", part.value),
        );
        let finding = finding.related(readable, shown);
        finding.help("use hashes, as without `keys: readable`")
    })
}

fn credentials(node: NodeId, message: String) -> Finding {
    Finding::warning(node, Code::LoggedCredentials, message)
}

fn has_credentials(part: &Located<KeyPart>) -> bool {
    match &part.value {
        KeyPart::Cookie(_) => true,
        KeyPart::Header(name) => is_credential(name.get()),
        _ => false,
    }
}

fn is_credential(name: &HeaderName) -> bool {
    [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name)
}
