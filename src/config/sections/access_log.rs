//! `access_log`: which lines, and what they have of a request.

use crate::config::sections::prelude::*;
use crate::telemetry::access_log::{AccessLogSpec, KeyForm, LineFormat, LogField, LogTarget};

/// The most header fields that a line may have.
const MAX_HEADERS: usize = 16;

/// `access_log`: a line a request, written in batches; lines that cannot be written in time are
/// dropped and counted.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct AccessLog {
    /// How a line looks; `disabled` writes none.
    pub format: Located<AccessLogFormat>,
    /// `stdout`, or a file, which SIGUSR1 reopens.
    pub path: Located<LogTarget>,
    /// How a JSON line shows the key of the deciding bucket.
    pub keys: Option<Located<KeyForm>>,
    /// Header fields of requests that JSON lines have, 16 at most; a value has up to 1024 bytes.
    #[schemars(length(max = 16))]
    pub headers: List<FieldName>,
    /// Columns of `clients` that JSON lines have beside the name, 16 at most:
    /// `client:COLUMN`.
    #[schemars(length(max = 16))]
    pub client_columns: List<Text>,
    /// The fields of JSON lines, in their order; all of them unless given.
    #[schemars(length(min = 1))]
    pub fields: Option<List<LogField>>,
}

/// How a line of the access log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessLogFormat {
    /// An object a line.
    #[default]
    Json,
    /// The format of that name, as Apache and nginx have it.
    Combined,
    /// No log.
    Disabled,
}

/// Reports lists that are empty, too long, or name a field twice.
pub(crate) fn check(config: &Config, findings: &Findings<'_>) {
    let Some(log) = &config.access_log else {
        return;
    };
    report_twice(&log.headers, findings);
    report_twice(&log.client_columns, findings);
    if let Some(beyond) = log.client_columns.get(MAX_HEADERS) {
        findings.add(invalid(
            beyond.node,
            format!("more than {MAX_HEADERS} columns"),
        ));
    }
    if let Some(beyond) = log.headers.get(MAX_HEADERS) {
        let message = format!("more than {MAX_HEADERS} header fields");
        findings.add(invalid(beyond.node, message).help("name those alone that limits read"));
    }
    if let Some(fields) = &log.fields {
        report_empty(
            fields,
            findings,
            "name the fields, or remove the key for all of them",
        );
        report_twice(fields, findings);
    }
}

impl Compiler<'_> {
    /// The access log, unless it is disabled.
    pub(crate) fn access_log(&self, log: &AccessLog) -> Option<AccessLogSpec> {
        let format = match log.format.value {
            AccessLogFormat::Json => LineFormat::Json,
            AccessLogFormat::Combined => LineFormat::Combined,
            AccessLogFormat::Disabled => return None,
        };
        let target = match &log.path.value {
            LogTarget::Stdout => LogTarget::Stdout,
            LogTarget::File(path) => LogTarget::File(self.resolve(path)),
        };
        let keys = log.keys.as_ref();
        Some(AccessLogSpec {
            format,
            target,
            fields: match &log.fields {
                Some(fields) => fields.values(),
                None => LogField::all().collect(),
            },
            keys: keys.map_or(KeyForm::default(), |keys| keys.value),
            headers: log.headers.iter().map(|name| name.get().clone()).collect(),
            client_columns: log
                .client_columns
                .iter()
                .map(|name| name.as_str().into())
                .collect(),
        })
    }
}
