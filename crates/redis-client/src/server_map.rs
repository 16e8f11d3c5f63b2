//! The map from keys to servers.

use std::sync::Arc;

use super::fault::{Fault, FaultKind};
use super::node::Node;
use super::observer::State;
use super::slot::{SLOTS, Slot, slot};
use super::spec::Address;

/// The servers, and in a cluster the slots of each.
#[derive(Debug, Default)]
pub(super) struct ServerMap {
    pub nodes: Vec<Arc<Node>>,
    /// Ascending, without overlap; `None` outside a cluster.
    slots: Option<Vec<(Range, Arc<Node>)>>,
}

/// A range of slots, with its last.
pub(super) type Range = std::ops::RangeInclusive<Slot>;

/// The discovered servers; in a cluster, each with its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    Single(Address),
    Cluster(Vec<(Range, Address)>),
}

impl Topology {
    /// A key of the server at this address. In a cluster it comes from the widest range: a range of
    /// one slot takes some 16,000 tries, and a cluster may have thousands of such ranges.
    fn probe(&self, address: &Address, prefix: &str) -> Arc<str> {
        let widest = match self {
            Self::Single(_) => None,
            Self::Cluster(ranges) => ranges
                .iter()
                .filter(|(_, of)| of == address)
                .map(|(range, _)| range)
                .max_by_key(|range| range.len()),
        };
        let Some(widest) = widest else {
            return format!("{prefix}probe").into();
        };
        let keys = (0_u32..).map(|n| format!("{prefix}probe{{{n}}}"));
        let mut keys = keys.filter(|key| widest.contains(&slot(key.as_bytes())));
        keys.next().expect("every slot has keys").into()
    }
}

impl ServerMap {
    /// The map of a topology. Servers of `old` keep their state.
    pub(super) fn new(topology: &Topology, old: &Self, prefix: &str, workers: usize) -> Self {
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        let mut node = |address: &Address| {
            let is_it = |node: &&Arc<Node>| node.address == *address;
            if let Some(node) = nodes.iter().find(is_it) {
                return Arc::clone(node);
            }
            let probe = topology.probe(address, prefix);
            let node = old.nodes.iter().find(is_it).cloned();
            let node = node.unwrap_or_else(|| {
                Arc::new(Node::new(address.clone(), Arc::clone(&probe), workers))
            });
            *node.probe.lock() = probe;
            nodes.push(Arc::clone(&node));
            node
        };
        let slots = match topology {
            Topology::Single(address) => {
                node(address);
                None
            }
            Topology::Cluster(ranges) => {
                let mut slots: Vec<_> = ranges
                    .iter()
                    .map(|(range, address)| (range.clone(), node(address)))
                    .collect();
                slots.sort_by_key(|(range, _)| *range.start());
                Some(slots)
            }
        };
        Self { nodes, slots }
    }

    /// The server that has these keys.
    pub(super) fn route<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<&Arc<Node>, Fault> {
        let Some(slots) = &self.slots else {
            return self.nodes.first().ok_or(FaultKind::Connecting.fault());
        };
        let mut keys = keys.into_iter().map(slot);
        let first = keys
            .next()
            .ok_or(FaultKind::CrossSlot.with("a call without a key"))?;
        if keys.any(|slot| slot != first) {
            return Err(FaultKind::CrossSlot.fault());
        }
        let after = slots.partition_point(|(range, _)| *range.start() <= first);
        slots[..after]
            .last()
            .filter(|(range, _)| range.contains(&first))
            .map(|(_, node)| node)
            .ok_or(FaultKind::Moved.with("no server has the slot"))
    }

    /// The share of keys whose server is out of use.
    pub(super) fn unreachable_share(&self) -> f64 {
        let is_in_use = |node: &Node| node.state() == State::Up;
        let Some(slots) = &self.slots else {
            let is_reachable = self.nodes.first().is_some_and(|node| is_in_use(node));
            return (!is_reachable).into();
        };
        let in_use = slots.iter().filter(|(_, node)| is_in_use(node));
        let in_use: usize = in_use.map(|(range, _)| range.len()).sum();
        1.0 - in_use as f64 / f64::from(SLOTS)
    }

    /// True if both maps have the same servers and slots.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let content = |map: &Self| {
            let nodes = map.nodes.iter().map(Arc::as_ptr);
            let slots = map.slots.iter().flatten();
            let slots = slots.map(|(range, node)| (range.clone(), Arc::as_ptr(node)));
            (nodes.collect::<Vec<_>>(), slots.collect::<Vec<_>>())
        };
        content(self) == content(other)
    }

    /// The server at this address.
    pub(super) fn at(&self, address: &Address) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.address == *address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology() -> Topology {
        let at = |port| Address::new("a", port);
        Topology::Cluster(vec![
            (100..=100, at(2)),
            (8_000..=16_000, at(2)),
            (0..=99, at(1)),
        ])
    }

    #[test]
    fn keys_go_to_the_server_of_their_slot() {
        let map = ServerMap::new(&topology(), &ServerMap::default(), "p:", 1);
        assert_eq!(map.nodes.len(), 2);
        for n in 0..2_000 {
            let key = format!("key:{n}");
            let expected = match slot(key.as_bytes()) {
                0..=99 => Some(1),
                100 | 8_000..=16_000 => Some(2),
                _ => None,
            };
            let found = map
                .route([key.as_bytes()])
                .ok()
                .map(|node| node.address.port);
            assert_eq!(found, expected);
        }
        for node in &map.nodes {
            let found = map.route([node.probe.lock().as_bytes()]).expect("a server");
            assert_eq!(found.address, node.address);
        }
        // Not in the range of one slot, which takes many tries.
        let probe = map.nodes[0].probe.lock();
        assert!(slot(probe.as_bytes()) >= 8_000, "{probe}");
    }

    #[test]
    fn keys_of_a_call_share_a_slot() {
        let map = ServerMap::new(
            &Topology::Cluster(vec![(0..=16_383, Address::new("a", 1))]),
            &ServerMap::default(),
            "p:",
            1,
        );
        assert!(map.route([&b"a{x}"[..], b"b{x}"]).is_ok());
        for keys in [&[&b"a"[..], b"b"][..], &[]] {
            let fault = map.route(keys.iter().copied()).expect_err("no slot").kind;
            assert_eq!(fault, FaultKind::CrossSlot);
        }
    }

    #[test]
    fn servers_keep_their_state_in_a_new_map() {
        let old = ServerMap::new(&topology(), &ServerMap::default(), "p:", 1);
        let new = Topology::Cluster(vec![(0..=16_383, Address::new("a", 2))]);
        let new = ServerMap::new(&new, &old, "p:", 1);
        let known = old.at(&Address::new("a", 2)).expect("it was there");
        assert!(Arc::ptr_eq(known, &new.nodes[0]));
        assert_eq!(new.nodes.len(), 1);
    }
}
