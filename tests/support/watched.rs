//! A master with a replica, and a sentinel that makes the one the other.

use super::redis::RedisServer;
use super::redis_store::command;
use super::wait_for;

/// Servers that the sentinel knows as `mymaster`.
pub struct Watched {
    pub master: RedisServer,
    pub replica: RedisServer,
    pub sentinel: RedisServer,
}

impl Watched {
    /// Starts them, and waits until the replica follows and the sentinel knows that.
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

    /// Where the master of this name is asked for.
    pub fn url(&self, name: &str) -> String {
        format!("redis+sentinel://{}/{name}", self.sentinel.address)
    }
}
