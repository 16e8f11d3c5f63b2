//! Black-box tests of the proxy as an HTTP intermediary.

#[path = "../support/mod.rs"]
mod support;

mod balancing;
mod client_faults;
mod clients;
mod conditions;
mod ejection;
mod endpoints;
mod fair_connections;
mod fair_upstreams;
mod field_counts;
mod forwarding;
mod grpc;
mod grpc_health;
mod half_close;
mod header_fields;
mod health;
mod http1_raw;
mod http2_bodies;
mod http2_faults;
mod http2_floods;
mod http2_malformed;
mod http2_raw;
mod http2_resets;
mod http2_stalls;
mod http2_upstream;
mod http2_writes;
mod kept_connections;
mod names;
mod outages;
mod path_options;
mod paths;
mod process_life;
mod proxy_header;
mod proxy_protocol;
mod retries;
mod route_answers;
mod stalled_bodies;
mod tls;
mod trailers;
mod unix_listeners;
mod unix_upstreams;
mod upstream_bounds;
mod upstream_faults;
mod websocket;
