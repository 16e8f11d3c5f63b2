//! The client's connection, as its requests see it.

use std::sync::Arc;

use super::gateway::state::Gateway;
use crate::http::connection::ClientConnection;
use crate::http::forwarded::Forwarding;

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
}
