//! The client's connection, as its requests see it.

use std::sync::Arc;

use super::exchange::RequestContext;
use super::gateway::state::Gateway;
use super::target::{Connection, Sender};
use crate::http::connection::ClientConnection;
use crate::http::forwarded::Forwarding;
use crate::http::headers::Headers;

/// A client's connection, and what all its requests share.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub gateway: Arc<Gateway>,
    pub connection: ClientConnection,
    pub forwarding: Forwarding,
    /// Its requests are those of a list, which take turns to call Redis.
    pub is_list: bool,
}

impl Client {
    pub(super) fn new(gateway: Arc<Gateway>, connection: &ClientConnection) -> Self {
        Client {
            gateway,
            forwarding: Forwarding::new(connection),
            connection: connection.clone(),
            is_list: false,
        }
    }

    /// The client as rules see it.
    pub(super) fn sender(&self, context: &RequestContext, headers: &Headers) -> Sender<'_> {
        let connection = Connection {
            local: Some(&self.connection.local),
            scheme: Some(self.connection.scheme),
            peer: context.trust(),
        };
        let rules = &context.ruleset.whole().client_ip;
        Sender::new(context.client_ip, rules, connection, headers)
    }
}
