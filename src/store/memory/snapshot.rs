//! The snapshot: buckets and bans in a file, so that they outlive the process. Here are the file's
//! format, writing, checking and reading. `app` decides when to save and restore.
//!
//! All numbers are little-endian. A file is:
//!
//! ```text
//! MAGIC  version: u32  secret: 2 x u64  saved at: u64 (microseconds since the Unix epoch)
//! { TABLE  policy: text  key: text  recipe: 5 x u64  words of a chunk: u32 (0: no rings)
//!   { KEY    fingerprint: u64                 cell  ring
//!   | FLOOR  first key: u64  last key: u64    cell  ring } }
//! { KEYS   policy: text  key: text  check of the secret: u64
//!   { STRIKES  fingerprint: u64  bans: u32  end of the last: u64  forgotten at: u64
//!              strikes: u32  { at: u64 }
//!   | BANNED or GRANTED  fingerprint: u64  units: u32  left: u32  since: u64  until: u64
//!                        reason: text  actor: text } }
//! END  checksum: u64 (SipHash-1-3 of all before)
//! ```
//!
//! A text is its length (`u32`) and its bytes; a cell is `expires: u64  a: u32  b: u32`. Only tables
//! with rings have rings: the number of chunks (`u32`), and for each its place (`u32`) and its words.
//! Counters of a sliding window have four bytes each, whatever they have in memory. A table that a
//! reload replaced meanwhile appears twice; the last entry of a key counts. A recipe is an
//! `EncodedAlgorithm`.
//!
//! Instants are microseconds since the Unix epoch, so a ban ends at the same time of day in every
//! process.

mod file;
mod reader;
mod writer;

use std::io;
use std::time::Duration;

use siphasher::sip::SipHasher13;

use crate::limiter::Secret;
use crate::store::{Penalties, SteeredKeys};

pub use file::{SnapshotLock, lock, open, set_aside, write};
pub use reader::Reader;
#[cfg(any(fuzzing, test))]
pub use reader::RestoreCounts;
pub use writer::SnapshotWriter;

/// The first bytes of a file.
const MAGIC: [u8; 8] = *b"SGBUCKET";
/// The version of the format. A change of the format, or of the meaning of an
/// `EncodedAlgorithm`, a cell or a ring, needs another.
pub const VERSION: u32 = 5;

const END: u8 = 0;
const TABLE: u8 = 1;
const KEY: u8 = 2;
const FLOOR: u8 = 3;
const KEYS: u8 = 4;
const STRIKES: u8 = 5;
const BANNED: u8 = 6;
const GRANTED: u8 = 7;

/// Approximate bytes of a read or write.
const STEP: usize = 64 * 1024;
/// The longest time by which the clock may be behind a valid snapshot: it was ahead when that was
/// saved, and is right now.
const AHEAD: Duration = Duration::from_hours(48);

/// The keys of one policy beside its buckets: strikes, bans and grants.
#[derive(Clone, Copy, Debug)]
pub struct PolicyKeyRules<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The policy's key as configured. Name and key identify the policy.
    pub key: &'a str,
    /// The secret of the policy's fingerprints. It is not written.
    pub secret: Secret,
    /// Strikes and bans by a penalty; none for a policy without one.
    pub bans: Option<&'a Penalties>,
    /// Bans and grants by operators.
    pub steered: Option<&'a SteeredKeys>,
}

/// A hash of a secret: fingerprints made with another secret name other keys.
fn check_of(secret: &Secret) -> u64 {
    secret.hasher().finish().bits()
}

/// The reason why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is not a snapshot.
    #[error("it isn't a snapshot of buckets")]
    Foreign,
    /// Another release has written it.
    #[error("its format is version {0}, and this program reads version {VERSION}")]
    Version(u32),
    /// Part of the file is missing or changed.
    #[error("it is damaged")]
    Damaged,
    /// The file is from the future.
    #[error("it was written {} s from now: was the clock set back?", .0.as_secs())]
    Future(Duration),
    /// The file cannot be read.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged,
            _ => Self::Io(error),
        }
    }
}

/// A new checksum. Its key is no secret: it detects accidents.
pub(crate) fn checksum() -> SipHasher13 {
    SipHasher13::new_with_keys(0x736c_7569_6365_6761, 0x7465_2062_7563_6b65)
}

#[cfg(test)]
mod tests;
