//! Decisions without a request to serve: [`explain`] changes no bucket, [`dry_run`] charges them.

pub mod cell;
pub mod dry_run;
pub mod explain;
pub mod key;
pub mod key_state;
pub mod operator_actions;
