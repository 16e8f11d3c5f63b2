//! Support for the black-box tests: the proxy, origins behind it and clients before it. A module,
//! not a test, hence `mod.rs`. Every wait has a deadline; every port is 0.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a library to tests, each of which uses a part"
)]

pub mod admin;
pub mod browser;
pub mod client;
pub mod collector;
pub mod costs;
pub mod fault_proxy;
pub mod frames;
pub mod gateway;
pub mod http2_origin;
pub mod model_server;
pub mod origin;
pub mod other_proxies;
pub mod otlp;
pub mod outage;
pub mod parallel;
pub mod prometheus;
pub mod redis;
pub mod redis_servers;
pub mod replay;
pub mod shared;
pub mod slow;
pub mod spellings;
pub mod steering;
pub mod synchronised;
pub mod tls;
pub mod token_budgets;
pub mod visibility;
pub mod wait;
pub mod watched;

pub use wait::{DEADLINE, now, wait_for, wall_clock};
