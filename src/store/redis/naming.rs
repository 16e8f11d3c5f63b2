//! What buckets are called in Redis: `PREFIX{KEY}POLICY`.
//!
//! The braces make the key alone tell in which slot of a cluster a bucket is, so that policies with the same key are charged
//! by one call.

use std::sync::Arc;

use crate::limiter::Secret;

/// What tells the buckets of one store apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// What all names begin with.
    pub prefix: Arc<str>,
    /// How keys are written.
    pub keys: Keys,
}

/// How keys are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// As 128 bits of a keyed hash. All machines that share the buckets have the same secret.
    Hashed(Secret),
    /// As they are.
    Readable,
}
