//! `clients`: who the clients are, by the keys that they send.

mod append;
mod csv;
mod read;

use std::sync::Arc;

use http::StatusCode;

use crate::config::sections::prelude::*;
use crate::rules::{self, Access, Credential, StringMatcher, StringPattern};

pub use append::{add_client, hashed_key};
pub(crate) use read::{KEY, MAX_FILE, NAME, clear_text_keys};

by_form! {
    /// Where requests have their keys.
    pub enum IdentifyBy("IdentifyBy", "where requests have the key, as in `header:x-api-key`, or a list of which the first present counts") {
        /// One place.
        One(KeySource) = "scalar",
        /// Several: the first that a request has counts.
        Several(List<KeySource>) = "sequence",
    }
}

/// The handling of requests without the key of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownClients {
    /// They are answered 401.
    // A key that is forgotten, mistyped or revoked shows at once.
    #[default]
    Refuse,
    /// They are served: `client` is missing.
    Anonymous,
}

/// `clients`: the known clients, which a limit's key, conditions and logs name `client`, and their
/// columns, `client:COLUMN`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("anyOf" = [{ "required": ["files"] }, { "required": ["list"] }]))]
pub struct Clients {
    /// Where requests have the key: `bearer` (the token after it in Authorization), `basic_user`,
    /// `header:NAME`, `query:NAME` or `cookie:NAME`; or a list of these, of which the first that a
    /// request has counts.
    pub identify_by: Located<IdentifyBy>,
    /// CSV files with a client's key in each line, 512 MiB at most, read again when they change.
    /// The first line names the columns, of which `key` and `name` are needed.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub files: List<FilePath>,
    /// Clients in place, each with `key`, `name` and further columns.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub list: List<Table<Text, Hidden<Text>>>,
    /// `refuse` answers requests without the key of a client 401; `anonymous` serves them.
    #[serde(default)]
    pub unknown: Located<UnknownClients>,
    /// The column, of at most 20 values, that becomes a label of the metrics of limits.
    pub metric_label: Option<Located<Text>>,
}

impl IdentifyBy {
    fn credentials(&self) -> Vec<Credential> {
        let sources = match self {
            Self::One(source) => vec![source],
            Self::Several(list) => list.iter().map(|one| &one.value).collect(),
        };
        sources
            .into_iter()
            .map(|source| source.get().clone())
            .collect()
    }
}

/// Checks what can be said without the files.
pub(crate) fn check(config: &Config, findings: &Findings<'_>) {
    let used = || config.used_parts().filter(|(part, _)| part.is_of_client());
    let Some(clients) = &config.clients else {
        for (part, node) in used() {
            let finding = missing(node, format!("nothing says who the client of `{part}` is"));
            findings.add(finding.help(
                "name the clients: `clients: { identify_by: header:x-api-key, files: [clients.csv] }`",
            ));
        }
        return;
    };
    if clients.files.is_empty() && clients.list.is_empty() {
        let finding = missing(clients.node, "no client is named");
        findings.add(finding.help("name files: `files: [clients.csv]`, or clients in a `list`"));
    }
    if clients.unknown.value == UnknownClients::Anonymous && used().next().is_none() {
        let finding = Finding::warning(clients.node, Code::Unused, "nothing uses a client");
        findings.add(
            finding
                .at_key()
                .help("name it, as in `key: client`, or remove the section"),
        );
    }
    report_twice(&clients.files, findings);
    if let IdentifyBy::Several(list) = &clients.identify_by.value {
        report_empty(
            list,
            findings,
            "name one at least, as in `[bearer, header:x-api-key]`",
        );
        report_twice(list, findings);
    }
    for client in clients.list.iter() {
        for needed in [KEY, NAME] {
            if !client.iter().any(|(column, _)| column.as_str() == needed) {
                let finding = missing(client.node, format!("the client has no `{needed}`"));
                findings.add(finding.help("write `{ key: \"sha256:..\", name: acme, plan: pro }`"));
            }
        }
    }
}

/// The rule that refuses requests without the key of a client.
pub(crate) fn refusal(config: &Config) -> Option<Arc<Access>> {
    let clients = config.clients.as_ref()?;
    (clients.unknown.value == UnknownClients::Refuse).then(|| {
        let any = StringMatcher::new(StringPattern::Prefix(Box::default()), false);
        let credentials = clients.identify_by.credentials();
        Arc::new(Access {
            place: "clients.unknown".to_owned(),
            allow: vec![rules::Condition::Value(rules::KeyPart::Client, any)],
            deny: Vec::new(),
            status: StatusCode::UNAUTHORIZED,
            retry_after: None,
            challenge: Some(rules::Clients::challenge(&credentials)),
        })
    })
}
