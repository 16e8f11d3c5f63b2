//! What HTTP needs beyond the `http` crate. No policy here.

pub mod connection;
