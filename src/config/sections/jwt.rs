//! `jwt`: keys and rules that verify tokens, and the claims that keys, hashes, conditions and time
//! zones use.

use std::path::Path;

use http::header::AUTHORIZATION;

use crate::config::sections::prelude::*;
use crate::rules::{KeyError, TokenAlgorithm, TokenKey, TokenSpec, Verifier};

/// The largest key file, in bytes.
pub(crate) const MAX_KEY_FILE: u64 = 1 << 20;
/// Advice on a key of a set that verifies nothing.
pub(crate) const USABLE_KEY: &str = "ask the issuer for a key for RS256 (from 2048 bits), ES256 or EdDSA, or remove the key from the file";

/// The largest difference of clocks.
pub type Leeway = Duration<0, { 10 * MINUTE }, MINUTE>;

/// `jwt`: how the tokens are verified whose claims are in keys and conditions.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Jwt {
    /// The header that carries the token; in `authorization` after `Bearer`.
    #[serde(default = "authorization")]
    pub header: Located<FieldName>,
    /// Keys that verify tokens.
    #[schemars(length(min = 1))]
    pub keys: List<JwtKey>,
    /// The required `iss`; anything unless given.
    pub issuer: Option<Located<Text>>,
    /// Accepted values of `aud`; any value unless given.
    #[serde(default)]
    pub audiences: List<Text>,
    /// How long before `nbf` and after `exp` a token is accepted, because clocks differ: `0s` to
    /// `10m`.
    #[serde(default)]
    pub leeway: Located<Leeway>,
}

fn authorization() -> Located<FieldName> {
    FieldName::from(AUTHORIZATION).into()
}

/// An item of `jwt.keys`: a set of keys, or one.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("oneOf" = [{ "required": ["jwks_file"] }, { "required": ["file", "algorithm"] }]))]
pub struct JwtKey {
    /// A JSON Web Key Set (RFC 7517). Read again when the file changes.
    pub jwks_file: Option<Located<FilePath>>,
    /// A public key in PEM, or for `HS256` the secret, at least 32 bytes. Read again when the file
    /// changes.
    pub file: Option<Located<FilePath>>,
    /// The algorithm of the key in `file`. Tokens with another one are not taken.
    pub algorithm: Option<Located<TokenAlgorithm>>,
    /// The `kid` of tokens that are signed with the key in `file`; any unless given.
    pub id: Option<Located<Text>>,
}

pub(crate) fn check(config: &Config, findings: &Findings<'_>) {
    let used = used_claims(config);
    let Some(jwt) = &config.jwt else {
        for (_, node) in used {
            let finding = missing(node, "nothing verifies the tokens that have this claim");
            let help = "say with which keys: `jwt: { keys: [{ jwks_file: keys.json }] }`";
            findings.add(finding.help(help));
        }
        return;
    };
    if used.is_empty() {
        let finding = Finding::warning(jwt.node, Code::Unused, "nothing uses a claim").at_key();
        findings.add(finding.help("name one, as in `key: jwt:sub`, or remove the section"));
    }
    report_empty(&jwt.keys, findings, "name a key at least");
    for key in jwt.keys.iter() {
        findings.extend(incomplete_key(key, key.node));
    }
    report_twice(&jwt.audiences, findings);
}

/// The finding on an item that describes no key, or one in two ways.
fn incomplete_key(key: &JwtKey, node: NodeId) -> Option<Finding> {
    let file = key.file.given();
    let (algorithm, id) = (key.algorithm.given(), key.id.given());
    Some(match (&key.jwks_file, file, algorithm) {
        (Some(set), ..) => {
            let other = file.or(algorithm).or(id)?;
            let message = "`jwks_file` already describes its keys";
            let finding = conflict(other, message).related(set.node, "the set");
            finding.help("use `jwks_file` alone, or `file` and `algorithm`")
        }
        (None, Some(_), Some(_)) => return None,
        (None, Some(file), None) => missing(file, "the key `algorithm` is missing")
            .help("say what the key is for: `algorithm: RS256`"),
        (None, None, _) => {
            let message = "expected `jwks_file`, or `file` and `algorithm`";
            missing(node, message).help(
                "name one: `{ jwks_file: keys.json }`, or `{ algorithm: RS256, file: key.pem }`",
            )
        }
    })
}

impl Compiler<'_> {
    pub(crate) fn token_verifier(&mut self, config: &Config) -> Option<Verifier> {
        let jwt = config.jwt.as_ref()?;
        let keys = jwt.keys.iter().filter_map(|key| self.read_keys(key));
        let keys = keys.flatten().collect();
        let claims = used_claims(config).into_iter();
        let mut claims: Vec<_> = claims.map(|(name, _)| name).collect();
        claims.sort_unstable();
        claims.dedup();
        Some(Verifier::new(TokenSpec {
            header: jwt.header.get().clone(),
            keys,
            issuer: jwt.issuer.as_ref().map(|issuer| issuer.as_str().to_owned()),
            audiences: jwt.audiences.iter().map(ToString::to_string).collect(),
            leeway: jwt.leeway.get().as_secs(),
            claims,
        }))
    }

    fn read_keys(&mut self, key: &JwtKey) -> Option<Vec<TokenKey>> {
        let file = key.jwks_file.as_ref().or(key.file.as_ref())?;
        let (path, content) = self.read(file, MAX_KEY_FILE)?;
        let found = match &key.algorithm {
            None => TokenKey::from_set(&content).map(|set| set.keys),
            Some(algorithm) => {
                let id = key.id.as_ref().map(|id| id.as_str().to_owned());
                TokenKey::from_file(&content, algorithm.value, id).map(|key| vec![key])
            }
        };
        if let (Err(error), KeyFiles::Needed) = (&found, self.key_files) {
            self.wrong_file(&path, file.node, error);
        }
        found.ok()
    }

    fn wrong_file(&mut self, file: &Path, node: NodeId, error: &KeyError) {
        let message = format!("{}: {error}", file.display());
        let help = match error {
            KeyError::Private => "`openssl pkey -in KEY -pubout` prints the public one",
            KeyError::NoKey => "a public key begins with `-----BEGIN PUBLIC KEY-----`",
            KeyError::Pem(_) => "copy the complete file again",
            KeyError::Several(_) => "write an item of `keys` with a file of its own for each key",
            KeyError::ShortSecret => "`openssl rand -base64 48` prints a new one",
            KeyError::NotSecret => {
                "name the key's own algorithm, such as `RS256`; a secret is what `openssl rand -base64 48` prints"
            }
            KeyError::RsaSize(_) => "ask the issuer for a key of at least 2048 bits",
            KeyError::NoSet(_) => {
                "a set is `{ \"keys\": [..] }`, as issuers publish it at their `jwks_uri`"
            }
            KeyError::TooMany => "remove keys that no longer sign",
            // What is wrong with one key of a set.
            _ => USABLE_KEY,
        };
        self.findings
            .push(Finding::error(node, Code::Unreadable, message).help(help));
    }
}

/// Every used claim and its node.
fn used_claims(config: &Config) -> Vec<(String, NodeId)> {
    let claims = config.used_parts().filter_map(|(part, node)| match part {
        KeyPart::Claim(name) => Some((name, node)),
        _ => None,
    });
    claims.collect()
}
