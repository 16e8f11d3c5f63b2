//! Jitter of `Retry-After`, so that refused clients do not return all at once.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, KeyParts, Secret};

/// Microseconds from 0 to `most`, different for each key and instant. Clients cannot
/// predict it without the secret.
pub(crate) fn of(most: Duration, secret: &Secret, key: Fingerprint, now: Timestamp) -> u64 {
    if most.is_zero() {
        return 0;
    }
    let mut hasher = secret.hasher();
    hasher.part(0, &key.bits().to_le_bytes());
    hasher.part(0, &now.as_micros().to_le_bytes());
    let share = u128::from(hasher.finish().bits());
    ((share * (most.as_micros() + 1)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: Secret = Secret::from_key([1, 2]);

    fn at(micros: u64, key: u64, most: Duration) -> u64 {
        let key = Fingerprint::from_bits(key);
        of(most, &SECRET, key, Timestamp::from_micros(micros))
    }

    #[test]
    fn all_that_there_is_comes_as_often() {
        let most = Duration::from_micros(9);
        let mut counts = [0; 10];
        for micros in 0..10_000 {
            counts[at(micros, micros % 7, most) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1_150).contains(count)),
            "{counts:?}"
        );
        assert_eq!(at(7, 7, Duration::ZERO), 0);
    }

    proptest! {
        #[test]
        fn it_is_never_more_than_was_said(micros: u64, key: u64, most in 0..3_600_000_000_u64) {
            let most = Duration::from_micros(most);
            prop_assert!(u128::from(at(micros, key, most)) <= most.as_micros());
        }
    }
}
