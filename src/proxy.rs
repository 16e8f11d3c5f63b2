//! The life of a request: [`gateway`] is the whole of it, each stage a sibling file. Sockets are the
//! layer above; which file the configuration came from is nobody's business here.

mod action;
mod admission;
mod asking;
mod body;
pub mod build;
mod caught;
mod complaints;
mod discard;
mod echo;
mod error;
mod exchange;
pub mod explain;
mod forward;
pub mod gateway;
mod grpc;
mod jitter;
pub mod limit_headers;
mod line;
mod meeting;
mod mode;
mod negotiate;
mod overflow;
mod penalise;
mod queue;
pub mod rehearsal;
mod rejection;
mod respond;
mod settle;
pub mod snapshot;
pub mod succession;
pub mod synchronised;
mod tag;
mod taken;
mod target;
mod template;

pub use action::{ActionSpec, TarpitSpec};
pub use body::{ResponseBody, ResponseBodyError};
pub use caught::Panicked;
pub use error::Error;
pub use gateway::Gateway;
pub use mode::{Mode, Rollout};
pub use negotiate::{Format, Formats};
pub use rejection::RejectSpec;
pub use snapshot::Snapshot;
pub use template::{Template, TemplateError};
