//! Secrets that operators send in a header field, kept as digests.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// The SHA-256 of a token. The token itself is not kept, and `Debug` omits the digest.
#[derive(Clone, Copy, PartialEq, Eq, derive_more::Debug, Serialize, Deserialize)]
#[debug("TokenDigest")]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The digest of this token.
    pub fn of(token: impl AsRef<[u8]>) -> Self {
        let digest = digest(&SHA256, token.as_ref());
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// Compares in constant time.
    pub fn matches(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}
