//! `admin.tokens`: the secrets of callers of the admin API.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::auth::{AccessSpec, TokenDigest};
use crate::config::compile::Compiler;
use crate::config::schema::Config;
use crate::config::validate::report_repeated;
use crate::config::value::{FilePath, SecretText};
use crate::config::{Code, Finding, Findings, List, Loaded, Located};
use crate::files::{self, VersionedFile};

/// The shortest token, in characters: too long to guess.
const MIN_LENGTH: usize = 16;
/// The longest token, in characters.
const MAX_LENGTH: usize = 512;
/// The largest file with a token, in bytes.
const MAX_FILE: u64 = 4096;

/// `admin.tokens`: the secrets that callers of the admin API send, as `Authorization: Bearer TOKEN`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdminTokens {
    /// Tokens of callers that may read.
    pub read: List<AdminToken>,
    /// Tokens of callers that may read, and change what runs.
    pub write: List<AdminToken>,
}

/// A token: 16 to 512 letters, digits and `-._~+/`, with `=` at the end only.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(
    rename = "$form",
    expecting = "a token, or the file that has it: `{ file: /run/secrets/admin }`"
)]
#[schemars(rename = "AdminToken", untagged)]
pub enum AdminToken {
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

impl Default for AdminToken {
    fn default() -> Self {
        Self::Text(SecretText::default())
    }
}

impl AdminTokens {
    fn all(&self) -> impl Iterator<Item = &Located<AdminToken>> + Clone {
        self.read.iter().chain(self.write.iter())
    }
}

/// Checks the tokens that are written in the configuration.
pub(in crate::config) fn check(config: &Config, findings: &Findings<'_>) {
    let texts = config
        .admin
        .tokens
        .all()
        .filter_map(|one| match &one.value {
            AdminToken::Text(text) => Some((text.reveal(), one.node)),
            AdminToken::File(_) => None,
        });
    for (text, node) in texts.clone() {
        if let Err(message) = parse(text) {
            let finding = Finding::error(node, Code::InvalidValue, message);
            findings.add(finding.help(MAKE_ONE));
        }
    }
    report_repeated(texts, findings, |_| {
        let message = "the same token twice".to_owned();
        (message, "remove one of them; `write` includes `read`")
    });
}

const MAKE_ONE: &str = "`openssl rand -hex 32` prints a good one";

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

/// The list that a token is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRole {
    /// `read`.
    Read,
    /// `write`.
    Write,
}

impl TokenRole {
    /// The key of the list.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl Loaded {
    /// The address of the admin listener, for clients on the same machine.
    pub fn admin_address(&self) -> SocketAddr {
        let mut address = self.config.admin.address.get();
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        address
    }

    /// The first token for this role that can be read; any token may read.
    pub fn admin_token(&self, role: TokenRole) -> Option<String> {
        let tokens = &self.config.admin.tokens;
        let read = tokens.read.iter().filter(|_| role == TokenRole::Read);
        read.chain(tokens.write.iter())
            .find_map(|token| match &token.value {
                AdminToken::Text(text) => Some(text.reveal().to_owned()),
                AdminToken::File(file) => {
                    let path = self.resolve(file.file.as_path());
                    let content = files::read(&path, MAX_FILE).ok()?;
                    let text = String::from_utf8(content).ok()?;
                    Some(text.trim_end_matches(['\r', '\n']).to_owned())
                }
            })
    }
}

impl Compiler<'_> {
    /// The tokens of the admin API; those in files are read.
    pub(in crate::config) fn access(&mut self, tokens: &AdminTokens) -> AccessSpec {
        AccessSpec {
            read: self.digests(&tokens.read),
            write: self.digests(&tokens.write),
        }
    }

    fn digests(&mut self, tokens: &List<AdminToken>) -> Vec<TokenDigest> {
        let tokens = tokens.iter();
        let digests = tokens.filter_map(|token| match &token.value {
            AdminToken::Text(text) => parse(text.reveal()).ok(),
            AdminToken::File(file) => self.digest_of_file(&file.file),
        });
        digests.collect()
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
