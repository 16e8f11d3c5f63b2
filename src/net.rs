//! Sockets below HTTP: name resolution, dialling, listening sockets, and how bytes are written to a socket.
//! Knows no HTTP, no Redis and no TLS.

pub mod dial;
pub mod drain;
pub mod file_budget;
pub mod idle_timer;
pub mod listener;
pub mod peer_address;
pub(crate) mod permits;
pub(crate) mod resolve;
pub mod socket;
