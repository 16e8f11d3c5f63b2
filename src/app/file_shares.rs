//! File descriptors: as many as the system lets the process have, and who may take them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::config_log::WarningLog;
use crate::admin::listener;
use crate::net::file_budget;
use crate::proxy::Gateway;
use crate::server::ServerSpec;

/// Descriptors for logs, files that are read, and listeners.
const RESERVED: u64 = 64;

/// Descriptors of a worker: its runtime, and its connections to Redis.
const PER_WORKER: u64 = 8;

/// The requests at upstreams that are allowed if there are files enough, or as many as clients.
const UPSTREAM_REQUESTS: usize = 20_000;

/// The files of the process. Proxied traffic takes those of clients and upstreams alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileShares {
    /// The most connections of clients.
    pub clients: usize,
    /// The most connections to upstreams.
    pub upstreams: usize,
    /// The most requests in flight at upstreams, each of which may need a connection.
    pub upstream_requests: usize,
    /// The most connections of the admin listener.
    pub admin: usize,
}

/// Raises the soft limit of open files to the hard one, and divides it. Logs a warning if that is
/// too little for `max_connections`.
///
/// The soft limit is 1024 on most systems for the sake of programs that use select(2), which this is
/// none of (systemd.exec(5)).
pub(super) fn raise_and_divide(server: &ServerSpec, warnings: &WarningLog) -> FileShares {
    let max_connections = server.client.max_connections;
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: found.maximum,
        maximum: found.maximum,
    };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => found.maximum,
        Err(_) => found.current,
    };
    // Without a number there is no limit.
    let limit = limit.unwrap_or(u64::MAX);
    let per_worker = PER_WORKER + server.listeners.len() as u64;
    let own = RESERVED + per_worker * server.workers.get() as u64;
    let shares = FileShares::new(limit, own, max_connections);
    let FileShares { clients, .. } = shares;
    let few_clients = (clients < max_connections).then_some(clients);
    if warnings.note_shortage(few_clients) {
        tracing::warn!(
            max_connections,
            limit,
            "the limit of open files is low: {clients} clients are served at a time, and others wait; raise the limit \
             (ulimit -n, LimitNOFILE=), or lower client.max_connections"
        );
    }
    shares
}

impl FileShares {
    /// Lets upstreams take their share from now on.
    pub(super) fn limit_upstreams(&self, gateway: &Gateway) {
        file_budget::UPSTREAMS.limit(self.upstreams);
        gateway.upstream_shares.limit(self.upstream_requests);
    }

    /// The shares of `limit` files, of which the process needs `own`. Each client has a file for its request at an
    /// upstream:
    ///
    /// - admin: `limit / 32`, at least 16 and at most the bound of the listener, or `limit / 8`
    /// - traffic: `limit - own - admin`, at least `limit / 2`
    /// - clients: `max_connections`, at most `traffic / 2`
    /// - upstreams: `traffic - clients`
    fn new(limit: u64, own: u64, max_connections: usize) -> Self {
        let admin = (limit / 32)
            .clamp(16, listener::MAX_CONNECTIONS as u64)
            .min(limit / 8)
            .max(1);
        let traffic = limit - (own + admin).min(limit / 2);
        let traffic = usize::try_from(traffic).unwrap_or(usize::MAX);
        let clients = max_connections.min(traffic / 2).max(1);
        let upstreams = (traffic - clients.min(traffic)).max(1);
        Self {
            clients,
            upstreams,
            upstream_requests: upstreams.min(max_connections.max(UPSTREAM_REQUESTS)),
            admin: admin as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn clients_and_upstreams_have_as_many_files() {
        let shares = |limit, max_connections| {
            let shares = FileShares::new(limit, 80, max_connections);
            let FileShares {
                clients, upstreams, ..
            } = shares;
            (clients, upstreams, shares.upstream_requests, shares.admin)
        };
        assert_eq!(shares(0, 20_000), (1, 1, 1, 1));
        assert_eq!(shares(60, 20_000), (15, 15, 15, 7));
        assert_eq!(shares(1_024, 20_000), (456, 456, 456, 32));
        assert_eq!(shares(1_024, 100), (100, 812, 812, 32));
        assert_eq!(shares(524_288, 20_000), (20_000, 503_952, 20_000, 256));
        assert_eq!(shares(524_288, 100_000), (100_000, 423_952, 100_000, 256));
    }

    proptest! {
        #[test]
        fn no_file_is_shared_out_twice(
            limit in 8..u64::MAX,
            own in 0..10_000_u64,
            max_connections in 1..=1_000_000_usize,
        ) {
            let shares = FileShares::new(limit, own, max_connections);
            let traffic = shares.clients as u64 + shares.upstreams as u64;
            let rest = limit - traffic;
            prop_assert!(rest >= (own + shares.admin as u64).min(limit / 2));
            prop_assert!(shares.admin as u64 <= rest);
            prop_assert!(shares.upstream_requests <= shares.upstreams);
        }
    }
}
