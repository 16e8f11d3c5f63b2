//! File descriptors: as many as the system lets the process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one, and says if it does not suffice for as many clients.
///
/// The soft limit is 1024 on most systems for the sake of programs that use select(2), which this is
/// none of (systemd.exec(5)).
pub(super) fn provide(max_connections: usize) {
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
    if let Some(limit) = limit
        && limit <= max_connections as u64
    {
        tracing::warn!(
            max_connections,
            limit,
            "fewer files may be open than client.max_connections: raise the limit (ulimit -n, LimitNOFILE=) \
             or lower max_connections, or clients wait"
        );
    }
}
