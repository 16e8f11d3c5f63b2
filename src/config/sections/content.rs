//! Bodies of responses: written in the configuration, or in files.

use bytes::Bytes;

use crate::config::sections::prelude::*;

by_form! {
    /// A body: the text itself, or the file that has it.
    pub enum Content("Content", "a text, or the file that has it: `{ file: pages/404.html }`") {
        /// The text itself.
        Text(Text) = "scalar",
        /// The body is in a file.
        File(InFile) = "mapping",
    }
}

/// A file that has what could be written in its place.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct InFile {
    /// The path of the file. Read again when it changes.
    pub file: Located<FilePath>,
}

/// Checks that a body in the configuration has `largest` bytes at most.
pub(crate) fn check(content: &Located<Content>, largest: usize, findings: &Findings<'_>) {
    if let Content::Text(text) = &content.value {
        check_length(text, content.node, largest, "shorten it", findings);
    }
}

/// Checks that the body at `node` has `largest` bytes at most.
pub(crate) fn check_length(
    text: &str,
    node: NodeId,
    largest: usize,
    help: &str,
    findings: &Findings<'_>,
) {
    if text.len() > largest {
        let message = format!("the body has {} bytes; {largest} are allowed", text.len());
        findings.add(invalid(node, message).help(help));
    }
}

impl Compiler<'_> {
    /// A body; one in a file of `largest` bytes at most is read. Empty with a finding, and where
    /// nothing is served.
    pub(crate) fn content(&mut self, content: &Content, largest: usize) -> Bytes {
        match content {
            Content::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
            Content::File(file) => {
                let read = self.read(&file.file, largest as u64);
                read.map_or_else(Bytes::new, |(_, content)| content.into())
            }
        }
    }
}
