//! `store.redis`, and the options of policies in Redis.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::located::{List, Located};
use crate::config::schema::{MINUTE, SECOND, UpstreamTls};
use crate::config::sections::secret_value::SecretValue;
use crate::config::value::{Duration, Flag, KeyPrefix, ServerAddress, Text, Whole};
use crate::config::words::words;
use crate::store::OnStoreError;

/// `store.redis`: where Redis, or Valkey, is, and what things are called there.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [{ "required": ["url"] }, { "required": ["cluster"] }, { "required": ["sentinel"] }]))]
pub struct RedisStore {
    /// One server: `redis://user:password@host:6379/0`, or `rediss://` with TLS. User and password
    /// are percent-encoded. A secret: it may also be in a file.
    pub url: Option<Located<SecretValue>>,
    /// Some nodes of a cluster, which know the others; port 6379 unless given.
    #[schemars(length(min = 1))]
    pub cluster: Option<List<ServerAddress>>,
    /// Sentinels, which know the master.
    pub sentinel: Option<Located<Sentinel>>,
    /// As whom to speak to servers, where `url` does not say it.
    pub user: Option<Located<Text>>,
    /// The password, where `url` does not say it; none where it is empty. It may be in a file.
    pub password: Option<Located<SecretValue>>,
    /// The number of the database, with `sentinel`; `url` has it in its path, and a cluster has one
    /// alone.
    pub database: Option<Located<RedisDatabase>>,
    /// TLS towards servers, and sentinels too. With `cluster` and `sentinel` `tls: {}` turns it on.
    pub tls: Option<Located<UpstreamTls>>,
    /// The longest that a request waits for Redis, `1ms` to `1s`.
    pub timeout: Located<RedisTimeout>,
    /// The longest that a start waits until Redis is connected, and a reload that names another
    /// Redis, `0s` to `1m`. After that `on_store_error` decides.
    pub startup_timeout: Located<StartupTimeout>,
    /// The beginning of all names in Redis.
    pub prefix: Located<KeyPrefix>,
    /// The secret that keys are hashed under, 16 characters at least and the same on all machines.
    /// Without it, readers of Redis can guess keys by trial. It may be in a file.
    pub secret: Option<Located<SecretValue>>,
    /// `true` writes keys as they are, instead of hashes.
    pub readable_keys: Located<Flag>,
    /// For how long a refusal is remembered here, without asking again, `0s` to `1m`: a larger
    /// quota or a bucket that was reset elsewhere is felt after that at the latest.
    pub refusal_cache: Located<RefusalCache>,
}

/// The deadline of a call.
pub type RedisTimeout = Duration<1, SECOND, 100>;

/// The longest wait of a start for Redis.
pub type StartupTimeout = Duration<0, MINUTE, { 3 * SECOND }>;

/// The interval between synchronisations of buckets in memory.
pub type SyncInterval = Duration<10, SECOND>;

/// The lifetime of remembered refusals.
pub type RefusalCache = Duration<0, MINUTE, SECOND>;

/// The number of a database.
pub type RedisDatabase = Whole<0, 1_000_000>;

/// `store.redis.sentinel`: who knows where the master is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sentinel {
    /// Some sentinels; port 26379 unless given.
    #[schemars(length(min = 1))]
    pub addresses: List<ServerAddress>,
    /// The sentinels' name of the master.
    pub master: Located<Text>,
    /// As whom to ask them.
    pub user: Option<Located<Text>>,
    /// The sentinels' password, which is not that of the servers; none where it is empty.
    pub password: Option<Located<SecretValue>>,
}

/// `store` of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreName {
    /// The memory of this process.
    #[default]
    Memory,
    /// Redis, as `store.redis` says.
    Redis,
}

words! {
    /// `on_store_error` of a policy.
    "OnStoreError" for OnStoreError {
        /// Each process decides by buckets of its own.
        Local = "local",
        /// The policy admits all requests.
        Admit = "admit",
        /// The policy refuses all requests.
        Refuse = "refuse",
    }
}
