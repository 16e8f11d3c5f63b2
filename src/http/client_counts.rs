//! How much each client holds of something that all clients share.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;

/// Connections, requests or bytes by client. It holds at most one entry for each of them.
#[derive(Debug, Default)]
pub(crate) struct ClientCounts(Mutex<HashMap<IpAddr, usize>>);

impl ClientCounts {
    /// Counts one more of `client`. Returns false, and does not count it, if the client has `most`
    /// already.
    pub(crate) fn enter(&self, client: IpAddr, most: usize) -> bool {
        self.add(client, 1, most)
    }

    /// Counts `more` of `client`. Returns false, and does not count them, if the client would then have
    /// more than `most`.
    pub(crate) fn add(&self, client: IpAddr, more: usize, most: usize) -> bool {
        let mut counts = self.0.lock();
        let count = counts.entry(client).or_default();
        let is_allowed = most.checked_sub(more).is_some_and(|left| *count <= left);
        *count += if is_allowed { more } else { 0 };
        if *count == 0 {
            counts.remove(&client);
        }
        is_allowed
    }

    /// Notes the end of one of `client` that was counted.
    pub(crate) fn leave(&self, client: IpAddr) {
        self.remove(client, 1);
    }

    /// Notes the end of `fewer` that were counted of `client`.
    pub(crate) fn remove(&self, client: IpAddr, fewer: usize) {
        let mut counts = self.0.lock();
        if let Some(count) = counts.get_mut(&client) {
            *count -= fewer;
            if *count == 0 {
                counts.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_a_count_of_its_own() {
        let counts = ClientCounts::default();
        let [one, other] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let entered = [one, one, one, other].map(|client| counts.enter(client, 2));
        assert_eq!(entered, [true, true, false, true]);
        counts.leave(one);
        assert!(counts.enter(one, 2) && !counts.enter(one, 2));
        [one, one, other]
            .into_iter()
            .for_each(|client| counts.leave(client));
        assert!(!counts.enter(one, 0));
        assert!(counts.0.lock().is_empty());
    }
}
