//! The requests of a log by their routes, and those of a route by their keys.

use super::keys::NO_BUCKET;
use super::survey::{NO_ROUTE, Requests};

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
    pub(super) fn new(of_request: impl Iterator<Item = u32> + Clone, routes: usize) -> Self {
        let mut starts = vec![0; routes + 1];
        let mut unrouted = 0;
        for route in of_request.clone() {
            match starts.get_mut(route as usize + 1) {
                Some(count) if route != NO_ROUTE => *count += 1,
                _ => unrouted += 1,
            }
        }
        for route in 0..routes {
            starts[route + 1] += starts[route];
        }
        let mut next = starts.clone();
        let mut order = vec![0; starts[routes]];
        for (index, route) in of_request.enumerate() {
            if route != NO_ROUTE {
                order[next[route as usize]] = index as u32;
                next[route as usize] += 1;
            }
        }
        Self {
            order,
            starts,
            unrouted,
        }
    }

    /// The indices of a route's requests.
    pub(super) fn of(&self, route: usize) -> &[u32] {
        &self.order[self.starts[route]..self.starts[route + 1]]
    }
}

impl Requests {
    /// Groups these requests by their keys.
    pub(super) fn by_keys(&self, requests: &[u32]) -> KeyTimes {
        let pairs = requests.iter().map(|index| *index as usize);
        let mut pairs: Vec<(u32, u64)> = pairs
            .map(|index| (self.keys[index], self.times[index]))
            .collect();
        // Stable: times stay in their order.
        pairs.sort_by_key(|(key, _)| *key);
        // Requests without a bucket come last.
        pairs.truncate(pairs.partition_point(|(key, _)| *key != NO_BUCKET));
        let chunks = pairs.chunk_by(|one, other| one.0 == other.0);
        let ends = chunks.scan(0, |end, chunk| {
            *end += chunk.len();
            Some(*end)
        });
        KeyTimes {
            ends: ends.collect(),
            times: pairs.iter().map(|(_, time)| *time).collect(),
        }
    }
}

/// The times of each key of a route.
pub(super) struct KeyTimes {
    times: Vec<u64>,
    /// Where the times of each key end.
    ends: Vec<usize>,
}

impl KeyTimes {
    pub(super) fn of_keys(&self) -> Vec<&[u64]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        let ranges = starts.zip(&self.ends);
        ranges
            .map(|(&start, &end)| &self.times[start..end])
            .collect()
    }
}
