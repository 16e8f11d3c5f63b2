//! Bodies of responses: written in the configuration, or in files.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::compiler::Compiler;
use crate::config::located::written_by_form;
use crate::config::value::{FilePath, Text};
use crate::config::{Code, Finding, Findings, Located};

/// The largest body, in bytes.
const MAX_BODY: usize = 1 << 20;

/// A body: the text itself, or the file that has it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "$form",
    expecting = "a text, or the file that has it: `{ file: pages/404.html }`"
)]
#[schemars(rename = "Content", untagged)]
pub enum Content {
    /// The text itself, up to 1 MiB.
    #[serde(rename = "scalar")]
    Text(Text),
    /// The body is in a file.
    #[serde(rename = "mapping")]
    File(ContentFile),
}

written_by_form!(Content: Text, File);

/// A file with a body.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContentFile {
    /// The path of the file, of up to 1 MiB. Read again when it changes.
    pub file: Located<FilePath>,
}

/// Checks a text that is written in the configuration.
pub(in crate::config) fn check(content: &Located<Content>, findings: &Findings<'_>) {
    if let Content::Text(text) = &content.value
        && text.len() > MAX_BODY
    {
        let message = format!("the body has {} bytes; {MAX_BODY} are allowed", text.len());
        let finding = Finding::error(content.node, Code::InvalidValue, message);
        findings.add(finding.help("shorten it"));
    }
}

impl Compiler<'_> {
    /// A body; one in a file is read. Empty with a finding, and where nothing is served.
    pub(in crate::config) fn content(&mut self, content: &Content) -> Bytes {
        match content {
            Content::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
            Content::File(file) => {
                let read = self.read(&file.file, MAX_BODY as u64);
                read.map_or_else(Bytes::new, |(_, content)| content.into())
            }
        }
    }
}
