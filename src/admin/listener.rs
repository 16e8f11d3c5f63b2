//! The listener of the admin server, and its bounds.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use axum::Router;

use super::hosts::HostCheck;
use super::service::AdminService;
use crate::http::connection::ClientConnection;
use crate::net::listener::passed::PassedSockets;
use crate::server::tls::Tls;
use crate::server::{
    BoundListeners, ClientSpec, ConnectionLife, CurrentRules, HalfClose, ListenerSpec, Protocols,
    Server, ServerSpec, StartError, Timeouts, WorkerHook, no_hook,
};
use crate::telemetry::registry::Registry;

/// The version of HTTP: one answer at a time, while in HTTP/2 a connection may have a hundred.
pub const PROTOCOLS: Protocols = Protocols::Http1;

/// Binds the admin server's address, unless a socket for it was passed.
///
/// # Errors
///
/// An address that cannot be bound.
pub fn bind(
    address: SocketAddr,
    tls: Option<Tls>,
    max_connections: usize,
    registry: &Registry,
    passed: &mut PassedSockets,
) -> Result<BoundListeners, StartError> {
    let spec = spec(listener(address, tls), max_connections);
    BoundListeners::bind(spec, registry, passed)
}

/// Serves this router, once `begin` has run.
///
/// # Errors
///
/// A thread that cannot be started.
pub(super) fn serve(
    bound: BoundListeners,
    router: Router,
    hosts: HostCheck,
    begin: WorkerHook,
) -> Result<Server, StartError> {
    let factory = move |connection: &ClientConnection| {
        AdminService::new(router.clone(), hosts.clone(), connection.peer)
    };
    Server::start_with(bound, factory, begin, no_hook())
}

/// The most connections, if there are files enough.
pub const MAX_CONNECTIONS: usize = 256;

/// The admin listener.
pub fn listener(address: SocketAddr, tls: Option<Tls>) -> ListenerSpec {
    ListenerSpec {
        address: address.into(),
        proxy_protocol: false,
        protocols: PROTOCOLS,
        tls,
    }
}

/// One worker, with bounds that suit operators and their monitoring.
fn spec(listener: ListenerSpec, max_connections: usize) -> ServerSpec {
    ServerSpec {
        name: "admin",
        workers: NonZeroUsize::MIN,
        listeners: vec![listener],
        client: ClientSpec {
            timeouts: Timeouts {
                head: Duration::from_secs(2),
                body: Duration::from_secs(10),
                idle: Duration::from_secs(60),
            },
            max_head: 16 * 1024,
            max_fields: 100,
            max_connections,
            // Older connections give way instead.
            max_connections_per_client: Some(usize::MAX),
            life: ConnectionLife {
                max_requests: u32::MAX,
                max_lifetime: Duration::from_secs(24 * 3600),
            },
            half_close: HalfClose::default(),
        },
        client_rules: CurrentRules::default(),
        max_exchange: Some(Duration::from_secs(10)),
    }
}
