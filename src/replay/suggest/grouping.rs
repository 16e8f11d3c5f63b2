//! The requests of a log by their routes, and those of a route by their keys.

use super::keys::NO_BUCKET;
use super::survey::Requests;

/// The requests of each route, in the order in which they are decided.
#[derive(Debug)]
pub(super) struct ByRoute {
    /// Indices of requests, by route.
    order: Vec<u32>,
    /// Where those of each route begin; then the end.
    starts: Vec<usize>,
    /// Requests that no route takes.
    pub unrouted: u64,
}

impl ByRoute {
    /// Sorts requests by the route of each, of so many routes.
    pub(super) fn new(of_request: impl Iterator<Item = u32>, routes: usize) -> Self {
        let route_of: Vec<_> = of_request.collect();
        let mut order: Vec<_> = (0..route_of.len() as u32).collect();
        // Stable: times stay in their order. Requests without a route come last.
        let route = |index: &u32| route_of[*index as usize];
        order.sort_by_key(route);
        let starts = 0..=routes as u32;
        let starts = starts.map(|start| order.partition_point(|index| route(index) < start));
        let starts: Vec<_> = starts.collect();
        Self {
            unrouted: (order.len() - starts[routes]) as u64,
            order,
            starts,
        }
    }

    /// The indices of a route's requests.
    pub(super) fn of(&self, route: usize) -> &[u32] {
        &self.order[self.starts[route]..self.starts[route + 1]]
    }
}

impl Requests {
    /// Groups these requests by their keys.
    pub(super) fn by_keys(&self, requests: &[u32]) -> Vec<Vec<u64>> {
        let pairs = requests.iter().map(|index| *index as usize);
        let mut pairs: Vec<(u32, u64)> = pairs
            .map(|index| (self.keys[index], self.times[index]))
            .collect();
        // Stable: times stay in their order.
        pairs.sort_by_key(|(key, _)| *key);
        // Requests without a bucket come last.
        pairs.truncate(pairs.partition_point(|(key, _)| *key != NO_BUCKET));
        let chunks = pairs.chunk_by(|one, other| one.0 == other.0);
        let times = chunks.map(|chunk| chunk.iter().map(|(_, time)| *time).collect());
        times.collect()
    }
}
