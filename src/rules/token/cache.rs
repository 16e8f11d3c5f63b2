//! Recently checked tokens, so that each is verified once as long as few others come between.
//! Rejected tokens have slots of their own, and evict no verified ones.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Claims, TokenRejection};
use crate::limiter::{KeyParts, Secret};

/// Slots for verified tokens: 16 MiB if all have the longest size, and mostly 1 MiB.
const VERIFIED_SLOTS: usize = 2048;
/// Slots for rejected tokens, of 24 bytes each.
const REJECTED_SLOTS: usize = 8192;

/// A fixed number of slots. Each token has one.
#[derive(derive_more::Debug)]
#[debug("Cache(..)")]
pub(super) struct Cache {
    /// Two secrets, so that no client finds two tokens with the same digest.
    secrets: [Secret; 2],
    verified: Box<[Mutex<Option<CachedClaims>>]>,
    rejected: Box<[Mutex<Option<CachedRejection>>]>,
}

struct CachedClaims {
    token: Box<[u8]>,
    claims: Arc<Claims>,
}

struct CachedRejection {
    digest: [u64; 2],
    why: TokenRejection,
}

/// A token and its digest, which selects the slot.
pub(super) struct CacheSlot<'a> {
    token: &'a [u8],
    digest: [u64; 2],
}

impl Cache {
    pub(super) fn new() -> Self {
        Self {
            secrets: [Secret::random(), Secret::random()],
            verified: (0..VERIFIED_SLOTS).map(|_| Mutex::default()).collect(),
            rejected: (0..REJECTED_SLOTS).map(|_| Mutex::default()).collect(),
        }
    }

    pub(super) fn slot<'a>(&self, token: &'a [u8]) -> CacheSlot<'a> {
        let digest = self.secrets.each_ref().map(|secret| {
            let mut hasher = secret.hasher();
            hasher.part(0, token);
            hasher.finish().bits()
        });
        CacheSlot { token, digest }
    }

    /// Returns a token's claims, or the reason of its rejection, if the cache has it.
    pub(super) fn get(&self, place: &CacheSlot<'_>) -> Option<Result<Arc<Claims>, TokenRejection>> {
        if let Some(known) = &*self.verified[index(place, VERIFIED_SLOTS)].lock()
            && *known.token == *place.token
        {
            return Some(Ok(Arc::clone(&known.claims)));
        }
        match &*self.rejected[index(place, REJECTED_SLOTS)].lock() {
            Some(known) if known.digest == place.digest => Some(Err(known.why)),
            _ => None,
        }
    }

    /// Caches the result of a verification, whatever the time.
    pub(super) fn insert(&self, place: &CacheSlot<'_>, what: &Result<Arc<Claims>, TokenRejection>) {
        match what {
            Ok(claims) => {
                *self.verified[index(place, VERIFIED_SLOTS)].lock() = Some(CachedClaims {
                    token: place.token.into(),
                    claims: Arc::clone(claims),
                });
            }
            Err(why) => {
                *self.rejected[index(place, REJECTED_SLOTS)].lock() = Some(CachedRejection {
                    digest: place.digest,
                    why: *why,
                });
            }
        }
    }
}

fn index(place: &CacheSlot<'_>, places: usize) -> usize {
    (place.digest[0] % places as u64) as usize
}
