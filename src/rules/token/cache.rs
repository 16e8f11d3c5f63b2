//! Tokens that were verified lately, so that each is verified once as long as few others come between. A token that
//! is not good is not remembered: it takes nobody's place.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Claims;
use crate::limiter::{KeyParts, Secret};

/// How many tokens are remembered: some 16 MiB where all are of the longest, and mostly 1 MiB.
const PLACES: usize = 2048;

/// A fixed number of places, of which each token has one.
pub(super) struct Cache {
    secret: Secret,
    places: Box<[Mutex<Option<Remembered>>]>,
}

struct Remembered {
    token: Box<[u8]>,
    claims: Arc<Claims>,
}

impl Cache {
    pub(super) fn new() -> Self {
        Self {
            secret: Secret::random(),
            places: (0..PLACES).map(|_| Mutex::default()).collect(),
        }
    }

    /// The claims of a token: those that are remembered, or what `verify` finds.
    pub(super) fn get(
        &self,
        token: &[u8],
        verify: impl FnOnce() -> Option<Claims>,
    ) -> Option<Arc<Claims>> {
        let mut hasher = self.secret.hasher();
        hasher.part(0, token);
        let place = &self.places[(hasher.finish().bits() % PLACES as u64) as usize];
        if let Some(known) = &*place.lock()
            && *known.token == *token
        {
            return Some(Arc::clone(&known.claims));
        }
        // Nobody waits while this is done.
        let claims = Arc::new(verify()?);
        *place.lock() = Some(Remembered {
            token: token.into(),
            claims: Arc::clone(&claims),
        });
        Some(claims)
    }
}

/// Tokens are as good as passwords.
impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cache(..)")
    }
}
