//! The life of a request: [`gateway`] tells all of it, and each stage has a module of its own.
//!
//! Sockets belong to the layer above. No module here knows which file the configuration came from.

pub mod activity;
mod admission;
pub mod answers;
mod batch;
mod body;
mod catch_panic;
mod client;
mod debug_trail;
mod discard;
mod echo;
mod exchange;
mod forward;
pub mod gateway;
pub mod inspect;
mod rewrite;
pub mod ruleset;
pub mod shadow_clients;
mod status;
mod target;
mod upstream_shares;

pub use admission::mode::{Enforcement, Mode, ModeChange, ModeSwitch, Rollout};
pub use answers::action::{ActionSpec, ReroutingSpec, TarpitSpec, WaitSpec};
pub use answers::decoy::DecoySpec;
pub use answers::negotiate::{ResponseFormat, ResponseFormats};
pub use answers::rejection::RejectSpec;
pub use answers::template::{Template, TemplateError};
pub use gateway::Gateway;
pub use ruleset::{DebugSpec, Ruleset};
