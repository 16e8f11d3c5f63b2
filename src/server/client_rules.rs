//! The rules of a server, which a reload of the configuration changes.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use http::{HeaderName, HeaderValue};

use crate::http::client_ip::ClientIp;

/// The rules of a server for its clients.
#[derive(Debug, Default)]
pub struct ClientRules {
    /// Tells clients apart.
    pub client_ip: Arc<ClientIp>,
    /// The fields of answers to heads that can't be read, which meet no route.
    pub refusal_fields: Vec<(HeaderName, HeaderValue)>,
}

/// The rules of a server as of now. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CurrentRules(Arc<ArcSwap<ClientRules>>);

impl CurrentRules {
    /// Shares these rules.
    pub fn new(rules: ClientRules) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(rules)))
    }

    /// Uses the rules of `other`, which has just been compiled, for connections from now on.
    pub fn adopt(&self, other: &Self) {
        self.0.store(other.0.load_full());
    }

    pub(super) fn load(&self) -> Guard<Arc<ClientRules>> {
        self.0.load()
    }
}
