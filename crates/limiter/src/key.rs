//! The identity of a bucket: a 64-bit keyed hash of the parts of its key. No key text is kept.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;

use siphasher::{sip::SipHasher13, sip128};

/// The name of a bucket within its policy: SipHash-1-3 of the key's parts under a [`Secret`].
///
/// It gives identity and placement, and clients choose the keys: hence a keyed hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint with these bits (from a snapshot, or a test).
    ///
    /// Stores use 0 and `u64::MAX` for entries without a key. These two values become their
    /// neighbours.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits.clamp(1, u64::MAX - 1))
    }

    /// The bits of the hash.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// The name of a key in logs and responses for operators.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k_{:016x}", self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.strip_prefix("k_").ok_or(())?;
        let is_whole = digits.len() == 16 && digits.bytes().all(|one| one.is_ascii_hexdigit());
        let bits = u64::from_str_radix(digits, 16).map_err(drop)?;
        is_whole.then(|| Self::from_bits(bits)).ok_or(())
    }
}

/// The 128-bit key of fingerprints. Clients do not know it, so they cannot aim at a bucket.
#[derive(Clone, Copy, PartialEq, Eq, derive_more::Debug)]
#[debug("Secret(..)")]
pub struct Secret {
    key: [u64; 2],
}

impl Secret {
    /// A secret from the operating system's randomness (through the standard library's hash keys).
    pub fn random() -> Self {
        let seed = RandomState::new();
        Self::from_key([seed.hash_one(0_u64), seed.hash_one(1_u64)])
    }

    /// The secret with this key.
    pub const fn from_key(key: [u64; 2]) -> Self {
        Self { key }
    }

    /// The key, for a snapshot to keep.
    pub const fn key(&self) -> [u64; 2] {
        self.key
    }

    /// The fingerprint of a key that is one value, such as an address or a user.
    pub fn fingerprint(&self, key: &[u8]) -> Fingerprint {
        let mut hasher = self.hasher();
        hasher.part(0, key);
        hasher.finish()
    }

    /// Starts a [`Fingerprint`] of several parts.
    pub fn hasher(&self) -> KeyHasher {
        KeyHasher(SipHasher13::new_with_keys(self.key[0], self.key[1]))
    }

    /// Starts a 128-bit name that machines share.
    pub fn wide_hasher(&self) -> WideKeyHasher {
        KeyHasher(sip128::SipHasher13::new_with_keys(self.key[0], self.key[1]))
    }
}

/// A hash that takes the parts of a key in order.
pub trait KeyParts {
    /// Adds a part: its kind and its value. The kind tells a header from an address that reads
    /// alike.
    fn part(&mut self, kind: u8, value: &[u8]);
}

impl<P: KeyParts + ?Sized> KeyParts for &mut P {
    fn part(&mut self, kind: u8, value: &[u8]) {
        (**self).part(kind, value);
    }
}

/// Makes the [`Fingerprint`] of a key.
#[derive(Clone, Debug)]
pub struct KeyHasher<H = SipHasher13>(H);

/// Makes a 128-bit name of a key. No two keys collide, whatever clients choose.
pub type WideKeyHasher = KeyHasher<sip128::SipHasher13>;

/// Hashes kind and length before the value, so that different lists of parts never hash the same
/// bytes.
impl<H: Hasher> KeyParts for KeyHasher<H> {
    fn part(&mut self, kind: u8, value: &[u8]) {
        // A part is a piece of a request's head, far below 2^56 bytes.
        (self.0).write_u64(u64::from(kind) << 56 | value.len() as u64);
        self.0.write(value);
    }
}

impl WideKeyHasher {
    /// The name of the parts added so far.
    pub fn finish(self) -> u128 {
        use sip128::Hasher128;
        self.0.finish128().as_u128()
    }
}

impl KeyHasher {
    /// The fingerprint of the parts added so far.
    pub fn finish(self) -> Fingerprint {
        Fingerprint::from_bits(self.0.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(secret: &Secret, parts: &[(u8, &str)]) -> Fingerprint {
        let mut hasher = secret.hasher();
        for (kind, value) in parts {
            hasher.part(*kind, value.as_bytes());
        }
        hasher.finish()
    }

    #[test]
    fn the_same_parts_under_the_same_secret_are_the_same_key() {
        let secret = Secret::random();
        let again = Secret::from_key(secret.key());
        let parts = [(1, "alice"), (2, "")];
        assert_eq!(fingerprint(&secret, &parts), fingerprint(&again, &parts));
        assert_ne!(
            fingerprint(&secret, &parts),
            fingerprint(&Secret::random(), &parts)
        );
    }

    #[test]
    fn kind_order_and_boundaries_tell_keys_apart() {
        let secret = Secret::from_key([1, 2]);
        let different: [&[(u8, &str)]; 7] = [
            &[],
            &[(1, "")],
            &[(1, "1.2.3.4")],
            &[(2, "1.2.3.4")],
            &[(1, "ab"), (1, "c")],
            &[(1, "a"), (1, "bc")],
            &[(1, "c"), (1, "ab")],
        ];
        for (i, left) in different.iter().enumerate() {
            for right in &different[i + 1..] {
                assert_ne!(fingerprint(&secret, left), fingerprint(&secret, right));
            }
        }
    }

    #[test]
    fn no_fingerprint_is_all_zeros_or_all_ones() {
        assert_eq!(Fingerprint::from_bits(0).bits(), 1);
        assert_eq!(Fingerprint::from_bits(u64::MAX).bits(), u64::MAX - 1);
    }

    #[test]
    fn a_name_has_all_digits_of_its_key() {
        let key = Fingerprint::from_bits(0xab);
        assert_eq!(key.to_string(), "k_00000000000000ab");
        assert_eq!(key.to_string().parse(), Ok(key));
        for other in [
            "",
            "k_",
            "k_ab",
            "k_000000000000000ab",
            "k_+0000000000000ab",
            "00000000000000ab",
        ] {
            assert_eq!(other.parse::<Fingerprint>(), Err(()), "{other:?}");
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::from_key([7, 7])), "Secret(..)");
    }
}
