//! Specs of the store and of the homes of buckets, compiled from the configuration.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::redis::Naming;
use super::redis::client::Spec;
use crate::limiter::{Algorithm, Secret, Start};

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HomeSpec {
    /// In this process.
    #[default]
    Memory,
    /// In this process, and synchronised with other machines at this interval.
    Synchronised(Duration),
    /// In Redis.
    Redis(OnStoreError),
}

/// `on_store_error` of a policy.
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

/// The identity of a home: equal if buckets are found again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HomeIdentity<'a> {
    Memory,
    /// In Redis, with these names, in this database.
    Redis(&'a Naming, u32),
    /// In memory, and synchronised under these names.
    Synchronised(&'a Naming),
}

impl HomeSpec {
    /// The home under this store.
    pub(crate) fn identity(self, store: Option<&StoreSpec>) -> HomeIdentity<'_> {
        match (self, store) {
            (Self::Synchronised(_), Some(store)) => HomeIdentity::Synchronised(&store.naming),
            (Self::Redis(_), Some(store)) => {
                HomeIdentity::Redis(&store.naming, store.client.database)
            }
            _ => HomeIdentity::Memory,
        }
    }
}

impl HomeIdentity<'_> {
    /// The old and the new home, if buckets do not move along; `None` if they do.
    pub(crate) fn move_to(self, next: Self, algorithm: &Algorithm) -> Option<[&'static str; 2]> {
        let is_staggered = matches!(algorithm, Algorithm::FixedWindow(window)
            if matches!(window.start(), Start::Staggered));
        match (self, next) {
            _ if self == next => None,
            (Self::Redis(..), Self::Redis(..)) => Some(["redis", "redis with other names"]),
            (Self::Synchronised(_), Self::Synchronised(_)) if is_staggered => {
                Some(["synchronised memory", "the same with other names"])
            }
            (Self::Redis(..), _) | (_, Self::Redis(..)) => Some([self.name(), next.name()]),
            _ => is_staggered.then(|| [self.name(), next.name()]),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis(..) => "redis",
            Self::Synchronised(_) => "synchronised memory",
        }
    }
}
