//! The warning about keys of other programs in Redis.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::client::{Fault, FaultKind};

/// A warning, logged once until a round succeeds. The client logs faults
/// of the server.
#[derive(Debug)]
pub(in crate::store) struct ForeignKeyWarning {
    consequence: &'static str,
    has_warned: AtomicBool,
}

impl ForeignKeyWarning {
    /// A warning that names this consequence.
    pub(in crate::store) const fn new(consequence: &'static str) -> Self {
        Self {
            consequence,
            has_warned: AtomicBool::new(false),
        }
    }

    /// Notes how a round has ended.
    pub(super) fn note(&self, fault: Option<&Fault>) {
        match fault {
            Some(fault) => self.log(fault),
            None => self.has_warned.store(false, Relaxed),
        }
    }

    fn log(&self, fault: &Fault) {
        if fault.kind == FaultKind::Script && !self.has_warned.swap(true, Relaxed) {
            let (consequence, advice) = (self.consequence, fault.kind.advice());
            tracing::warn!(advice, "{consequence}: the Redis store {fault}");
        }
    }
}
