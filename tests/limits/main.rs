//! Decisions of limits in memory, and the responses to clients, through the binary.

#[path = "../support/mod.rs"]
mod support;

mod actions;
mod announcement;
mod answers;
mod behind_limiters;
mod charge_refused;
mod clients;
mod concurrency;
mod concurrency_queue;
mod conditions;
mod connection_options;
mod credentials;
mod debug_header;
mod decoys;
mod denied;
mod exceptions;
mod header_waits;
mod leaky_bucket;
mod migrating;
mod openai_clients;
mod operator_actions;
mod overflow;
mod penalties;
mod policies_actions;
mod quotas;
mod retry_after_jitter;
mod settled_costs;
mod settlement_metrics;
mod snapshot;
mod soft_limits;
mod stated_costs;
mod stated_quotas;
mod status;
mod steering;
mod successor;
mod time_zones;
mod token_budgets;
mod tokens;
mod unreserved_counts;
mod wall_clock;
