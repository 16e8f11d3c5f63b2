//! The number of connections that each client has.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;

/// Open connections by client. It holds at most one entry for each of them.
#[derive(Debug)]
pub(super) struct ClientCounts {
    most: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

impl ClientCounts {
    /// Allows each client so many connections.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            open: Mutex::default(),
        }
    }

    /// Counts a connection of `client`. Returns false, and does not count it, if the client has as
    /// many as are allowed.
    pub(super) fn enter(&self, client: IpAddr) -> bool {
        let mut open = self.open.lock();
        let count = open.entry(client).or_default();
        let is_allowed = *count < self.most;
        *count += usize::from(is_allowed);
        is_allowed
    }

    /// Notes that a connection of `client` that was counted has ended.
    pub(super) fn leave(&self, client: IpAddr) {
        let mut open = self.open.lock();
        if let Some(count) = open.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                open.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_a_count_of_its_own() {
        let counts = ClientCounts::new(2);
        let [one, other] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let entered = [one, one, one, other].map(|client| counts.enter(client));
        assert_eq!(entered, [true, true, false, true]);
        counts.leave(one);
        assert!(counts.enter(one) && !counts.enter(one));
        [one, one, other]
            .into_iter()
            .for_each(|client| counts.leave(client));
        assert!(counts.open.lock().is_empty());
    }
}
