//! The sections of the configuration: schema, checks and compilation of each.

pub(super) mod access;
pub(super) mod access_log;
pub(super) mod admin;
pub(super) mod algorithm;
pub(super) mod allowed_warnings;
pub(super) mod amounts;
pub(super) mod condition;
pub(super) mod content;
pub(super) mod cost;
pub(super) mod exception;
pub(super) mod jwt;
pub(super) mod listener;
pub(super) mod missing_key;
pub(super) mod overflow;
pub(super) mod path_selection;
pub(super) mod penalty;
pub(super) mod policy;
pub(super) mod redis;
pub(super) mod responses;
pub(super) mod route;
pub(super) mod secret_value;
pub(super) mod store;
pub(super) mod traces;
pub(super) mod upstream;
pub(super) mod value_match;
pub(super) mod zone;
