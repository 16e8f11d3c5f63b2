//! The connection of a policy to its buckets in Redis.

use super::OnStoreError;
use crate::store::redis::RefusalCache;
use crate::telemetry::log_throttle::LogThrottle;

/// A policy's part in Redis.
#[derive(Debug)]
pub struct RedisBinding {
    /// The policy's name in keys.
    pub(crate) label: Box<str>,
    /// The decision without an answer of Redis.
    pub(crate) on_error: OnStoreError,
    /// Recent refusals of Redis.
    pub(crate) refusals: RefusalCache,
    /// Bounds the log lines about requests that Redis did not decide.
    pub(crate) undecided_log: LogThrottle,
}
