//! The text of the scripts: what they have in common, each algorithm, and what each does with them.

macro_rules! script {
    ($main:literal) => {
        concat!(
            include_str!("script/numbers.lua"),
            include_str!("script/buckets.lua"),
            include_str!("script/gcra.lua"),
            include_str!("script/refill.lua"),
            include_str!("script/window.lua"),
            include_str!("script/sliding.lua"),
            include_str!("script/counters.lua"),
            include_str!("script/log.lua"),
            include_str!("script/leases.lua"),
            include_str!($main),
        )
    };
}

/// Decides and charges a request.
pub const CHARGE: &str = script!("script/charge.lua");

/// Renews leases, or gives them back.
pub const LEASE: &str = script!("script/lease.lua");

/// Leaves a queue.
pub const LEAVE: &str = script!("script/leave.lua");

/// Settles a charge.
pub const SETTLE: &str = script!("script/settle.lua");

/// Tells the others what a node has charged, and the node what they have.
pub const SYNC: &str = include_str!("script/sync.lua");
