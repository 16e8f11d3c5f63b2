//! Digests of keys. No key stays in memory.

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;
use siphasher::sip128::{Hash128, SipHasher13};

use crate::limiter::Secret;

/// The SHA-256 of a client's key. `Debug` omits it.
#[derive(Clone, Copy, PartialEq, Eq, derive_more::Debug)]
#[debug("KeyDigest")]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// The digest of this key.
    pub fn of(key: &[u8]) -> Self {
        let digest = digest(&SHA256, key);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// Reads 64 hexadecimal digits, in either case.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = <&[u8; 64]>::try_from(text.as_bytes()).ok()?;
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Some(Self(digest))
    }

    /// The digest as 64 hexadecimal digits.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The first half, which a table keeps: nobody finds a second key for 128 bits.
    pub(super) fn half(self) -> [u32; 4] {
        let word = |at: usize| {
            let bytes = &self.0[4 * at..4 * at + 4];
            u32::from_be_bytes(bytes.try_into().expect("four bytes"))
        };
        [word(0), word(1), word(2), word(3)]
    }
}

/// No client.
pub(super) const NOBODY: u32 = u32::MAX;
/// The most slots of a cache, of 24 bytes each.
const MAX_SLOTS: usize = 1 << 16;

/// The clients of keys that were found lately, so that most requests need no SHA-256. Keys that no
/// client has are not kept, and push none out.
#[derive(derive_more::Debug)]
#[debug("RecentKeys(..)")]
pub(super) struct RecentKeys {
    /// It has a secret, so that no client finds two keys with the same fingerprint.
    hasher: SipHasher13,
    slots: Box<[Mutex<RecentKey>]>,
}

#[derive(Clone, Copy)]
struct RecentKey {
    fingerprint: [u64; 2],
    client: u32,
}

/// A hash with a secret of its own.
pub(super) fn keyed_hasher() -> SipHasher13 {
    let [first, second] = Secret::random().key();
    SipHasher13::new_with_keys(first, second)
}

impl RecentKeys {
    /// A cache for a table with this number of keys.
    pub(super) fn new(keys: usize) -> Self {
        let none = RecentKey {
            fingerprint: [0; 2],
            client: NOBODY,
        };
        let slots = (2 * keys).next_power_of_two().min(MAX_SLOTS);
        Self {
            hasher: keyed_hasher(),
            slots: (0..slots).map(|_| Mutex::new(none)).collect(),
        }
    }

    /// The client of a key, by `find` if it isn't kept; `NOBODY` without one.
    pub(super) fn get(&self, key: &[u8], find: impl FnOnce() -> u32) -> u32 {
        let Hash128 { h1, h2 } = self.hasher.hash(key);
        let fingerprint = [h1, h2];
        // The number of slots is a power of two.
        let slot = &self.slots[fingerprint[0] as usize & (self.slots.len() - 1)];
        let known = *slot.lock();
        if known.client != NOBODY && known.fingerprint == fingerprint {
            return known.client;
        }
        let client = find();
        if client != NOBODY {
            *slot.lock() = RecentKey {
                fingerprint,
                client,
            };
        }
        client
    }
}
