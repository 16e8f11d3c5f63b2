//! The Redis store: its scripts, its client, and proxies that share limits through a real redis-server.

#[path = "../support/mod.rs"]
mod support;

mod after;
mod ban_scripts;
mod bans;
mod beside;
mod client;
mod cold_start;
mod differing;
mod extremes;
mod failures;
mod family;
mod in_use;
mod load;
mod mistakes;
mod proxies;
mod scripts;
mod servers;
mod store_contract;
mod synchronised;
mod synchronised_kinds;
mod synchroniser;
