//! Bytes of bodies that are held in memory, counted over all connections.

use std::net::IpAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::http::client_counts::ClientCounts;

/// All bytes that are held.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// Bytes by client, of those that begin while a quarter of the memory is in use.
static BY_CLIENT: LazyLock<ClientCounts> = LazyLock::new(ClientCounts::default);

/// The memory that a body may take a share of.
#[derive(Clone, Copy, Debug)]
pub struct BodyMemory {
    /// The most bytes of all bodies.
    pub most: usize,
    /// The client that shares with others; `None` if none does.
    pub client: Option<IpAddr>,
}

impl BodyMemory {
    /// Memory that nothing bounds.
    pub(super) const UNBOUNDED: Self = Self {
        most: usize::MAX,
        client: None,
    };
}

/// Returns the bytes of request bodies that the process holds, for limits and retries.
pub fn held_bytes() -> u64 {
    HELD.load(Relaxed) as u64
}

/// Bytes that count as held until they are dropped.
#[derive(Debug, Default)]
pub(super) struct HeldBytes {
    bytes: Vec<u8>,
    /// The part of them that its client has a bound of.
    shared: Option<(IpAddr, usize)>,
}

impl HeldBytes {
    /// Holds these bytes, too. Returns false if all bodies, or those of the client, then had more than
    /// their share: clients that take what they can leave a quarter of the rest to each other one.
    pub(super) fn extend(&mut self, bytes: &[u8], memory: BodyMemory) -> bool {
        self.bytes.extend_from_slice(bytes);
        let more = bytes.len();
        let held = HELD.fetch_add(more, Relaxed) + more;
        let Some(client) = memory.client.filter(|_| held > memory.most / 4) else {
            return held <= memory.most;
        };
        let left = memory.most.saturating_sub(held);
        let has_room = left > 0 && BY_CLIENT.add(client, more, left.saturating_mul(3));
        if has_room {
            self.shared.get_or_insert((client, 0)).1 += more;
        }
        has_room
    }
}

impl From<Vec<u8>> for HeldBytes {
    fn from(bytes: Vec<u8>) -> Self {
        HELD.fetch_add(bytes.len(), Relaxed);
        let shared = None;
        Self { bytes, shared }
    }
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes.len(), Relaxed);
        if let Some((client, bytes)) = self.shared {
            BY_CLIENT.remove(client, bytes);
        }
    }
}
