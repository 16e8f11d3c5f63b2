//! Keys that verify tokens, each for one algorithm.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaParameters,
    RsaPublicKeyComponents,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::pem::{self, PemError};
use crate::visible;

/// The fewest bytes of a secret (RFC 7518 section 3.2).
const SHORTEST_SECRET: usize = 32;
/// The most keys of a set.
const MOST: usize = 256;
/// The bytes of a coordinate on P-256 and of a key for Ed25519 (RFC 7518 section 6.2.1, RFC 8032).
const COORDINATE: usize = 32;
/// The most characters of a set's texts that errors show.
const MAX_SHOWN: usize = 64;
const UNSOUND: &str =
    "its numbers make no public key, such as a point off the curve or an even exponent";

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
    /// The `kid` of its tokens, if it is known.
    pub(super) id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// The keys of a set.
#[derive(Debug)]
pub struct KeySet {
    /// The keys that verify tokens.
    pub keys: Vec<TokenKey>,
    /// The others, each by its `kid` or its place, with the reason.
    pub unusable: Vec<String>,
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
    /// A set without a usable key; the reasons, if it has others.
    #[error("none of its keys can verify tokens{0}")]
    NoneUsable(String),
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

    /// Returns the keys of a set (RFC 7517 section 5), and what is wrong with those that can't be
    /// used.
    ///
    /// # Errors
    /// If the content is no set, or has no key that can be used.
    pub fn from_set(content: &[u8]) -> Result<KeySet, KeyError> {
        #[derive(Deserialize)]
        struct Jwks {
            keys: Vec<Value>,
        }
        let set: Jwks =
            serde_json::from_slice(content).map_err(|error| KeyError::NoSet(error.to_string()))?;
        if set.keys.len() > MOST {
            return Err(KeyError::TooMany);
        }
        let (mut keys, mut unusable) = (Vec::<Self>::new(), Vec::new());
        for (jwk, number) in set.keys.iter().zip(1..) {
            let key = Self::from_jwk(jwk).and_then(|key| {
                let is_same = |known: &Self| known.algorithm == key.algorithm && known.id == key.id;
                let is_second = key.id.is_some() && keys.iter().any(is_same);
                let second = "another key with its `kid` and algorithm comes first";
                (!is_second).then_some(key).ok_or_else(|| second.to_owned())
            });
            match (key, text(jwk, "kid")) {
                (Ok(key), _) => keys.push(key),
                (Err(why), Ok(id)) => unusable.push(format!("key `{}`: {why}", shown(id))),
                (Err(why), Err(_)) => unusable.push(format!("key {number}: {why}")),
            }
        }
        if keys.is_empty() {
            let reasons = unusable.iter().map(|why| format!("; {why}"));
            return Err(KeyError::NoneUsable(reasons.collect()));
        }
        Ok(KeySet { keys, unusable })
    }

    /// Reads a key of a set, or says why it verifies nothing.
    fn from_jwk(jwk: &Value) -> Result<Self, String> {
        let bytes = |member| {
            let decoded = URL_SAFE_NO_PAD.decode(text(jwk, member)?);
            decoded.map_err(|_| format!("its `{member}` isn't base64url without padding"))
        };
        // Some issuers write a zero before a number whose first bit is set, as DER does.
        let number = |member| {
            let mut bytes: Vec<u8> = bytes(member)?;
            bytes.drain(..bytes.iter().take_while(|byte| **byte == 0).count());
            Ok::<_, String>(bytes)
        };
        let coordinate = |member| match bytes(member)? {
            bytes if bytes.len() == COORDINATE => Ok(bytes),
            bytes => Err(format!(
                "its `{member}` has {} bytes: expected {COORDINATE}",
                bytes.len()
            )),
        };
        let expect = |member, expected: &str| match text(jwk, member) {
            Ok(found) if found != expected => Err(format!(
                "its `{member}` is `{}`: expected {expected}",
                shown(found)
            )),
            _ => Ok(()),
        };
        expect("use", "sig")?;
        let operations = jwk.get("key_ops").and_then(Value::as_array);
        if operations.is_some_and(|all| !all.iter().any(|one| one == "verify")) {
            return Err("its `key_ops` lack `verify`".to_owned());
        }
        let (algorithm, key) = match text(jwk, "kty")? {
            "RSA" => {
                let (n, e) = (number("n")?, number("e")?);
                (
                    Algorithm::RS256,
                    DecodingKey::from_rsa_raw_components(&n, &e),
                )
            }
            "EC" => {
                text(jwk, "crv").and_then(|_| expect("crv", "P-256"))?;
                let point = [&[4], &*coordinate("x")?, &*coordinate("y")?].concat();
                (Algorithm::ES256, DecodingKey::from_ec_der(&point))
            }
            "OKP" => {
                text(jwk, "crv").and_then(|_| expect("crv", "Ed25519"))?;
                (
                    Algorithm::EdDSA,
                    DecodingKey::from_ed_der(&coordinate("x")?),
                )
            }
            "oct" => (Algorithm::HS256, DecodingKey::from_secret(&bytes("k")?)),
            kind => {
                return Err(format!(
                    "its `kty` is `{}`: expected RSA, EC, OKP or oct",
                    shown(kind)
                ));
            }
        };
        expect("alg", &format!("{algorithm:?}"))?;
        check(algorithm, &key).map_err(|why| match why {
            KeyError::NoKey => UNSOUND.to_owned(),
            why => why.to_string(),
        })?;
        let id = text(jwk, "kid").ok().map(str::to_owned);
        Ok(Self { id, algorithm, key })
    }
}

/// The text of a key's member.
fn text<'a>(jwk: &'a Value, member: &str) -> Result<&'a str, String> {
    let text = jwk.get(member).and_then(Value::as_str);
    text.ok_or_else(|| format!("it has no text `{member}`"))
}

/// A text of a set as reports show it.
fn shown(text: &str) -> String {
    visible::text(&visible::cut(text, MAX_SHOWN))
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
            bits => bits.is_some() && is_rsa_key(key.kind()),
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
        DecodingKeyKind::RsaModulusExponent { n, .. } => {
            let zeros = n.first().map_or(0, |first| first.leading_zeros());
            Some(n.len() as u32 * 8 - zeros)
        }
    }
}

/// True for an RSA key that the library verifies with; those in DER are checked as they are read.
fn is_rsa_key(key: &DecodingKeyKind) -> bool {
    let DecodingKeyKind::RsaModulusExponent { n, e } = key else {
        return true;
    };
    let der = RsaPublicKeyComponents { n, e }.as_der();
    der.is_ok_and(|der| ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der.as_ref()).is_ok())
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
