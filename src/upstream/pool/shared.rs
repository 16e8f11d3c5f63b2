//! Connections of HTTP/2, which the requests of a worker share. Requests that find no free stream
//! wait for one connection that is opened for all of them, or for a stream that becomes free.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::Notify;

use super::ConnectionLease;
use crate::net::dial::Dscp;
use crate::upstream::error::UpstreamErrorKind;
use crate::upstream::session::{Room, SharedConnection, StreamPermit};

/// The most shared connections of a worker to a host, for each code point.
const MAX_CONNECTIONS: usize = 128;

/// After a host has violated HTTP/2, so many requests share connections by so few: h2 ends the whole
/// connection for one malformed response.
const CAREFUL_REQUESTS: u32 = 1000;
const CAREFUL_STREAMS: u32 = 8;

/// The shared connections of one worker.
#[derive(Debug, Default)]
pub(in crate::upstream) struct SharedConnections(Vec<Group>);

/// The connections of one code point.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Group {
    dscp: Option<Dscp>,
    pub(super) connections: Vec<IdleConnection>,
    /// A dial is under way.
    pub is_dialling: bool,
    /// Requests that are still to share connections by few.
    careful: u32,
    /// How many dials have ended.
    pub dials: u64,
    /// The failure of the last dial.
    failure: Option<UpstreamErrorKind>,
    /// Wakes the requests that wait: a dial or a stream has ended.
    pub changed: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct IdleConnection {
    pub connection: Arc<SharedConnection>,
    pub lease: ConnectionLease,
    /// The number of sweeps before it went idle.
    pub since: u32,
}

impl SharedConnections {
    /// The connections of this code point.
    pub(in crate::upstream) fn group(&mut self, dscp: Option<Dscp>) -> &mut Group {
        let known = self.0.iter().position(|group| group.dscp == dscp);
        let place = known.unwrap_or_else(|| {
            self.0.push(Group {
                dscp,
                ..Group::default()
            });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// Forgets all connections, which end after their requests.
    pub(super) fn close(&mut self) {
        for group in &mut self.0 {
            group.connections.clear();
        }
    }

    /// Closes connections that were idle for `limit` sweeps, and pings those that are silent.
    pub(super) fn sweep(&mut self, now: u32, limit: u32) {
        for group in &mut self.0 {
            group.connections.retain_mut(|shared| {
                if shared.connection.sweep() {
                    shared.since = now;
                }
                let is_fresh = now.wrapping_sub(shared.since) <= limit;
                is_fresh && !shared.lease.is_over(now) && shared.connection.check_room().is_some()
            });
        }
    }
}

impl Group {
    /// Reserves a stream of the first connection that has one free. Also returns true if seven
    /// eighths of the last connection's streams are used, so that another one must be opened.
    pub(in crate::upstream) fn reserve(&mut self) -> Option<(StreamPermit, bool)> {
        let mut place = 0;
        while let Some(IdleConnection {
            connection, lease, ..
        }) = self.connections.get_mut(place)
        {
            match connection.check_room() {
                None => {
                    if connection.state.has_violated.load(Relaxed) {
                        self.careful = CAREFUL_REQUESTS;
                    }
                    self.connections.remove(place);
                }
                Some(Room { free: 0, .. }) => place += 1,
                Some(_)
                    if self.careful > 0
                        && connection.state.streams.load(Relaxed) >= CAREFUL_STREAMS =>
                {
                    place += 1
                }
                Some(Room { free, limit }) => {
                    self.careful = self.careful.saturating_sub(1);
                    let permit = connection.reserve();
                    lease.spend();
                    if lease.is_spent() {
                        // It ends after its requests.
                        self.connections.remove(place);
                        return Some((permit, false));
                    }
                    let is_last = place + 1 == self.connections.len();
                    return Some((permit, is_last && free == limit / 8));
                }
            }
        }
        None
    }

    /// Notes that a dial begins. Returns false if one is under way, there are enough connections, or
    /// the host allows no stream on the last one: it would allow none on another.
    pub(in crate::upstream) fn begin_dial(&mut self) -> bool {
        let last = self.connections.last();
        let begins = !self.is_dialling
            && self.connections.len() < MAX_CONNECTIONS
            && !last.is_some_and(|last| last.connection.is_idle_without_streams());
        self.is_dialling |= begins;
        begins
    }

    /// Notes the end of the dial, and wakes the requests that wait for it.
    pub(in crate::upstream) fn end_dial(&mut self, failure: Option<UpstreamErrorKind>) {
        self.is_dialling = false;
        self.dials += 1;
        self.failure = failure;
        self.changed.notify_waiters();
    }

    /// The failure of the last dial, if it has ended after the first `dials`.
    pub(in crate::upstream) fn failure_since(&self, dials: u64) -> Option<UpstreamErrorKind> {
        let failure = self.failure.as_ref().filter(|_| self.dials > dials);
        failure.map(UpstreamErrorKind::copy)
    }
}
