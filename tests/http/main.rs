//! What the proxy owes to clients and upstreams as an HTTP proxy, through the binary.

#[path = "../support/mod.rs"]
mod support;

mod clients;
mod endpoints;
mod flood;
mod forwarding;
mod half_close;
mod header_fields;
mod http1_raw;
mod http2_raw;
mod panics;
mod paths;
mod tls;
mod upstream_faults;
mod websocket;
