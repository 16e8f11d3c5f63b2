//! The division of a configuration's bucket memory among its policies.

use crate::limiter::Algorithm;
use crate::store::Table;

/// The smallest number of keys of a policy, unless its `max_keys` is smaller.
pub const MIN_KEYS: usize = 1024;
/// The smallest number of full rings of a policy that needs rings.
const MIN_RINGS: u64 = 16;

/// The memory that a policy asks for.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRequest {
    /// The configured number of keys, all of which are kept.
    pub keys: Option<usize>,
    /// The bytes of a full ring; 0 if the algorithm needs none.
    pub ring_bytes: u64,
}

/// The memory that a policy gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableBudget {
    /// The size of its table, in keys.
    pub keys: usize,
    /// The approximate bytes for its rings.
    pub ring_bytes: u64,
}

impl MemoryRequest {
    /// The request of a policy with this algorithm.
    pub const fn new(algorithm: &Algorithm, keys: Option<usize>) -> Self {
        Self {
            keys,
            ring_bytes: Table::ring_bytes_for(algorithm),
        }
    }

    /// The largest budget within `bytes` bytes, in powers of two.
    fn within(&self, bytes: u64) -> TableBudget {
        let rings = |keys: usize| self.ring_bytes.saturating_mul(keys as u64);
        let most = || {
            let steps = std::iter::successors(Some(MIN_KEYS), |keys| keys.checked_mul(2));
            let fit = |keys: &usize| table_bytes(*keys).saturating_add(rings(*keys)) <= bytes;
            steps.take_while(fit).last().unwrap_or(MIN_KEYS)
        };
        let keys = match self.keys {
            Some(kept) => Table::size_keeping(kept).max(1),
            None => most(),
        };
        let left = match self.keys {
            // The table of a configured number of keys is paid for already.
            Some(_) => bytes,
            None => bytes.saturating_sub(table_bytes(keys)),
        };
        let step = 1_u64 << left.checked_ilog2().unwrap_or(0);
        // Configured keys need at most one ring each.
        let most = rings(self.keys.unwrap_or(keys));
        TableBudget {
            keys,
            ring_bytes: if most <= left { most } else { step }
                .max(MIN_RINGS.min(keys as u64) * self.ring_bytes),
        }
    }
}

/// Divides `max_size` bytes. Policies with a configured number of keys get tables that keep them.
/// The others, and rings, get equal shares of the rest.
///
/// Shares are powers of two, so that one policy more or less rarely resizes the others. No share is
/// below [`MIN_KEYS`] keys and sixteen rings, so very many policies, or very large rings, may take
/// more than `max_size`.
pub fn divide_memory(max_size: u64, requests: &[MemoryRequest]) -> Vec<TableBudget> {
    let named: u64 = requests
        .iter()
        .filter_map(|request| request.keys)
        .map(|kept| table_bytes(Table::size_keeping(kept)))
        .sum();
    let budgets = |request: &&MemoryRequest| request.keys.is_none() || request.ring_bytes > 0;
    let sharing = requests.iter().filter(budgets).count() as u64;
    let budget = max_size.saturating_sub(named) / sharing.max(1);
    requests
        .iter()
        .map(|request| request.within(budget))
        .collect()
}

fn table_bytes(keys: usize) -> u64 {
    Table::bytes_for(keys) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;
    const CELLS: MemoryRequest = MemoryRequest {
        keys: None,
        ring_bytes: 0,
    };

    fn keys(max_size: u64, requests: &[MemoryRequest]) -> Vec<usize> {
        let budgets = divide_memory(max_size, requests);
        budgets.iter().map(|budget| budget.keys).collect()
    }

    fn named(keys: usize) -> MemoryRequest {
        MemoryRequest {
            keys: Some(keys),
            ..CELLS
        }
    }

    #[test]
    fn a_single_policy_takes_the_largest_step_that_fits() {
        assert_eq!(keys(64 * MIB, &[CELLS]), [1024 * 1024]);
        assert_eq!(keys(32 * MIB, &[CELLS]), [512 * 1024]);
    }

    #[test]
    fn one_policy_more_rarely_changes_the_others() {
        assert_eq!(
            divide_memory(64 * MIB, &[CELLS; 5]),
            divide_memory(64 * MIB, &[CELLS; 6])[..5]
        );
    }

    #[test]
    fn a_configured_number_of_keys_is_kept_and_leaves_less_for_others() {
        let some = keys(64 * MIB, &[named(1_000_000), CELLS, CELLS]);
        assert_eq!(some[0], Table::size_keeping(1_000_000));
        assert!(some[1] == some[2] && some[1] < keys(64 * MIB, &[CELLS, CELLS])[0]);
    }

    #[test]
    fn no_policy_has_fewer_keys_than_the_minimum() {
        let five = Table::size_keeping(5);
        assert_eq!(keys(0, &[CELLS, named(5)]), [MIN_KEYS, five]);
        assert_eq!(keys(MIB, &[CELLS; 10_000]), [MIN_KEYS; 10_000]);
    }

    #[test]
    fn rings_and_the_keys_that_have_them_fit_together() {
        let log = MemoryRequest {
            keys: None,
            ring_bytes: 2048,
        };
        let budget = divide_memory(64 * MIB, &[log])[0];
        assert_eq!((budget.keys, budget.ring_bytes), (16_384, 16_384 * 2048));
        for requests in [vec![log; 7], vec![log, CELLS, named(10_000)]] {
            let taken = divide_memory(64 * MIB, &requests);
            let taken = taken
                .iter()
                .map(|budget| table_bytes(budget.keys) + budget.ring_bytes);
            assert!(taken.sum::<u64>() <= 64 * MIB);
        }
    }

    #[test]
    fn the_rings_of_configured_keys_are_bounded_by_the_rest() {
        let log = MemoryRequest {
            keys: Some(1_000_000),
            ring_bytes: 2048,
        };
        assert_eq!(
            divide_memory(4096 * MIB, &[log])[0].ring_bytes,
            1_000_000 * 2048
        );
        let budget = divide_memory(256 * MIB, &[log])[0];
        let size = Table::size_keeping(1_000_000);
        assert_eq!((budget.keys, budget.ring_bytes), (size, 128 * MIB));
    }
}
