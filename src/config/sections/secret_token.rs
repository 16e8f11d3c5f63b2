//! Tokens that operators send: written in the configuration, or in a file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::compile::Compiler;
use crate::config::value::{FilePath, SecretText};
use crate::config::{Code, Finding, Findings, Loaded, Located};
use crate::files::{self, VersionedFile};
use crate::http::token_digest::TokenDigest;

/// The shortest token, in characters: too long to guess.
const MIN_LENGTH: usize = 16;
/// The longest token, in characters.
const MAX_LENGTH: usize = 512;
/// The largest file with a token, in bytes.
const MAX_FILE: u64 = 4096;

const MAKE_ONE: &str = "`openssl rand -hex 32` prints a good one";

/// A token: 16 to 512 letters, digits and `-._~+/`, with `=` at the end only.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(
    rename = "$form",
    expecting = "a token, or the file that has it: `{ file: /run/secrets/token }`"
)]
#[schemars(rename = "SecretToken", untagged)]
pub enum SecretToken {
    /// The token itself; better as `${VARIABLE}`.
    #[serde(rename = "scalar")]
    Text(SecretText),
    /// The token is in a file.
    #[serde(rename = "mapping")]
    File(TokenFile),
}

/// A file with a token.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenFile {
    /// The path of the file. A newline at its end does not count. Read again when it changes.
    pub file: Located<FilePath>,
}

impl Default for SecretToken {
    fn default() -> Self {
        Self::Text(SecretText::default())
    }
}

impl SecretToken {
    /// The token, unless it is in a file.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text.reveal()),
            Self::File(_) => None,
        }
    }

    /// The token, which may be in a file; `None` if that cannot be read.
    pub(in crate::config) fn read(&self, loaded: &Loaded) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.reveal().to_owned()),
            Self::File(file) => {
                let path = loaded.resolve(file.file.as_path());
                let content = files::read(&path, MAX_FILE).ok()?;
                let text = String::from_utf8(content).ok()?;
                Some(text.trim_end_matches(['\r', '\n']).to_owned())
            }
        }
    }
}

/// Checks a token that is written in the configuration.
pub(in crate::config) fn check(token: &Located<SecretToken>, findings: &Findings<'_>) {
    if let Some(Err(message)) = token.text().map(parse) {
        let finding = Finding::error(token.node, Code::InvalidValue, message);
        findings.add(finding.help(MAKE_ONE));
    }
}

/// Checks the length and the characters of a token (RFC 6750 section 2.1). The error never has its
/// text.
fn parse(token: &str) -> Result<TokenDigest, String> {
    let bare = token.trim_end_matches('=');
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~+/".contains(c);
    if !bare.chars().all(allowed) {
        return Err("a token has letters, digits and `-._~+/` only".to_owned());
    }
    match token.len() {
        MIN_LENGTH..=MAX_LENGTH => Ok(TokenDigest::of(token)),
        length => Err(format!(
            "a token has {MIN_LENGTH} to {MAX_LENGTH} characters, and this has {length}"
        )),
    }
}

impl Compiler<'_> {
    /// The digest of a token; one in a file is read.
    pub(in crate::config) fn token_digest(&mut self, token: &SecretToken) -> Option<TokenDigest> {
        match token {
            SecretToken::Text(text) => parse(text.reveal()).ok(),
            SecretToken::File(file) => self.digest_of_file(&file.file),
        }
    }

    fn digest_of_file(&mut self, file: &Located<FilePath>) -> Option<TokenDigest> {
        let path = self.loaded.resolve(file.as_path());
        self.files.push(VersionedFile::new(path.clone()));
        let content = match files::read(&path, MAX_FILE) {
            Ok(content) => content,
            Err(error) => {
                self.unreadable(&path, file.node, &error);
                return None;
            }
        };
        let text = String::from_utf8_lossy(&content);
        let digest = parse(text.trim_end_matches(['\r', '\n']));
        let wrong = |message| {
            let message = format!("{}: {message}", path.display());
            Finding::error(file.node, Code::InvalidValue, message).help(MAKE_ONE)
        };
        digest
            .map_err(|message| self.findings.push(wrong(message)))
            .ok()
    }
}
