//! Connections of a host for requests: a kept one, a new one, or a stream of a shared one.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::{Host, InFlight};
use crate::http::connection::ClientConnection;
use crate::net::file_budget::FilePermit;
use crate::upstream::connector::{OpenConnection, Stream};
use crate::upstream::pool::ConnectionLease;
use crate::upstream::session::{
    Http1Session, Http2Session, PooledConnection, Session, SharedConnection, StreamPermit,
};
use crate::upstream::{Dscp, UpstreamErrorKind};

/// A connection, or a part of one, for one request.
pub(super) enum Opened {
    Exclusive(Box<PooledConnection>),
    Stream(StreamPermit),
}

impl Opened {
    /// The session of a request that `host` counts.
    pub(super) fn session(self, host: InFlight, worker: usize) -> Session {
        match self {
            Self::Exclusive(connection) => Session::Http1(Http1Session {
                connection,
                host,
                worker,
            }),
            Self::Stream(permit) => Session::Http2(Http2Session { permit, host }),
        }
    }
}

/// A new connection.
enum Dialled {
    Exclusive(Box<PooledConnection>),
    Shared(Arc<SharedConnection>),
}

impl Host {
    /// Returns true if requests share connections of HTTP/2.
    pub(super) fn speaks_http2(&self) -> bool {
        self.is_http2.load(Relaxed)
    }

    /// An open connection of this code point that has room. Opens another shared connection, within
    /// `limit`, before streams run out.
    pub(super) fn checkout(
        self: &Arc<Self>,
        worker: usize,
        dscp: Option<Dscp>,
        limit: Duration,
    ) -> Option<Opened> {
        if !self.speaks_http2() {
            let connection = self.pool.checkout(worker, dscp)?;
            return Some(Opened::Exclusive(connection));
        }
        let (permit, runs_out) = self.pool.shared(worker).group(dscp).reserve()?;
        if runs_out {
            self.begin_dial(worker, dscp, limit);
        }
        Some(Opened::Stream(permit))
    }

    /// A new connection, or one that has room meanwhile.
    ///
    /// # Errors
    /// When there is none within `limit`.
    pub(super) async fn open(
        self: &Arc<Self>,
        worker: usize,
        dscp: Option<Dscp>,
        client: &ClientConnection,
        limit: Duration,
    ) -> Result<Opened, UpstreamErrorKind> {
        if self.speaks_http2() {
            if let Some(permit) = self.wait_for_stream(worker, dscp, limit).await? {
                return Ok(Opened::Stream(permit));
            }
            if let Some(connection) = self.pool.checkout(worker, dscp) {
                return Ok(Opened::Exclusive(connection));
            }
        }
        self.make_room();
        let (stream, file) = self.connector.connect(limit, dscp, Some(client)).await?;
        self.health.record_connection();
        if !self.connector.speaks_http2(&stream) {
            return Ok(Opened::Exclusive(self.keep(dscp, stream, file)));
        }
        // The host has begun to speak HTTP/2.
        self.is_http2.store(true, Relaxed);
        drop((stream, file));
        let permit = self.wait_for_stream(worker, dscp, limit).await?;
        let permit = permit.ok_or(UpstreamErrorKind::NoStream(limit))?;
        Ok(Opened::Stream(permit))
    }

    fn open_connection(&self, file: FilePermit) -> OpenConnection {
        OpenConnection::new(self.metrics.connections.hold(1), file)
    }

    fn keep(&self, dscp: Option<Dscp>, stream: Stream, file: FilePermit) -> Box<PooledConnection> {
        let open = self.open_connection(file);
        let lease = if self.connector.sends_proxy_header {
            ConnectionLease::once()
        } else {
            self.pool.lease()
        };
        Box::new(PooledConnection::new(stream, dscp, lease, open))
    }

