//! `jwt`: keys and rules that verify tokens.

use http::header::AUTHORIZATION;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::located::{List, Located};
use crate::config::schema::{MINUTE, SECOND};
use crate::config::value::{Duration, FieldName, FilePath, Text};

/// The largest difference of clocks.
pub type Leeway = Duration<0, { 10 * MINUTE }>;

/// `jwt`: how the tokens are verified whose claims are in keys and conditions.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Jwt {
    /// The field that has the token; in `authorization` after `Bearer`.
    #[serde(default = "authorization")]
    pub header: Located<FieldName>,
    /// What tokens are signed with.
    #[schemars(length(min = 1))]
    pub keys: List<JwtKey>,
    /// What their `iss` has to be; anything unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<Located<Text>>,
    /// One of which their `aud` has to have; anything unless given.
    #[serde(default)]
    pub audiences: List<Text>,
    /// How long before `nbf` and after `exp` they are still taken, `0s` to `10m`: clocks differ.
    #[serde(default = "minute")]
    pub leeway: Located<Leeway>,
}

fn authorization() -> Located<FieldName> {
    FieldName::from(AUTHORIZATION).into()
}

fn minute() -> Located<Leeway> {
    Leeway::from_millis(60 * SECOND).into()
}

/// A stand-in for an unreadable section.
impl Default for Jwt {
    fn default() -> Self {
        Self {
            header: authorization(),
            keys: List::default(),
            issuer: None,
            audiences: List::default(),
            leeway: minute(),
        }
    }
}

/// An item of `jwt.keys`: a set of keys, or one.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [{ "required": ["jwks_file"] }, { "required": ["file", "algorithm"] }]))]
pub struct JwtKey {
    /// A JSON Web Key Set (RFC 7517). Read again when the file changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_file: Option<Located<FilePath>>,
    /// A public key in PEM, or for `HS256` the secret, at least 32 bytes. Read again when the file changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Located<FilePath>>,
    /// What the key in `file` is for. Tokens that say another algorithm are not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Located<JwtAlgorithm>>,
    /// The `kid` of tokens that are signed with the key in `file`; any unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Located<Text>>,
}

/// How tokens are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum JwtAlgorithm {
    /// HMAC with SHA-256.
    #[default]
    #[serde(rename = "HS256")]
    Hs256,
    /// RSA with PKCS #1 v1.5 and SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// ECDSA with P-256 and SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}
