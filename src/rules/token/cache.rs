//! Tokens that were looked at lately, so that each is verified once as long as few others come between. Those
//! that are rejected have places of their own: they take nobody's.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Claims, TokenRejection};
use crate::limiter::{KeyParts, Secret};

/// How many good tokens are remembered: some 16 MiB where all are of the longest, and mostly 1 MiB.
const PLACES: usize = 2048;
/// How many rejected ones are: 24 bytes each.
const REJECTED_PLACES: usize = 8192;

/// A fixed number of places, of which each token has one.
pub(super) struct Cache {
    /// Two, so that nobody finds two tokens that are one to both.
    secrets: [Secret; 2],
    good: Box<[Mutex<Option<Remembered>>]>,
    rejected: Box<[Mutex<Option<Rejected>>]>,
}

struct Remembered {
    token: Box<[u8]>,
    claims: Arc<Claims>,
}

struct Rejected {
    digest: [u64; 2],
    why: TokenRejection,
}

/// A token that was looked up, and where it belongs.
pub(super) struct Place<'a> {
    token: &'a [u8],
    digest: [u64; 2],
}

impl Cache {
    pub(super) fn new() -> Self {
        Self {
            secrets: [Secret::random(), Secret::random()],
            good: (0..PLACES).map(|_| Mutex::default()).collect(),
            rejected: (0..REJECTED_PLACES).map(|_| Mutex::default()).collect(),
        }
    }

    pub(super) fn place<'a>(&self, token: &'a [u8]) -> Place<'a> {
        let digest = self.secrets.each_ref().map(|secret| {
            let mut hasher = secret.hasher();
            hasher.part(0, token);
            hasher.finish().bits()
        });
        Place { token, digest }
    }

    /// What is remembered of a token: its claims, or why it was rejected.
    pub(super) fn get(&self, place: &Place<'_>) -> Option<Result<Arc<Claims>, TokenRejection>> {
        if let Some(known) = &*self.good[index(place, PLACES)].lock()
            && *known.token == *place.token
        {
            return Some(Ok(Arc::clone(&known.claims)));
        }
        match &*self.rejected[index(place, REJECTED_PLACES)].lock() {
            Some(known) if known.digest == place.digest => Some(Err(known.why)),
            _ => None,
        }
    }

    /// Remembers what a token is, whatever the time.
    pub(super) fn keep(&self, place: &Place<'_>, what: &Result<Arc<Claims>, TokenRejection>) {
        match what {
            Ok(claims) => {
                *self.good[index(place, PLACES)].lock() = Some(Remembered {
                    token: place.token.into(),
                    claims: Arc::clone(claims),
                });
            }
            Err(why) => {
                *self.rejected[index(place, REJECTED_PLACES)].lock() = Some(Rejected {
                    digest: place.digest,
                    why: *why,
                });
            }
        }
    }
}

fn index(place: &Place<'_>, places: usize) -> usize {
    (place.digest[0] % places as u64) as usize
}

/// Tokens are as good as passwords.
impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cache(..)")
    }
}
