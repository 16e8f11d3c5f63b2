//! What operators watch: `/metrics` of the real binary against its documentation, and the dashboard
//! and alert rules of the repository.

#[path = "../support/mod.rs"]
mod support;

mod documentation;
mod exports;
mod exposition;
mod full_configuration;
mod monitoring;
mod policies;
mod prometheus;
mod traces;
