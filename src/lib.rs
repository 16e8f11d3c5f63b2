//! sluicegate: a rate-limiting reverse proxy.
//!
//! The layers below stand in one strict order; each uses only those before it. `tests/repository/layering.rs`
//! reads this list. `docs/architecture.md` is the map.

pub mod clock;
pub mod files;
pub mod pem;
pub mod nearest;
pub mod visible;
pub mod whole_number;
pub mod limiter;
pub mod telemetry;
pub mod net;
pub mod http;
pub mod rules;
pub mod store;
pub mod upstream;
pub mod proxy;
pub mod server;
pub mod admin;
pub mod config;
pub mod replay;
pub mod app;
pub mod cli;
