//! The warning about keys of other programs in Redis.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::client::{Fault, FaultKind};

/// A warning, logged once until a round succeeds. The client logs faults of the server.
#[derive(Debug, Default)]
pub(in crate::store) struct ForeignKeyWarning(AtomicBool);

impl ForeignKeyWarning {
    /// Notes how a round has ended, and warns of the consequence of foreign keys.
    pub(super) fn note(&self, fault: Option<&Fault>, consequence: &str) {
        match fault {
            None => self.0.store(false, Relaxed),
            Some(fault) if fault.kind == FaultKind::Script && !self.0.swap(true, Relaxed) => {
                let advice = fault.kind.advice();
                tracing::warn!(advice, "{consequence}: the Redis store {fault}");
            }
            Some(_) => {}
        }
    }
}
