//! Where buckets live.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::located::Located;
use crate::config::value::Size;

/// The size of all buckets in memory.
pub type StoreSize = Size<{ 1 << 20 }, { 1 << 40 }>;

/// `store`: where buckets live.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// In the memory of this process.
    pub memory: Located<MemoryStore>,
}

/// `store.memory`: exact on this machine, and bounded.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryStore {
    /// What all buckets together may take, `1MiB` to `1024GiB`; policies share it equally, but
    /// for those with `max_keys`.
    pub max_size: Located<StoreSize>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            max_size: StoreSize::from_bytes(64 << 20).into(),
        }
    }
}
