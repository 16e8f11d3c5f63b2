//! How the policies of a configuration share the memory for buckets.

use crate::limiter::Algorithm;
use crate::store::Table;

/// No policy has room for fewer keys, unless it names fewer.
pub const FEWEST_KEYS: usize = 1024;
/// No policy that needs rings has room for fewer full ones.
const FEWEST_RINGS: u64 = 16;

/// What a policy asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// How many keys it names, if it does: so many are kept.
    pub keys: Option<usize>,
    /// The bytes of a full ring; 0 if it needs none.
    pub ring: u64,
}

/// What a policy is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The size of its table.
    pub keys: usize,
    /// In how many bytes it has room for rings.
    pub rings: u64,
}

impl Wish {
    /// What a policy with this algorithm asks for.
    pub const fn new(algorithm: &Algorithm, keys: Option<usize>) -> Self {
        Self {
            keys,
            ring: Table::ring_bytes_for(algorithm),
        }
    }

    /// The largest share within so many bytes, in steps of powers of two.
    fn within(&self, bytes: u64) -> Share {
        let rings = |keys: usize| self.ring.saturating_mul(keys as u64);
        let most = || {
            let steps = std::iter::successors(Some(FEWEST_KEYS), |keys| keys.checked_mul(2));
            let fit = |keys: &usize| table_bytes(*keys).saturating_add(rings(*keys)) <= bytes;
            steps.take_while(fit).last().unwrap_or(FEWEST_KEYS)
        };
        let keys = match self.keys {
            Some(kept) => Table::size_keeping(kept).max(1),
            None => most(),
        };
        let left = match self.keys {
            // Its table is paid for.
            Some(_) => bytes,
            None => bytes.saturating_sub(table_bytes(keys)),
        };
        let step = 1_u64 << left.checked_ilog2().unwrap_or(0);
        // Of a named number no more have rings.
        let most = rings(self.keys.unwrap_or(keys));
        Share {
            keys,
            rings: if most <= left { most } else { step }
                .max(FEWEST_RINGS.min(keys as u64) * self.ring),
        }
    }
}

/// How policies share `max_size` bytes: tables that keep as many keys as they name, and for the others, and
/// for rings, an equal share of the rest.
///
/// Shares step by powers of two, so that a policy more or less rarely moves the buckets of the others;
/// and none is below [`FEWEST_KEYS`] keys and sixteen rings, so that very many policies, or very large
/// rings, may take more than `max_size`.
pub fn divide(max_size: u64, wishes: &[Wish]) -> Vec<Share> {
    let named: u64 = wishes
        .iter()
        .filter_map(|wish| wish.keys)
        .map(|kept| table_bytes(Table::size_keeping(kept)))
        .sum();
    let shares = |wish: &&Wish| wish.keys.is_none() || wish.ring > 0;
    let sharing = wishes.iter().filter(shares).count() as u64;
    let share = max_size.saturating_sub(named) / sharing.max(1);
    wishes.iter().map(|wish| wish.within(share)).collect()
}

fn table_bytes(keys: usize) -> u64 {
    Table::bytes_for(keys) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;
    const CELLS: Wish = Wish {
        keys: None,
        ring: 0,
    };

    fn keys(max_size: u64, wishes: &[Wish]) -> Vec<usize> {
        let shares = divide(max_size, wishes);
        shares.iter().map(|share| share.keys).collect()
    }

    fn named(keys: usize) -> Wish {
        Wish {
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
            divide(64 * MIB, &[CELLS; 5]),
            divide(64 * MIB, &[CELLS; 6])[..5]
        );
    }

    #[test]
    fn a_named_number_is_kept_and_leaves_less_for_the_rest() {
        let some = keys(64 * MIB, &[named(1_000_000), CELLS, CELLS]);
        assert_eq!(some[0], Table::size_keeping(1_000_000));
        assert!(some[1] == some[2] && some[1] < keys(64 * MIB, &[CELLS, CELLS])[0]);
    }

    #[test]
    fn nobody_has_fewer_than_the_least() {
        let five = Table::size_keeping(5);
        assert_eq!(keys(0, &[CELLS, named(5)]), [FEWEST_KEYS, five]);
        assert_eq!(keys(MIB, &[CELLS; 10_000]), [FEWEST_KEYS; 10_000]);
    }

    #[test]
    fn rings_and_the_keys_that_have_them_fit_together() {
        let log = Wish {
            keys: None,
            ring: 2048,
        };
        let share = divide(64 * MIB, &[log])[0];
        assert_eq!((share.keys, share.rings), (16_384, 16_384 * 2048));
        for wishes in [vec![log; 7], vec![log, CELLS, named(10_000)]] {
            let taken = divide(64 * MIB, &wishes);
            let taken = taken
                .iter()
                .map(|share| table_bytes(share.keys) + share.rings);
            assert!(taken.sum::<u64>() <= 64 * MIB);
        }
    }

    #[test]
    fn the_rings_of_named_keys_are_bounded_by_what_is_left() {
        let log = Wish {
            keys: Some(1_000_000),
            ring: 2048,
        };
        assert_eq!(divide(4096 * MIB, &[log])[0].rings, 1_000_000 * 2048);
        let share = divide(256 * MIB, &[log])[0];
        let size = Table::size_keeping(1_000_000);
        assert_eq!((share.keys, share.rings), (size, 128 * MIB));
    }
}
