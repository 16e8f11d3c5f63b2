//! The parts of HTTP that the libraries lack: paths, hosts, forwarding fields, bodies. Messages of
//! HTTP/1.1 are in the crate `http1`. Knows no routes and no limits.

pub mod body;
pub(crate) mod client_counts;
pub mod client_ip;
pub mod connection;
pub(crate) mod date;
pub mod event_stream;
pub mod forwarded;
pub(crate) mod grpc;
pub mod host;
pub(crate) mod http2;
pub mod informational;
pub mod json_pointer;
pub mod json_scan;
pub(crate) mod max_forwards;
pub mod original_request;
pub mod path;
pub mod service;
pub mod token_digest;
pub mod upgrade;
pub(crate) mod websocket;

pub use ::http1::{self, framing, headers, hop_by_hop, message, trailers};
