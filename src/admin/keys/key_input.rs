//! A key as bodies of requests and answers have it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::policies;
use crate::admin::problem_details::ProblemDetails;
use crate::limiter::Fingerprint;
use crate::proxy::Ruleset;
use crate::proxy::inspect::key::{KeyError, PolicyKey};
use crate::proxy::ruleset::Policy;
use crate::rules::PartText;
use crate::store::SteeringError;

/// The text of the only part, or a list with an item for each part, in the order of `key` of the
/// policy; nothing for a key without parts. `{"client": "acme"}` is that of a client by its name and
/// columns, and `{"any": "acme"}` what the text can be. A text with the form of an id, such as
/// `k_5f0c1a2b3c4d5e6f`, gets 422 unless a key with this text is stored; in a list it is a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "`key` is a text, or a list with a text, null or {\"client_ip\": \"192.0.2.1\"} for each part, {\"client\": \"NAME\"} or {\"any\": \"TEXT\"}"
)]
pub enum Key {
    /// The key has no parts.
    #[default]
    None,
    /// The text of its only part.
    One(String),
    /// Its parts.
    Parts(Vec<PartText>),
    /// Its parts are the name and columns of this client.
    Client {
        /// The name.
        client: String,
    },
    /// The name of a client, the address of a client without a key, or the only part: all that a text can be.
    Any {
        /// The text.
        any: String,
    },
}

impl Key {
    /// True if it has the form of an id, by which logs and answers name keys, and isn't in a list.
    pub(super) fn may_be_id(&self) -> bool {
        matches!(self, Self::One(text) | Self::Any { any: text } if text.parse::<Fingerprint>().is_ok())
    }

    /// The number of its parts.
    pub fn parts(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) | Self::Client { .. } | Self::Any { .. } => 1,
            Self::Parts(parts) => parts.len(),
        }
    }

    /// Finds it among the keys of this policy.
    ///
    /// # Errors
    /// The policy has no such key.
    pub(super) fn of<'r>(
        &self,
        ruleset: &'r Ruleset,
        policy: &Policy,
    ) -> Result<PolicyKey<'r>, KeyError> {
        match self {
            Self::None => ruleset.policy_key(policy, &[]),
            Self::One(text) => ruleset.policy_key(policy, &[PartText::Value(text.as_str().into())]),
            Self::Parts(parts) => ruleset.policy_key(policy, parts),
            Self::Client { client } => ruleset.client_key(policy, client),
            Self::Any { any } => {
                let address = [("client_ip".into(), any.as_str().into())].into();
                // Such a policy has the address as its own part.
                let mut parts = policy.key_parts.iter();
                let is_of_address = parts.any(|part| part.starts_with("client_ip"));
                let found = ruleset.client_key(policy, any);
                let found = found.or_else(|error| {
                    if is_of_address {
                        Err(error)
                    } else {
                        ruleset.policy_key(policy, &[PartText::StandIn(address)])
                    }
                });
                found.or_else(|_| Self::One(any.clone()).of(ruleset, policy))
            }
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
    let found = key.of(ruleset, policies::find(ruleset, policy)?);
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
