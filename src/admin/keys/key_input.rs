//! A key as bodies of requests and answers have it.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::policies;
use crate::admin::problem_details::ProblemDetails;
use crate::limiter::Fingerprint;
use crate::proxy::Ruleset;
use crate::proxy::inspect::key::{KeyError, PolicyKey};
use crate::rules::PartText;
use crate::store::SteeringError;

/// The text of the only part, or a list with an item for each part, in the order of `key` of the
/// policy; nothing for a key without parts. A text with the form of an id, such as
/// `k_5f0c1a2b3c4d5e6f`, gets 422 unless a key with this text is stored; in a list it is a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "`key` is a text, or a list with a text, null or {\"client_ip\": \"192.0.2.1\"} for each part"
)]
pub enum Key {
    /// The key has no parts.
    #[default]
    None,
    /// The text of its only part.
    One(String),
    /// Its parts.
    Parts(Vec<PartText>),
}

impl Key {
    /// True if it has the form of an id, by which logs and answers name keys, and isn't in a list.
    pub(super) fn may_be_id(&self) -> bool {
        matches!(self, Self::One(text) if text.parse::<Fingerprint>().is_ok())
    }

    /// The number of its parts.
    pub fn parts(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Parts(parts) => parts.len(),
        }
    }

    /// The texts of its parts.
    pub(super) fn texts(&self) -> Cow<'_, [PartText]> {
        match self {
            Self::None => Cow::default(),
            Self::One(text) => vec![PartText::Value(text.as_str().into())].into(),
            Self::Parts(parts) => parts.into(),
        }
    }
}

/// The answer to an id in place of a key's text.
pub(super) fn id_problem() -> ProblemDetails {
    let detail = "the key is an id, as logs and answers name keys, and no id leads back to its \
                  text: give the text that requests have, such as an API key or an address. Look \
                  for the id in the access log, whose lines have `client_ip` and with \
                  `access_log.headers` the fields of the key; or in `top --json`, which has texts, \
                  too, with `admin.keys: readable`. If requests do have this text, give it in a \
                  list, with `--key-json` on the command line";
    ProblemDetails::impossible(detail)
}

/// The key of a policy with this name.
///
/// # Errors
/// There is no such policy, or no such key of it.
pub(super) fn find<'r>(
    ruleset: &'r Ruleset,
    policy: &str,
    key: &Key,
) -> Result<PolicyKey<'r>, ProblemDetails> {
    let found = ruleset.policy_key(policies::find(ruleset, policy)?, &key.texts());
    found.map_err(|error| match error {
        KeyError::Text(_) if key.may_be_id() => id_problem(),
        _ => ProblemDetails::impossible(error.to_string()),
    })
}

/// The answer to a question that the store does not answer.
pub(super) fn store_problem(error: SteeringError) -> ProblemDetails {
    match error {
        SteeringError::TooManyKeys(_) => ProblemDetails::impossible(error.to_string()),
        SteeringError::Store(_) => ProblemDetails::unavailable(error.to_string()),
    }
}
