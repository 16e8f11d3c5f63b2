//! Tokens that were looked at lately, so that each is verified once as long as few others come between. Those
//! that are rejected have places of their own: they take nobody's.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Claims, TokenRejection};
use crate::limiter::{KeyParts, Secret};

/// How many good tokens are remembered: some 16 MiB where all are of the longest, and mostly 1 MiB.
const VERIFIED_SLOTS: usize = 2048;
/// How many rejected ones are: 24 bytes each.
const REJECTED_SLOTS: usize = 8192;

/// A fixed number of places, of which each token has one.
pub(super) struct Cache {
    /// Two, so that nobody finds two tokens that are one to both.
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

/// A token that was looked up, and where it belongs.
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

    /// What is remembered of a token: its claims, or why it was rejected.
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

    /// Remembers what a token is, whatever the time.
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

/// Tokens are as good as passwords.
impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cache(..)")
    }
}
