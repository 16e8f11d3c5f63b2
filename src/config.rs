//! From a YAML file to a configuration that is known to be sound, or to a report of all that is
//! wrong with it: text -> located tree (`document`) -> types (`decode`, `schema`) -> checks
//! (`validate`) -> what the layers below run (`compile`). `lint` looks at what is sound and probably not meant. No layer below knows these types; nothing here serves a request.

mod claims;
mod compile;
mod decode;
mod diagnostic;
mod document;
mod finding;
mod lint;
mod load;
mod located;
mod nearest;
pub mod schema;
mod source;
mod spaces;
mod unreadable;
mod validate;
pub mod value;
mod variables;

pub use compile::{Compiled, Shutdown, SnapshotSpec, compile, compile_rules};
pub use diagnostic::{Code, Colour, Problem, Report, Severity};
pub use document::{Document, NodeId};
pub use finding::Finding;
pub use lint::lint;
pub use load::{Loaded, check, load, parse};
pub use located::{List, Located, Table};
pub use schema::{Config, json_schema};
pub use source::Source;
