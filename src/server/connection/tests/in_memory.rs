//! Connections without sockets, for tests and the fuzzer.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use super::{ConnectionHandler, detect_version, within_deadline};
use crate::http::connection::{ClientConnection, Scheme};
use crate::http::informational::InformationalQueue;
use crate::http::service::{BoxError, HttpService};
use crate::net::drain::DrainWatcher;
use crate::server::connection_bounds::ConnectionBounds;
use crate::server::connection_guard::ConnectionGuard;
use crate::server::listener::ListenerSettings;
use crate::server::{ClientSpec, CurrentRules, ListenerSpec, Protocols};
use crate::telemetry::metrics::ListenerMetrics;
use crate::telemetry::registry::Registry;

/// Serves a client at `peer` over `io`, in clear text, to the end of the connection.
///
/// # Errors
/// The reason for an end that the client did not ask for.
pub(crate) async fn serve<F, S>(
    io: impl AsyncRead + AsyncWrite + Unpin + 'static,
    peer: SocketAddr,
    client: ClientSpec,
    closing: DrainWatcher,
    factory: F,
) -> Result<(), BoxError>
where
    F: Fn(&ClientConnection) -> S,
    S: HttpService,
{
    let handler = handler(client);
    let guard = guard(&client, &closing, None);
    let detection = detect_version(io, Protocols::Both, handler.first_head());
    let negotiated = within_deadline(handler.first_head(), &guard, detection).await?;
    let connection = connection(peer, closing);
    handler
        .serve_requests(negotiated, connection, factory, guard)
        .await
}

/// A handler of connections that don't begin with a header of the PROXY protocol.
pub(super) fn handler(client: ClientSpec) -> Rc<ConnectionHandler> {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    Rc::new(ConnectionHandler {
        worker: 0,
        settings: Arc::new(ListenerSettings {
            spec: ListenerSpec {
                address: address.into(),
                proxy_protocol: false,
                protocols: Protocols::Both,
                tls: None,
            },
            local: address.into(),
            metrics: Arc::new(ListenerMetrics::new(&Registry::default(), "test")),
            warnings: Arc::default(),
        }),
        http2: super::http2::builder(&client),
        client,
        client_rules: CurrentRules::default(),
        drain: DrainWatcher::default(),
    })
}

/// A connection of a client, in clear text.
pub(crate) fn connection(peer: SocketAddr, closing: DrainWatcher) -> ClientConnection {
    ClientConnection {
        id: 0,
        peer: peer.into(),
        local: SocketAddr::from(([127, 0, 0, 1], 1)).into(),
        asked_port: None,
        scheme: Scheme::Http,
        tls_version: None,
        server_name: None,
        worker: 0,
        informational: InformationalQueue::default(),
        drain: closing,
    }
}

/// The place of the only connection of a server whose exchanges have this bound.
pub(super) fn guard(
    client: &ClientSpec,
    closing: &DrainWatcher,
    max_exchange: Option<Duration>,
) -> ConnectionGuard {
    let bounds = Arc::new(ConnectionBounds::new(client, 1, max_exchange));
    assert!(bounds.permits.try_acquire(), "there is room");
    let metrics = Arc::new(ListenerMetrics::new(&Registry::default(), "test"));
    ConnectionGuard::new(&bounds, 0, None, &metrics, closing.clone())
}
