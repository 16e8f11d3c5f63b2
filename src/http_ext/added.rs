//! Header fields that the proxy adds to a message of somebody else's. They are few, and nobody looks for them: a list
//! costs a fifth of what the map costs that the message's own are in.

use http::header::{HeaderName, HeaderValue};
use smallvec::SmallVec;

/// What most requests are added: Via, Forwarded, and four fields before that.
const USUAL: usize = 6;

/// Fields to be written behind a message's own.
#[derive(Clone, Debug, Default)]
pub struct Added(SmallVec<[(HeaderName, HeaderValue); USUAL]>);

impl Added {
    /// Adds a field behind the others.
    pub fn push(&mut self, name: HeaderName, value: HeaderValue) {
        self.0.push((name, value));
    }

    /// Leaves out every field of this name.
    pub fn remove(&mut self, name: &HeaderName) {
        self.0.retain(|(added, _)| added != name);
    }

    /// The fields in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }
}
