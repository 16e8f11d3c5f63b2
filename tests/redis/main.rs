//! The Redis store: its scripts, its client, and proxies that share limits through a real
//! redis-server.

#[path = "../support/mod.rs"]
mod support;

mod announced_waits;
mod ban_scripts;
mod bans;
mod beside_memory;
mod client;
mod cold_start;
mod concurrency;
mod debug_header;
mod extremes;
mod explain;
mod failures;
mod load;
mod misconfiguration;
mod operator_actions;
mod policy_actions;
mod proxies;
mod quota_changes;
mod rolling_changes;
mod scripts;
mod servers;
mod settlements_and_queues;
mod status;
mod steering;
mod store_contract;
mod synchronised;
mod synchronised_kinds;
mod synchroniser;
mod token_budgets;
