//! Reads a YAML file into a sound configuration, or reports all that is wrong with it: text ->
//! located tree (`document`) -> types (`decode`, `schema`) -> checks (`validate`) -> specs of the
//! layers that run it (`compile`). `sections` has the types, checks and compilation of each
//! section. `lint` warns of settings that are valid and probably not meant.
//!
//! No other layer but `app` knows these types, and nothing here serves a request.

mod checks;
mod compile;
mod compiler;
mod decode;
mod diagnostic;
mod document;
mod finding;
mod lint;
mod load;
mod located;
pub mod schema;
mod sections;
mod source;
mod odd_spaces;
mod file_errors;
mod validate;
pub mod value;
mod variables;

pub use compile::{Compiled, ProcessSpec, SnapshotSpec, compile, compile_policies, compile_rules};
pub use diagnostic::{Audience, Code, Colour, Place, Problem, Report, Severity};
pub use document::{Document, NodeId};
pub use finding::Finding;
use finding::Findings;
pub use lint::{lint, lint_text};
pub use load::{Loaded, parse};
use located::Given;
pub use located::{List, Located, Table};
pub use schema::json_schema;
pub use sections::admin::ShutdownTimes;
pub use sections::clients::{add_client, hashed_key};
pub use sections::traces::ExportSpec;
pub use source::{CheckReport, CheckVerdict, Checked, Source};

#[cfg(test)]
mod tests;
