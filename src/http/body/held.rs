//! Bytes of bodies that are held in memory, counted over all connections.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// All bytes that are held.
static HELD: AtomicU64 = AtomicU64::new(0);

/// Returns the bytes of request bodies that the process holds, for limits and retries.
pub fn held_bytes() -> u64 {
    HELD.load(Relaxed)
}

/// Bytes that count as held until they are dropped.
#[derive(Debug, Default)]
pub(super) struct HeldBytes {
    bytes: Vec<u8>,
    counted: u64,
}

impl HeldBytes {
    /// Holds these bytes, too. Returns false if the process then held more than `most`.
    pub(super) fn extend(&mut self, bytes: &[u8], most: u64) -> bool {
        self.bytes.extend_from_slice(bytes);
        let more = self.bytes.capacity() as u64 - self.counted;
        self.counted += more;
        HELD.fetch_add(more, Relaxed) + more <= most
    }
}

impl From<Vec<u8>> for HeldBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let mut held = Self { bytes, counted: 0 };
        held.extend(&[], u64::MAX);
        held
    }
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        HELD.fetch_sub(self.counted, Relaxed);
    }
}
