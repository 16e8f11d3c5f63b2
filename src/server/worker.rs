//! One thread with its runtime: accepts connections on its own sockets, and serves them.

use std::{
    cell::Cell,
    io, mem,
    rc::Rc,
    sync::{Arc, mpsc},
    time::Duration,
};

use tokio::{
    runtime::{Builder, LocalOptions, LocalRuntime},
    task::spawn_local,
    time::sleep_until,
};
use tracing::warn;

use super::{
    ClientRules, ClientSpec, ConnectionTable, HttpService, Protocols,
    acceptor::{AcceptWarnings, Acceptor},
    connection::{ConnectionHandler, http2},
    connection_bounds::ConnectionBounds,
    drain::{DrainController, DrainWatcher, ShutdownWatcher},
    tls::Tls,
};
use crate::{
    http::connection::ClientConnection,
    net::listener::{BoundSocket, ListenAddress, Listener},
    telemetry::metrics::ListenerMetrics,
};

/// How long work on other threads, which services wait for, may go on after the last connection.
const LAST_BLOCKING_TASKS: Duration = Duration::from_secs(1);

/// One of a worker's listening sockets, with the settings of its connections.
pub(super) struct BoundListener {
    pub(super) local: ListenAddress,
    pub(super) socket: BoundSocket,
    pub(super) protocols: Protocols,
    pub(super) proxy_protocol: bool,
    pub(super) tls: Option<Tls>,
    pub(super) metrics: Arc<ListenerMetrics>,
    pub(super) warnings: Arc<AcceptWarnings>,
}

/// A worker before its thread starts.
pub(super) struct Worker {
    pub(super) index: usize,
    pub(super) listeners: Vec<BoundListener>,
    pub(super) client: ClientSpec,
    pub(super) client_rules: ClientRules,
    pub(super) table: Option<ConnectionTable>,
    pub(super) bounds: Arc<ConnectionBounds>,
    pub(super) lifetime: ShutdownWatcher,
}

impl Worker {
    /// Serves, once `before_serving` is over, until the server ends. Sends on `started` the reason
    /// why it cannot serve, if any.
    pub(super) fn run<F, S, B, V, E, W>(
        self,
        factory: F,
        before_serving: B,
        after_serving: E,
        started: &mpsc::Sender<io::Result<()>>,
    ) where
        F: Fn(&ClientConnection) -> S + Clone + 'static,
        S: HttpService,
        B: Fn(usize) -> V,
        V: Future<Output = ()>,
        E: Fn(usize) -> W,
        W: Future<Output = ()>,
    {
        let index = self.index;
        match runtime() {
            Ok(runtime) => {
                runtime.block_on(async {
                    self.serve(factory, before_serving(index), started).await;
                    after_serving(index).await;
                });
                // Drops all tasks that are left. A blocking one cannot be cancelled.
                runtime.shutdown_timeout(LAST_BLOCKING_TASKS);
            }
            Err(error) => drop(started.send(Err(error))),
        }
    }

    async fn serve<F, S>(
        mut self,
        factory: F,
        before_serving: impl Future<Output = ()>,
        started: &mpsc::Sender<io::Result<()>>,
    ) where
        F: Fn(&ClientConnection) -> S + Clone + 'static,
        S: HttpService,
    {
        let (closer, closing) = DrainController::new();
        let mut acceptors = Vec::new();
        for listener in mem::take(&mut self.listeners) {
            match self.accept_on(listener, factory.clone(), closing.clone()) {
                Ok(acceptor) => acceptors.push(acceptor),
                Err(error) => return drop(started.send(Err(error))),
            }
        }
        drop(closing);
        // The server may have been dropped already: `lifetime` reports that next.
        let _ = started.send(Ok(()));
        tokio::select! {
            () = before_serving => {}
            _ = self.lifetime.draining() => {}
        }
        acceptors
            .into_iter()
            .for_each(|acceptor| drop(spawn_local(acceptor)));
        let until = self.lifetime.draining().await;
        closer.finish();
        let mut lifetime = self.lifetime.clone();
        let finished = async {
            lifetime.ports_freed().await;
            closer.close();
            closer.closed().await;
        };
        tokio::select! {
            () = finished => {}
            () = self.lifetime.ended() => {}
            () = sleep_until(until) => warn!(worker = self.index, "drain deadline: connections are dropped"),
        }
    }

    /// The future that accepts clients on this socket until `closing`.
    fn accept_on<F, S>(
        &self,
        listener: BoundListener,
        factory: F,
        closing: DrainWatcher,
    ) -> io::Result<impl Future<Output = ()> + use<F, S>>
    where
        F: Fn(&ClientConnection) -> S + Clone + 'static,
        S: HttpService,
    {
        let socket = Listener::new(listener.socket)?;
        let handler = ConnectionHandler {
            worker: self.index,
            local: listener.local,
            http2: http2::builder(&self.client),
            protocols: listener.protocols,
            proxy_protocol: listener.proxy_protocol,
            client: self.client,
            client_rules: self.client_rules.clone(),
            tls: listener.tls,
        };
        let acceptor = Acceptor {
            handler: Rc::new(handler),
            factory,
            accepted: Cell::default(),
            bounds: self.bounds.clone(),
            table: self.table.clone(),
            metrics: listener.metrics,
            closing,
            warnings: listener.warnings,
        };
        Ok(acceptor.run(socket))
    }
}

fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
}
