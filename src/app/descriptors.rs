//! File descriptors: as many as the system lets the process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for listeners, logs, the administration, Redis and files that are read.
const OTHERS: u64 = 100;

/// Raises the soft limit of open files to the hard one. Returns how many clients there are files for, at most
/// `max_connections`, and says so if they are fewer: some are kept for upstreams, as a client that waits is better off than
/// one that is answered with 502.
///
/// The soft limit is 1024 on most systems for the sake of programs that use select(2), which this is
/// none of (systemd.exec(5)).
pub(super) fn provide(max_connections: usize) -> usize {
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
    let Some(limit) = limit else {
        return max_connections;
    };
    let connections = usize::try_from(clients(limit)).unwrap_or(usize::MAX);
    if connections < max_connections {
        tracing::warn!(
            max_connections,
            limit,
            "too few files may be open: {connections} clients are served at a time, and others wait; raise the limit \
             (ulimit -n, LimitNOFILE=), or lower client.max_connections"
        );
    }
    connections.min(max_connections)
}

/// For how many clients so many files suffice: a quarter is for upstreams, of which the clients that ask at the same time
/// need one each.
fn clients(limit: u64) -> u64 {
    let others = OTHERS.min(limit / 2);
    ((limit - others) / 4 * 3).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_are_left_for_upstreams() {
        for (limit, expected) in [
            (0, 1),
            (60, 21),
            (200, 75),
            (1_024, 693),
            (20_000, 14_925),
            (u64::MAX, (u64::MAX - OTHERS) / 4 * 3),
        ] {
            assert_eq!(clients(limit), expected, "{limit}");
        }
    }
}
