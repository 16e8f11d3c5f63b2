//! A master with a replica, and a sentinel that fails over.

use super::redis::{RedisServer, command};
use super::wait_for;

/// The servers of `mymaster`, and their sentinel.
pub struct Watched {
    pub master: RedisServer,
    pub replica: RedisServer,
    pub sentinel: RedisServer,
}

impl Watched {
    /// Starts all three, and waits until the replica follows and the sentinel knows it.
    pub fn start() -> Self {
        let master = RedisServer::start();
        let port = master.address.port().to_string();
        let replica = RedisServer::with_options(&["--replicaof", "127.0.0.1", &port]);
        let sentinel = RedisServer::sentinel(master.address);
        wait_for("the sentinel to know the replica", || {
            let found = command(&sentinel, &["SENTINEL", "REPLICAS", "mymaster"]);
            let text = format!("{found:?}");
            let is_known = text.contains(&replica.address.port().to_string());
            let is_linked = !text.contains("s_down") && !text.contains("disconnected");
            (is_known && is_linked).then_some(())
        });
        Self {
            master,
            replica,
            sentinel,
        }
    }

    /// The sentinel's URL for the master of this name.
    pub fn url(&self, name: &str) -> String {
        format!("redis+sentinel://{}/{name}", self.sentinel.address)
    }
}
