//! How the policies of a configuration share the memory for buckets.

use super::Table;

/// No policy has room for fewer keys.
pub const FEWEST_KEYS: usize = 1024;

/// For how many keys each policy has room, when together they may take `max_size` bytes: as many as it
/// wishes, and an equal share of the rest for those that name no number.
///
/// Shares step by powers of two, so that a policy more or less rarely moves the buckets of the others;
/// and none is below [`FEWEST_KEYS`], so that very many policies may take more than `max_size`.
pub fn divide(max_size: u64, wishes: &[Option<usize>]) -> Vec<usize> {
    let named: u64 = wishes.iter().flatten().map(|&keys| bytes(keys)).sum();
    let sharing = wishes.iter().filter(|wish| wish.is_none()).count() as u64;
    let share = max_size.saturating_sub(named) / sharing.max(1);
    let steps = std::iter::successors(Some(FEWEST_KEYS), |keys| keys.checked_mul(2));
    let most = steps
        .take_while(|&keys| bytes(keys) <= share)
        .last()
        .unwrap_or(FEWEST_KEYS);
    wishes
        .iter()
        .map(|wish| wish.unwrap_or(most).max(FEWEST_KEYS))
        .collect()
}

fn bytes(keys: usize) -> u64 {
    Table::bytes_for(keys) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn a_single_policy_takes_the_largest_step_that_fits() {
        assert_eq!(divide(64 * MIB, &[None]), [1024 * 1024]);
        assert_eq!(divide(32 * MIB, &[None]), [512 * 1024]);
    }

    #[test]
    fn one_policy_more_rarely_changes_the_others() {
        assert_eq!(
            divide(64 * MIB, &[None; 5]),
            divide(64 * MIB, &[None; 6])[..5]
        );
    }

    #[test]
    fn a_named_number_is_kept_and_leaves_less_for_the_rest() {
        let keys = divide(64 * MIB, &[Some(1_000_000), None, None]);
        assert_eq!(keys[0], 1_000_000);
        assert!(keys[1] == keys[2] && keys[1] < divide(64 * MIB, &[None, None])[0]);
    }

    #[test]
    fn nobody_has_fewer_than_the_least() {
        assert_eq!(divide(0, &[None, Some(5)]), [FEWEST_KEYS, FEWEST_KEYS]);
        assert_eq!(divide(MIB, &[None; 10_000]), [FEWEST_KEYS; 10_000]);
    }
}
