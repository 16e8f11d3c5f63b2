//! Runs of several proxies on one Redis, with faults, whose histories are checked against what docs
//! promise. Each run has a network of its own, in namespaces, and other faults at other instants.

#[path = "../support/mod.rs"]
mod support;

mod check;
mod clients;
mod dice;
mod exam;
mod families;
mod history;
mod nodes;
mod policies;
mod stage;
mod stall;
mod table;
mod world;
