//! Specs of the store and of the homes of buckets, compiled from the configuration.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::redis::client::Spec;
use super::redis::{Naming, bucket_label};
use crate::limiter::{Algorithm, Secret};

/// Spec of the Redis that buckets are in, or are synchronised through.
#[derive(Clone, Debug)]
pub struct StoreSpec {
    /// Addresses and time-outs of Redis.
    pub client: Spec,
    /// Names of buckets.
    pub naming: Naming,
    /// The secret of fingerprints, equal on all machines; none without a configured secret.
    pub key_secret: Option<Secret>,
    /// Longest time to remember a refusal in this process; zero turns it off.
    pub refusal_cache: Duration,
    /// Longest wait for Redis at a start, or at a reload that names another Redis.
    pub startup_timeout: Duration,
}

/// The home of a policy's buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum Home {
    /// In this process.
    #[default]
    Memory,
    /// In this process, and synchronised with other machines at this interval.
    Synchronised(Duration),
    /// In Redis.
    Redis(OnStoreError),
}

/// The treatment of requests while the store of a policy doesn't answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreError {
    /// Each process decides by buckets of its own.
    #[default]
    Local,
    /// The policy admits all requests.
    Admit,
    /// The policy refuses all requests.
    Refuse,
}

/// The names of buckets in Redis, or of those that are synchronised through it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreNames<'a> {
    pub(super) naming: &'a Naming,
    pub(super) database: u32,
}

impl StoreSpec {
    /// The names of its buckets.
    pub(crate) fn names(&self) -> StoreNames<'_> {
        StoreNames {
            naming: &self.naming,
            database: self.client.database,
        }
    }
}

impl Home {
    /// The store of the buckets: `memory` or `redis`.
    pub const fn store_name(self) -> &'static str {
        match self {
            Self::Memory | Self::Synchronised(_) => Self::Memory.into_str(),
            Self::Redis(_) => self.into_str(),
        }
    }

    /// The interval of synchronising with other machines, if buckets in memory are synchronised.
    pub const fn sync_interval(self) -> Option<Duration> {
        match self {
            Self::Synchronised(interval) => Some(interval),
            Self::Memory | Self::Redis(_) => None,
        }
    }

    /// True if buckets that live here keep their used units under other parameters of their algorithm:
    /// in Redis, if they keep their names.
    pub(crate) fn keeps_units(self, algorithms: [&Algorithm; 2]) -> bool {
        let [old, new] = algorithms.map(|algorithm| bucket_label("", algorithm));
        !matches!(self, Self::Redis(_)) || old == new
    }

    /// The old and the new home in words, if buckets do not move along; `None` if they do.
    pub(crate) fn move_of(
        homes: [(Self, Option<StoreNames<'_>>); 2],
        algorithm: &Algorithm,
    ) -> Option<[&'static str; 2]> {
        let is_staggered = algorithm.is_staggered();
        let [old_names, new_names] = homes.map(|(_, names)| names);
        let has_same_naming = old_names.map(|one| one.naming) == new_names.map(|one| one.naming);
        let homes = homes.map(|(home, _)| home);
        match homes {
            [Self::Redis(_), Self::Redis(_)] => {
                (old_names != new_names).then_some(["redis", "redis with other names"])
            }
            [Self::Synchronised(_), Self::Synchronised(_)] => (is_staggered && !has_same_naming)
                .then_some(["synchronised memory", "the same with other names"]),
            [Self::Memory, Self::Memory] => None,
            [Self::Redis(_), _] | [_, Self::Redis(_)] => Some(homes.map(Self::place)),
            // All machines need the same fingerprints of keys, or none does.
            _ => is_staggered.then(|| homes.map(Self::place)),
        }
    }

    const fn place(self) -> &'static str {
        match self {
            Self::Synchronised(_) => "synchronised memory",
            Self::Memory | Self::Redis(_) => self.into_str(),
        }
    }
}
