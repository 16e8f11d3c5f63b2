//! A key as the body of a request has it.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Deserialize;

use crate::admin::problem_details::ProblemDetails;
use crate::limiter::Fingerprint;
use crate::rules::PartText;

/// A key: the text of its only part, or a list of texts; nothing for a key without parts.
#[derive(Debug, Default, Deserialize)]
#[serde(
    untagged,
    expecting = "`key` is a text, or a list with a text, null or {\"client_ip\": \"192.0.2.1\"} for each part"
)]
pub(super) enum KeyInput {
    #[default]
    None,
    One(String),
    Parts(Vec<PartInput>),
}

/// A part of a key.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum PartInput {
    Value(String),
    /// Requests lack the part, and another part replaces it: its name and value.
    StandIn(BTreeMap<String, String>),
    /// Requests lack the part.
    Missing(()),
}

impl KeyInput {
    /// True if a part has the form of an id, by which logs and answers name keys.
    pub(super) fn has_id(&self) -> bool {
        match self {
            Self::None => false,
            Self::One(text) => text.parse::<Fingerprint>().is_ok(),
            Self::Parts(parts) => parts
                .iter()
                .any(|part| matches!(part, PartInput::Value(text) if text.parse::<Fingerprint>().is_ok())),
        }
    }

    /// The texts of its parts.
    ///
    /// # Errors
    /// A part is neither a text, nor one replacement, nor null.
    pub(super) fn texts(&self) -> Result<Vec<PartText<'_>>, ProblemDetails> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::One(text) => Ok(vec![PartText::Value(text)]),
            Self::Parts(parts) => parts.iter().map(PartInput::text).collect(),
        }
    }
}

impl PartInput {
    fn text(&self) -> Result<PartText<'_>, ProblemDetails> {
        match self {
            Self::Value(text) => Ok(PartText::Value(text)),
            Self::Missing(()) => Ok(PartText::Missing),
            Self::StandIn(parts) => match parts.iter().next() {
                Some((part, value)) if parts.len() == 1 => Ok(PartText::StandIn { part, value }),
                _ => {
                    let detail = "name the one part that replaces a missing one, such as \
                                  {\"client_ip\": \"192.0.2.1\"}";
                    Err(ProblemDetails::new(
                        StatusCode::UNPROCESSABLE_ENTITY,
                        detail,
                    ))
                }
            },
        }
    }
}

/// The answer to an id in place of a key's text.
pub(super) fn id_problem() -> ProblemDetails {
    let detail = "the key is an id, as logs and answers name keys, and no id leads back to its \
                  text: give the text that requests have, such as an API key or an address. Look \
                  for the id in the access log, whose lines have `client_ip` and with \
                  `access_log.headers` the fields of the key; or in `top --json`, which has texts, \
                  too, with `admin.keys: readable`";
    ProblemDetails::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}
