//! Connections of a host for requests: a kept one, a new one, or a stream of a shared one.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::Host;
use crate::net::file_budget::FilePermit;
use crate::upstream::connector::Stream;
use crate::upstream::pool::ConnectionLease;
use crate::upstream::session::{PooledConnection, Session, SharedConnection, StreamPermit};
use crate::upstream::{ConnectionWish, Dscp, OutboundRequest, UpstreamErrorKind};

impl Host {
    /// Returns true if requests share connections of HTTP/2.
    pub(super) fn speaks_http2(&self) -> bool {
        self.is_http2.load(Relaxed)
    }

    /// A kept session. Opens another shared connection before streams run out.
    pub(super) fn checkout(self: &Arc<Self>, outbound: &OutboundRequest<'_>) -> Option<Session> {
        let wish = outbound.connection();
        if !self.speaks_http2() {
            let connection = self.pool.checkout(wish.worker, wish.dscp)?;
            return Some(Session::Http1(connection));
        }
        let mut shared = self.pool.shared(wish.worker);
        let (permit, runs_out) = shared.group(wish.dscp).reserve()?;
        drop(shared);
        if runs_out {
            self.begin_dial(wish);
        }
        Some(Session::Http2(permit))
    }

    /// A session over a new connection, or over one that has room meanwhile.
    ///
    /// # Errors
    /// When there is none in time.
    pub(super) async fn open(
        self: &Arc<Self>,
        outbound: &OutboundRequest<'_>,
    ) -> Result<Session, UpstreamErrorKind> {
        let wish = outbound.connection();
        let ConnectionWish { dscp, limit, .. } = wish;
        if self.speaks_http2() {
            if let Some(permit) = self.wait_for_stream(wish).await? {
                return Ok(Session::Http2(permit));
            }
            if let Some(connection) = self.pool.checkout(wish.worker, dscp) {
                return Ok(Session::Http1(connection));
            }
        }
        self.make_room();
        let opened = self.connector.connect(limit, dscp, Some(outbound.client));
        let (stream, file) = opened.await?;
        self.health.record_connection();
        if !self.connector.speaks_http2(&stream) {
            return Ok(Session::Http1(self.keep(dscp, stream, file)));
        }
        // The host has begun to speak HTTP/2.
        self.is_http2.store(true, Relaxed);
        drop((stream, file));
        let permit = self.wait_for_stream(wish).await?;
        let permit = permit.ok_or(UpstreamErrorKind::NoStream(limit))?;
        Ok(Session::Http2(permit))
    }

    fn keep(&self, dscp: Option<Dscp>, stream: Stream, file: FilePermit) -> Box<PooledConnection> {
        let open = (self.metrics.connections.hold(1), file);
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
    /// The failure to open it, or no stream in time.
    async fn wait_for_stream(
        self: &Arc<Self>,
        wish: ConnectionWish,
    ) -> Result<Option<StreamPermit>, UpstreamErrorKind> {
        let deadline = Instant::now() + wish.limit;
        let (changed, dials) = {
            let mut shared = self.pool.shared(wish.worker);
            let group = shared.group(wish.dscp);
            (Arc::clone(&group.changed), group.dials)
        };
        loop {
            // Enabled before the look, so that no change is missed.
            let mut change = pin!(changed.notified());
            change.as_mut().enable();
            {
                let mut shared = self.pool.shared(wish.worker);
                let group = shared.group(wish.dscp);
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
            self.begin_dial(wish);
            if timeout_at(deadline, change).await.is_err() {
                let mut shared = self.pool.shared(wish.worker);
                return Err(if shared.group(wish.dscp).is_dialling {
                    UpstreamErrorKind::late(wish.limit)
                } else {
                    UpstreamErrorKind::NoStream(wish.limit)
                });
            }
        }
    }

    /// Opens a shared connection in a task of its own, so that it outlives the request that began
    /// it. Does nothing while one is being opened.
    fn begin_dial(self: &Arc<Self>, wish: ConnectionWish) {
        let mut shared = self.pool.shared(wish.worker);
        let group = shared.group(wish.dscp);
        if !group.begin_dial() {
            return;
        }
        let (host, changed) = (Arc::clone(self), Arc::clone(&group.changed));
        tokio::task::spawn_local(async move {
            let failure = host.dial(wish, changed).await.err();
            let mut shared = host.pool.shared(wish.worker);
            shared.group(wish.dscp).end_dial(failure);
        });
    }

    /// Opens a connection, and begins HTTP/2 if the host speaks it. Adds it to the pool.
    async fn dial(
        &self,
        wish: ConnectionWish,
        changed: Arc<Notify>,
    ) -> Result<(), UpstreamErrorKind> {
        let ConnectionWish { dscp, limit, .. } = wish;
        let deadline = Instant::now() + limit;
        let (stream, file) = self.connector.connect(limit, dscp, None).await?;
        self.health.record_connection();
        if !self.connector.speaks_http2(&stream) {
            self.is_http2.store(false, Relaxed);
            self.pool
                .check_in(wish.worker, self.keep(dscp, stream, file));
            return Ok(());
        }
        let open = (self.metrics.connections.hold(1), file);
        let opened = SharedConnection::open(stream, changed, open);
        let opened = timeout_at(deadline, opened).await;
        let opened = opened.map_err(|_| UpstreamErrorKind::late(limit))?;
        let connection = opened.map_err(UpstreamErrorKind::Handshake)?;
        self.pool.share(wish.worker, dscp, connection);
        Ok(())
    }
}
