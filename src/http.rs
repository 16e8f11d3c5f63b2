//! The parts of HTTP that the libraries lack: paths, hosts, framing, forwarding fields, bodies.
//! Knows no routes and no limits.

pub mod body;
pub(crate) mod client_counts;
pub mod client_ip;
pub mod connection;
pub(crate) mod date;
pub mod event_stream;
pub mod forwarded;
pub mod framing;
pub(crate) mod grpc;
pub mod headers;
pub mod hop_by_hop;
pub mod host;
pub mod http1;
pub(crate) mod http2;
pub mod informational;
pub mod json_pointer;
pub mod json_scan;
pub(crate) mod max_forwards;
pub mod message;
pub mod original_request;
mod parse_cache;
pub mod path;
pub mod service;
pub mod token_digest;
pub(crate) mod trailers;
pub mod upgrade;
pub(crate) mod websocket;
