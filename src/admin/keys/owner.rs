//! The owner of a key, for people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::key_input::Key;
use crate::limiter::Fingerprint;
use crate::proxy::activity::KeyRecord;
use crate::proxy::ruleset::Policy;
use crate::proxy::{Gateway, Ruleset};
use crate::rules::PartText;

/// The text of a key and its user, if it was refused or watched in the last 15 minutes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct KeyOwner {
    /// The key as /v1/keys/lookup takes it. Null unless admin.keys is readable or it is a client's name,
    /// and for values of more than 256 bytes.
    pub key: Option<Key>,
    /// The name in `clients` of the client that used the key first. Null for keys that all clients share.
    pub client: Option<Box<str>>,
    /// The address that used it first. Null unless admin.keys is readable, and for keys that all clients
    /// share.
    pub address: Option<Box<str>>,
}

impl KeyOwner {
    /// The owner of a key that was recorded.
    pub(in crate::admin) fn of(ruleset: &Ruleset, policy: &Policy, record: &KeyRecord) -> Self {
        let texts = record.texts.as_deref();
        Self {
            key: readable(ruleset, policy, record),
            client: texts.and_then(|texts| texts.client.clone()),
            address: texts.and_then(|texts| texts.address.clone()),
        }
    }

    /// The owner of a key of a policy, if known.
    pub(in crate::admin) fn find(gateway: &Gateway, policy: &Policy, key: Fingerprint) -> Self {
        let record = gateway.activity.record_of(policy.name_hash, key);
        let owner = record.map(|record| Self::of(&gateway.ruleset(), policy, &record));
        owner.unwrap_or_default()
    }
}

/// The key as `/v1/keys/lookup` takes it. `None` if that would find another bucket: a reload may
/// have changed the parts of the key.
fn readable(ruleset: &Ruleset, policy: &Policy, record: &KeyRecord) -> Option<Key> {
    let parts = record.texts.as_ref()?.key.as_deref()?;
    let found = ruleset.policy_key(policy, parts).ok()?;
    if found.fingerprint() != record.key {
        return None;
    }
    Some(match parts {
        [PartText::Value(value)] => Key::One(value.to_string()),
        _ => Key::Parts(parts.to_vec()),
    })
}
