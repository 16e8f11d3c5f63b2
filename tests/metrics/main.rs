//! What operators watch: `/metrics` of the real binary against its documentation.

#[path = "../support/mod.rs"]
mod support;

mod documentation;
mod exposition;
mod full_configuration;
mod policies;