    /// Waits for a stream of a shared connection. Opens a connection for all requests that wait, if
    /// none is being opened. `None` if the host has chosen HTTP/1.1.
    ///
    /// # Errors
    /// The failure to open it, or no stream within `limit`.
    async fn wait_for_stream(
        self: &Arc<Self>,
        worker: usize,
        dscp: Option<Dscp>,
        limit: Duration,
    ) -> Result<Option<StreamPermit>, UpstreamErrorKind> {
        let deadline = Instant::now() + limit;
        let (changed, dials) = {
            let mut shared = self.pool.shared(worker);
            let group = shared.group(dscp);
            (Arc::clone(&group.changed), group.dials)
        };
        loop {
            // Enabled before the look, so that no change is missed.
            let mut change = pin!(changed.notified());
            change.as_mut().enable();
            {
                let mut shared = self.pool.shared(worker);
                let group = shared.group(dscp);
                if let Some((permit, _)) = group.reserve() {
                    return Ok(Some(permit));
                }
                if let Some(failure) = group.failure_since(dials) {
                    return Err(failure);
                }
            }
            if !self.speaks_http2() {
                return Ok(None);
            }
            self.begin_dial(worker, dscp, limit);
            if timeout_at(deadline, change).await.is_err() {
                return Err(self.late(worker, dscp, limit));
            }
        }
    }

    /// The error of a request that has waited for `limit`.
    fn late(&self, worker: usize, dscp: Option<Dscp>, limit: Duration) -> UpstreamErrorKind {
        if self.pool.shared(worker).group(dscp).is_dialling {
            UpstreamErrorKind::ConnectTimeout {
                after: limit,
                source: None,
            }
        } else {
            UpstreamErrorKind::NoStream(limit)
        }
    }

    /// Opens a shared connection in a task of its own, so that it outlives the request that began
    /// it. Does nothing while one is being opened.
    fn begin_dial(self: &Arc<Self>, worker: usize, dscp: Option<Dscp>, limit: Duration) {
        let changed = {
            let mut shared = self.pool.shared(worker);
            let group = shared.group(dscp);
            if !group.begin_dial() {
                return;
            }
            Arc::clone(&group.changed)
        };
        let host = Arc::clone(self);
        tokio::task::spawn_local(async move {
            let dialled = host.dial(dscp, limit, changed).await;
            host.end_dial(worker, dscp, dialled);
        });
    }

    /// Opens a connection, and begins HTTP/2 if the host speaks it.
    async fn dial(
        &self,
        dscp: Option<Dscp>,
        limit: Duration,
        changed: Arc<Notify>,
    ) -> Result<Dialled, UpstreamErrorKind> {
        let deadline = Instant::now() + limit;
        let (stream, file) = self.connector.connect(limit, dscp, None).await?;
        self.health.record_connection();
        if !self.connector.speaks_http2(&stream) {
            return Ok(Dialled::Exclusive(self.keep(dscp, stream, file)));
        }
        let opened = SharedConnection::open(stream, changed, self.open_connection(file));
        match timeout_at(deadline, opened).await {
            Ok(opened) => opened
                .map(Dialled::Shared)
                .map_err(UpstreamErrorKind::Handshake),
            Err(_) => Err(UpstreamErrorKind::ConnectTimeout {
                after: limit,
                source: None,
            }),
        }
    }

    fn end_dial(
        &self,
        worker: usize,
        dscp: Option<Dscp>,
        dialled: Result<Dialled, UpstreamErrorKind>,
    ) {
        let mut shared = self.pool.shared(worker);
        let group = shared.group(dscp);
        let failure = match dialled {
            Ok(Dialled::Shared(connection)) => {
                self.pool.share(group, connection);
                None
            }
            Ok(Dialled::Exclusive(connection)) => {
                self.is_http2.store(false, Relaxed);
                self.pool.check_in(worker, connection);
                None
            }
            Err(kind) => Some(kind),
        };
        group.end_dial(failure);
    }
}
