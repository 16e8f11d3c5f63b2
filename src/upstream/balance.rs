//! Load balancing: picks an endpoint for each attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Endpoint;

/// The load-balancing algorithm of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Each in turn, as often as its weight.
    #[default]
    RoundRobin,
}

/// The running load balancer of an upstream.
#[derive(Debug)]
pub(super) enum Balancer {
    /// Each in turn, as often as its weight.
    RoundRobin(RoundRobin),
}

/// The inputs of a pick.
pub(super) struct Pick<'a> {
    /// The endpoints, in the order of the weights.
    pub endpoints: &'a [Arc<Endpoint>],
    /// The indices of those that were tried, in this order; not all of them.
    pub tried: &'a [usize],
}

/// A smooth weighted rotation, laid out once: weights 3, 1 give `a a b a`, not `a a a b`.
#[derive(Debug)]
pub(super) struct RoundRobin {
    rotation: Box<[u16]>,
    next: AtomicUsize,
}

impl Balancer {
    /// Shares requests among endpoints with these weights, each from 1 to 256.
    pub(super) fn new(balance: Balance, weights: &[u16]) -> Self {
        match balance {
            Balance::RoundRobin => Self::RoundRobin(RoundRobin::new(weights)),
        }
    }

    /// The index of the endpoint to try next.
    pub(super) fn pick(&self, pick: &Pick<'_>) -> usize {
        match self {
            Self::RoundRobin(rotation) => rotation.pick(pick),
        }
    }
}

impl RoundRobin {
    /// A rotation of endpoints with these weights, each from 1 to 256; divided by their greatest
    /// common divisor.
    fn new(weights: &[u16]) -> Self {
        let divisor = weights.iter().copied().fold(0, gcd).max(1);
        let weights: Vec<i64> = weights.iter().map(|w| i64::from(w / divisor)).collect();
        let total: i64 = weights.iter().sum();
        let mut lead = vec![0_i64; weights.len()];
        let rotation = (0..total)
            .map(|_| {
                lead.iter_mut().zip(&weights).for_each(|(l, w)| *l += w);
                let best = (0..lead.len()).rev().max_by_key(|&i| lead[i]).unwrap_or(0);
                lead[best] -= total;
                best as u16
            })
            .collect();
        RoundRobin {
            rotation,
            next: AtomicUsize::new(0),
        }
    }

    /// The next of the rotation, then the others in their order.
    fn pick(&self, Pick { endpoints, tried }: &Pick<'_>) -> usize {
        match tried.last() {
            None => self.next(),
            Some(last) => (last + 1) % endpoints.len(),
        }
    }

    fn next(&self) -> usize {
        match self.rotation.len() {
            0 | 1 => 0,
            length => {
                usize::from(self.rotation[self.next.fetch_add(1, Ordering::Relaxed) % length])
            }
        }
    }
}

fn gcd(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use http::uri::Authority;

    use super::*;
    use crate::telemetry::registry::Registry;
    use crate::upstream::EndpointSpec;

    fn turns(weights: &[u16], count: usize) -> Vec<usize> {
        let rotation = RoundRobin::new(weights);
        (0..count).map(|_| rotation.next()).collect()
    }

    #[test]
    fn a_request_tries_every_endpoint_once() {
        let (upstream, registry) = ("upstream".into(), Registry::default());
        let endpoint = |authority: &'static str| {
            let spec = EndpointSpec {
                authority: Authority::from_static(authority),
                tls: None,
            };
            Arc::new(Endpoint::new(spec, &upstream, 1, &registry))
        };
        let endpoints = ["a", "b", "c"].map(endpoint);
        let balancer = Balancer::new(Balance::RoundRobin, &[1, 1, 1]);
        for expected in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
            let mut tried = Vec::new();
            for _ in &endpoints {
                tried.push(balancer.pick(&Pick {
                    endpoints: &endpoints,
                    tried: &tried,
                }));
            }
            assert_eq!(tried, expected);
        }
    }

    #[test]
    fn equal_weights_take_turns() {
        assert_eq!(turns(&[5, 5, 5], 6), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_heavier_endpoint_is_spread_over_the_rotation() {
        assert_eq!(turns(&[3, 1], 8), [0, 0, 1, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn every_endpoint_is_chosen_as_often_as_its_weight() {
        let weights = [7, 1, 4, 2];
        let turns = turns(&weights, 14 * 3);
        for (endpoint, weight) in weights.iter().enumerate() {
            let chosen = turns.iter().filter(|&&turn| turn == endpoint).count();
            assert_eq!(chosen, usize::from(*weight) * 3);
        }
    }
}
