//! Compiles the verifier of tokens, and lists its key files.

use std::path::{Path, PathBuf};

use crate::config::claims;
use crate::config::compile::Compiler;
use crate::config::diagnostic::Code;
use crate::config::document::NodeId;
use crate::config::finding::Finding;
use crate::config::schema::{Config, Jwt, JwtAlgorithm, JwtKey};

use crate::rules::{KeyError, TokenAlgorithm, TokenKey, TokenSpec, Verifier};

/// Handling of missing key files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum KeyFiles {
    /// A missing or empty file is an error.
    Needed,
    /// A missing file verifies no token.
    Optional,
}

impl Compiler<'_> {
    pub(in crate::config) fn tokens(
        &mut self,
        config: &Config,
        files: KeyFiles,
    ) -> Option<Verifier> {
        let jwt = config.jwt.as_ref()?;
        let keys = jwt.keys.iter().flat_map(|key| self.keys(key, files));
        let keys = keys.collect();
        Some(Verifier::new(spec(jwt, keys, config)))
    }

    fn keys(&mut self, key: &JwtKey, files: KeyFiles) -> Vec<TokenKey> {
        let (file, node) = match (&key.jwks_file, &key.file) {
            (Some(file), _) | (None, Some(file)) => {
                (self.loaded.resolve(file.as_path()), file.node)
            }
            (None, None) => return Vec::new(),
        };
        let content = match crate::files::read(&file, MAX_KEY_FILE) {
            Ok(content) => content,
            Err(error) => {
                if files == KeyFiles::Needed {
                    self.unreadable(&file, node, &error);
                }
                return Vec::new();
            }
        };
        let found = match &key.algorithm {
            None => TokenKey::from_set(&content),
            Some(algorithm) => {
                let id = key.id.as_ref().map(|id| id.as_str().to_owned());
                TokenKey::from_file(&content, token_algorithm(algorithm.value), id)
                    .map(|key| vec![key])
            }
        };
        found.unwrap_or_else(|error| {
            if files == KeyFiles::Needed {
                self.wrong_file(&file, node, &error);
            }
            Vec::new()
        })
    }

    fn wrong_file(&mut self, file: &Path, node: NodeId, error: &KeyError) {
        let message = format!("{}: {error}", file.display());
        let help = match error {
            KeyError::Private => "`openssl pkey -in KEY -pubout` prints the public one",
            KeyError::NoKey => "a public key begins with `-----BEGIN PUBLIC KEY-----`",
            KeyError::ShortSecret => "`openssl rand -base64 48` prints a new one",
            KeyError::NoSet(_) => {
                "a set is `{ \"keys\": [..] }`, as issuers publish it at their `jwks_uri`"
            }
            KeyError::NoneUsable => "ask the issuer for a key of one of these kinds",
            KeyError::TooMany => "leave out keys that sign no more",
        };
        let finding = Finding::error(node, Code::Unreadable, message);
        self.findings.push(finding.help(help));
    }
}

/// The key files that a configuration names.
pub(in crate::config) fn files<'a>(
    config: &'a Config,
    resolve: impl Fn(&Path) -> PathBuf + 'a,
) -> impl Iterator<Item = PathBuf> + 'a {
    let keys = config.jwt.iter().flat_map(|jwt| jwt.keys.iter());
    let files = keys.filter_map(|key| key.jwks_file.as_ref().or(key.file.as_ref()));
    files.map(move |file| resolve(file.as_path()))
}

/// The largest key file, in bytes.
const MAX_KEY_FILE: u64 = 1 << 20;

fn spec(jwt: &Jwt, keys: Vec<TokenKey>, config: &Config) -> TokenSpec {
    let mut claims: Vec<_> = claims::used(config)
        .into_iter()
        .map(|(name, _)| name.to_owned())
        .collect();
    claims.sort_unstable();
    claims.dedup();
    TokenSpec {
        header: jwt.header.get().clone(),
        keys,
        issuer: jwt.issuer.as_ref().map(|issuer| issuer.as_str().to_owned()),
        audiences: jwt
            .audiences
            .iter()
            .map(|one| one.as_str().to_owned())
            .collect(),
        leeway: jwt.leeway.get().as_secs(),
        claims,
    }
}

fn token_algorithm(written: JwtAlgorithm) -> TokenAlgorithm {
    match written {
        JwtAlgorithm::Hs256 => TokenAlgorithm::Hs256,
        JwtAlgorithm::Rs256 => TokenAlgorithm::Rs256,
        JwtAlgorithm::Es256 => TokenAlgorithm::Es256,
        JwtAlgorithm::EdDsa => TokenAlgorithm::EdDsa,
    }
}
