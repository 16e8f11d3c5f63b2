//! `admin.tokens`: the secrets of callers of the admin API.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::auth::AccessSpec;
use crate::config::compile::Compiler;
use crate::config::schema::Config;
use crate::config::sections::secret_token;
use crate::config::sections::secret_value::SecretValue;
use crate::config::validate::{report_repeated, report_twice};
use crate::config::{Findings, List, Loaded, Located};
use crate::http::token_digest::TokenDigest;

/// `admin.tokens`: the secrets that callers of the admin API send, as `Authorization: Bearer TOKEN`.
/// A token has 16 to 512 letters, digits and `-._~+/`, with `=` at the end only.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdminTokens {
    /// Tokens of callers that may read.
    pub read: List<SecretValue>,
    /// Tokens of callers that may read, and change what runs.
    pub write: List<SecretValue>,
}

impl AdminTokens {
    /// The tokens of both lists.
    pub(in crate::config) fn all(&self) -> impl Iterator<Item = &Located<SecretValue>> + Clone {
        self.read.iter().chain(self.write.iter())
    }
}

/// Checks the tokens that are written in the configuration, and the hosts.
pub(in crate::config) fn check(config: &Config, findings: &Findings<'_>) {
    report_twice(&config.admin.hosts, findings);
    let tokens = config.admin.tokens.all();
    for token in tokens.clone() {
        secret_token::check(token, findings);
    }
    let texts = tokens.filter_map(|token| Some((token.text()?, token.node)));
    report_repeated(texts, findings, |_| {
        let message = "the same token twice".to_owned();
        (message, "remove one of them; `write` includes `read`")
    });
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

    /// The files with the certificates of the admin listener; `None` without TLS.
    pub fn admin_certificates(&self) -> Option<Vec<PathBuf>> {
        let certificates = self.config.admin.tls.as_ref()?.certificates.iter();
        let files = certificates.map(|one| self.resolve(one.certificate.as_path()));
        Some(files.collect())
    }

    /// True if the configuration has a token for this role; any token may read.
    pub fn has_admin_token(&self, role: TokenRole) -> bool {
        let tokens = &self.config.admin.tokens;
        let has_reader = role == TokenRole::Read && tokens.read.iter().next().is_some();
        has_reader || tokens.write.iter().next().is_some()
    }

    /// The first token for this role that can be read; any token may read.
    pub fn admin_token(&self, role: TokenRole) -> Option<String> {
        let tokens = &self.config.admin.tokens;
        let read = tokens.read.iter().filter(|_| role == TokenRole::Read);
        read.chain(tokens.write.iter())
            .find_map(|token| token.read(self))
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

    fn digests(&mut self, tokens: &List<SecretValue>) -> Vec<TokenDigest> {
        let tokens = tokens.iter();
        tokens
            .filter_map(|token| self.token_digest(token))
            .collect()
    }
}
