//! sluicegate: a rate-limiting reverse proxy.
//!
//! The layers below stand in one strict order; each uses only those before it. `tests/repository/layering.rs`
//! reads this list. `docs/architecture.md` is the map.

use ::limiter;
use ::readable::{nearest, visible};

mod clock;
mod files;
mod pem;
mod text_table;
mod whole_number;
mod telemetry;
mod net;
mod http;
mod rules;
mod store;
mod upstream;
mod proxy;
mod server;
mod admin;
mod config;
mod replay;
mod app;
mod cli;

pub use cli::main;

/// Items that benchmarks measure; nothing else is public.
#[doc(hidden)]
pub mod bench {
    pub use crate::http::client_ip::ClientIp;
    pub use crate::http::connection::{ClientConnection, Scheme};
    pub use crate::http::forwarded::{self, Forwarding, Peer};
    pub use crate::http::headers::Headers;
    pub use crate::http::message::Request;
    pub use crate::http::{hop_by_hop, host, path};
    pub use crate::net::drain::DrainWatcher;
    pub use crate::rules::{
        Descriptor, Head, HostPattern, KeyPart, OnMissingKey, PathEquivalence, PathPattern,
        RouteMatch, Router, Segment,
    };
}

/// What the fuzzer runs (`fuzz/`). A unit test runs it on the seeds.
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
#[path = "../fuzz/targets/mod.rs"]
pub mod fuzzing;

/// Helpers that unit tests share with the black-box tests.
#[cfg(test)]
#[path = "../tests/support"]
mod support {
    #![allow(dead_code, reason = "black-box tests use the rest")]

    pub mod client;
    pub mod fault_proxy;
    pub mod frames;
    pub mod mutations;
    pub mod origin;
    pub mod redis;
    pub mod redis_servers;
    pub mod spellings;
    pub mod wait;
    pub mod watched;

    pub use wait::{DEADLINE, now, wait_for};
}
