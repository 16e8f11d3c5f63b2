//! Families of runs: a mode of the store, and the faults that are made in it. A seed chooses when and
//! to whom they happen.

use std::net::SocketAddr;
use std::time::Duration;

/// A test of this name, which runs a function in a network of its own.
macro_rules! family {
    ($name:ident, $run:path) => {
        #[test]
        fn $name() {
            crate::world::isolated(concat!(module_path!(), "::", stringify!($name)), $run);
        }
    };
}

mod alone;
mod bans;
mod cluster;
mod exact;
mod permits;
mod rolling;
mod sentinel;
mod skew;
mod snapshot;
mod synchronised;

/// The deadline of calls: busy machines meet it.
const TIMEOUT: Duration = Duration::from_millis(500);

/// A store in one server, with further options.
fn store(redis: SocketAddr, options: &str) -> String {
    format!(
        "store: {{ redis: {{ url: \"redis://{redis}\", timeout: 500ms, \
         secret: sixteen-characters{options} }} }}"
    )
}
