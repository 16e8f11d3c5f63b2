//! The rules of a server, which a reload of the configuration changes.

use std::sync::Arc;

use arc_swap::ArcSwap;
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

/// The rules of a server as of now, which a reload stores for connections from then on.
pub type CurrentRules = Arc<ArcSwap<ClientRules>>;
