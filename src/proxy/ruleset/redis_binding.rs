//! The connection of a policy to its buckets in Redis.

use super::OnStoreError;
use crate::proxy::failure_log::FailureLog;
use crate::store::redis::RefusalCache;

/// A policy's part in Redis.
#[derive(Debug)]
pub struct RedisBinding {
    /// The policy's name in keys.
    pub(crate) label: Box<str>,
    /// The decision without an answer of Redis.
    pub(crate) on_error: OnStoreError,
    /// Recent refusals of Redis.
    pub(crate) refusals: RefusalCache,
    /// Answers that cannot be used.
    pub(crate) complaints: FailureLog,
}
