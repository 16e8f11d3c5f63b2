//! Keys that verify tokens, each for one algorithm.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RsaParameters};
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::pem::{self, PemError};

/// The fewest bytes of a secret (RFC 7518 section 3.2).
const SHORTEST_SECRET: usize = 32;
/// The most keys of a set.
const MOST: usize = 256;

/// How tokens are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(rename = "JwtAlgorithm")]
pub enum TokenAlgorithm {
    /// HMAC with SHA-256.
    #[default]
    Hs256,
    /// RSA with PKCS #1 v1.5 and SHA-256.
    Rs256,
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// A key. Its debug output shows no part of it.
#[derive(Clone, Debug)]
pub struct TokenKey {
    id: Option<String>,
    algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// The reason why a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key is one that signs.
    #[error("it has a private key, which only the signer should have: name the public one")]
    Private,
    /// The file is damaged.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// A file of several keys.
    #[error("it has {0} blocks, and only the first would be read")]
    Several(usize),
    /// The text is no key of the kind.
    #[error("it has no public key for this algorithm, in PEM")]
    NoKey,
    /// The secret could be guessed.
    #[error("a secret for HS256 has at least {SHORTEST_SECRET} bytes")]
    ShortSecret,
    /// A file of another kind as a secret, which is often public.
    #[error("expected a secret for HS256, found a key or a certificate in PEM, DER or JSON")]
    NotSecret,
    /// A size of RSA keys with which nothing is verified, in bits.
    #[error("its RSA key has {0} bits: expected 2048 to 8192")]
    RsaSize(u32),
    /// The text is no set of keys.
    #[error("it isn't a JSON Web Key Set: {0}")]
    NoSet(String),
    /// None of the keys is for one of our algorithms.
    #[error("none of its keys is a sound one for HS256, RS256 (from 2048 bits), ES256 or EdDSA")]
    NoneUsable,
    /// A set of many keys.
    #[error("it has more than {MOST} keys")]
    TooMany,
}

impl TokenKey {
    /// Reads the key in a file: PEM, or for [`TokenAlgorithm::Hs256`] the secret without a line
    /// end.
    ///
    /// # Errors
    /// If the content is no key for this algorithm, or a private key.
    pub fn from_file(
        content: &[u8],
        algorithm: TokenAlgorithm,
        id: Option<String>,
    ) -> Result<Self, KeyError> {
        let secret = content.strip_suffix(b"\n").unwrap_or(content);
        let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
        let key = match algorithm {
            TokenAlgorithm::Hs256 => Ok(DecodingKey::from_secret(secret)),
            TokenAlgorithm::Rs256 => DecodingKey::from_rsa_pem(public_block(content)?),
            TokenAlgorithm::Es256 => DecodingKey::from_ec_pem(public_block(content)?),
            TokenAlgorithm::EdDsa => DecodingKey::from_ed_pem(public_block(content)?),
        };
        let (algorithm, key) = (algorithm.into(), key.map_err(|_| KeyError::NoKey)?);
        check(algorithm, &key)?;
        Ok(Self { id, algorithm, key })
    }

    /// Returns the keys of a set (RFC 7517) that are for a supported algorithm; the set may have
    /// others.
    ///
    /// # Errors
    /// If the content is no set, or has no such key.
    pub fn from_set(content: &[u8]) -> Result<Vec<Self>, KeyError> {
        let set: JwkSet =
            serde_json::from_slice(content).map_err(|error| KeyError::NoSet(error.to_string()))?;
        if set.keys.len() > MOST {
            return Err(KeyError::TooMany);
        }
        let keys: Vec<_> = set.keys.iter().filter_map(Self::from_jwk).collect();
        if keys.is_empty() {
            Err(KeyError::NoneUsable)
        } else {
            Ok(keys)
        }
    }

    fn from_jwk(jwk: &Jwk) -> Option<Self> {
        let (algorithm, name) = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                (Algorithm::ES256, KeyAlgorithm::ES256)
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
            }
            AlgorithmParameters::OctetKey(_) => (Algorithm::HS256, KeyAlgorithm::HS256),
            _ => return None,
        };
        let common = &jwk.common;
        let signs = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature));
        if !signs || common.key_algorithm.is_some_and(|said| said != name) {
            return None;
        }
        let key = DecodingKey::from_jwk(jwk).ok()?;
        check(algorithm, &key).ok()?;
        Some(Self {
            id: common.key_id.clone(),
            algorithm,
            key,
        })
    }

    /// Returns true if the key is for this algorithm.
    pub(super) fn is_for(&self, algorithm: Algorithm) -> bool {
        self.algorithm == algorithm
    }

    /// Returns the `kid` of the key's tokens, if it is known.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

/// Checks that a key can verify tokens of its algorithm, and that nobody else can know a secret.
fn check(algorithm: Algorithm, key: &DecodingKey) -> Result<(), KeyError> {
    let bytes = key.try_get_as_bytes().unwrap_or_default();
    let is_sound = match algorithm {
        Algorithm::HS256 if is_file_of_key(bytes) => return Err(KeyError::NotSecret),
        Algorithm::HS256 if bytes.len() < SHORTEST_SECRET => return Err(KeyError::ShortSecret),
        Algorithm::HS256 => true,
        Algorithm::ES256 => ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, bytes).is_ok(),
        Algorithm::EdDSA => ParsedPublicKey::new(&ED25519, bytes).is_ok(),
        _ => match rsa_bits(key.kind()) {
            Some(bits) if !(2048..=8192).contains(&bits) => return Err(KeyError::RsaSize(bits)),
            bits => bits.is_some(),
        },
    };
    is_sound.then_some(()).ok_or(KeyError::NoKey)
}

/// True for keys and certificates in PEM, JSON or DER (a sequence that begins with a number or with
/// another one), whose public parts anyone may have.
fn is_file_of_key(content: &[u8]) -> bool {
    // A line end may be cut off.
    let range = content.len()..=content.len() + 2;
    let is_whole = |header: usize, length: usize| range.contains(&(header + length));
    let is_der = match *content {
        [0x30, 0x82, high, low, 0x02 | 0x30, ..] => {
            is_whole(4, u16::from_be_bytes([high, low]).into())
        }
        [0x30, 0x81, length, 0x02 | 0x30, ..] => is_whole(3, length.into()),
        [0x30, length, 0x02 | 0x30, ..] => is_whole(2, length.into()),
        _ => false,
    };
    is_der
        || memchr::memmem::find(content, b"-----BEGIN").is_some()
        || serde_json::from_slice::<Map<String, Value>>(content).is_ok()
}

/// The bits of an RSA key's modulus; `None` if it is malformed.
fn rsa_bits(key: &DecodingKeyKind) -> Option<u32> {
    match key {
        DecodingKeyKind::SecretOrDer(der) => RsaParameters::public_modulus_len(der).ok(),
        // A modulus that begins with 0 verifies nothing.
        DecodingKeyKind::RsaModulusExponent { n, .. } => {
            let first = n.first().filter(|first| **first > 0)?;
            Some(n.len() as u32 * 8 - first.leading_zeros())
        }
    }
}

/// The only block of a file, which has no private key.
fn public_block(content: &[u8]) -> Result<&[u8], KeyError> {
    let blocks = pem::blocks(content)?;
    if blocks
        .iter()
        .any(|block| block.label.contains("PRIVATE KEY"))
    {
        return Err(KeyError::Private);
    }
    match &*blocks {
        [] => Err(KeyError::NoKey),
        [block] => Ok(block.text.as_bytes()),
        several => Err(KeyError::Several(several.len())),
    }
}
