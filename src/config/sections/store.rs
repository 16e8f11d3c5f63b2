//! `store`: the memory of buckets, and Redis.

use crate::config::sections::prelude::*;

/// The size of all buckets in memory.
pub type StoreSize = Size<{ 1 << 20 }, { 1 << 40 }, { 64 << 20 }>;

/// The interval between saves.
pub type SnapshotInterval = Duration<SECOND, DAY, { 30 * SECOND }>;

/// `store`: where buckets live.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct Store {
    /// In the memory of this process.
    pub memory: Located<MemoryStore>,
    /// In Redis, exact over all machines that share it, for policies that say `store: redis`.
    pub redis: Option<Located<RedisStore>>,
}

/// `store.memory`: exact on this machine, and bounded.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct MemoryStore {
    /// The memory of all buckets together, `1MiB` to `1024GiB`; policies share it equally, but for
    /// those with `max_keys`.
    pub max_size: Located<StoreSize>,
    /// A file that buckets outlive the process in; without it they end with it.
    pub snapshot: Option<Located<Snapshot>>,
}

/// `store.memory.snapshot`: buckets are saved there every so often and at the end, and restored
/// from there at the start.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Snapshot {
    /// The file, replaced as a whole; its directory has to be writable.
    pub path: Located<FilePath>,
    /// How often, `1s` to `1d`: so much a crash forgets at most.
    #[serde(default)]
    pub every: Located<SnapshotInterval>,
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
