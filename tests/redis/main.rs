//! Proxies that share limits through a real redis-server.

#[path = "../support/mod.rs"]
mod support;

mod announced_waits;
mod bans;
mod beside_memory;
mod bursts;
mod cold_start;
mod concurrency;
mod debug_header;
mod explain;
mod failures;
mod limited;
mod misconfiguration;
mod model_costs;
mod operator_actions;
mod policy_actions;
mod proxies;
mod quota_changes;
mod refused_elsewhere;
mod rolling_changes;
mod servers;
mod settlements_and_queues;
mod shared_bursts;
mod soft_limits;
mod stated_quotas;
mod status;
mod steering;
mod synchronised;
mod synchronised_kinds;
mod token_budgets;
mod unreserved_counts;
