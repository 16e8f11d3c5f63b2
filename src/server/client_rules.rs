//! The rules that tell clients apart, as the running configuration has them.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use crate::http::client_ip::ClientIp;

/// The rules of a server. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ClientRules(Arc<ArcSwap<ClientIp>>);

impl ClientRules {
    /// Shares these rules.
    pub fn new(rules: Arc<ClientIp>) -> Self {
        Self(Arc::new(ArcSwap::new(rules)))
    }

    /// Uses the rules of `other`, which has just been compiled, for connections from now on.
    pub fn adopt(&self, other: &Self) {
        self.0.store(other.0.load_full());
    }

    pub(super) fn load(&self) -> Guard<Arc<ClientIp>> {
        self.0.load()
    }
}
