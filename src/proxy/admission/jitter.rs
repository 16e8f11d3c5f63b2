//! Jitter of `Retry-After`, so that refused clients do not return all at once.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, KeyParts, Secret};

/// A duration from 0 to `most`, in microseconds, different for each key and instant. Clients cannot
/// predict it without the secret.
pub(crate) fn of(most: Duration, secret: &Secret, key: Fingerprint, now: Timestamp) -> Duration {
    if most.is_zero() {
        return Duration::ZERO;
    }
    let mut hasher = secret.hasher();
    hasher.part(0, &key.bits().to_le_bytes());
    hasher.part(0, &now.as_micros().to_le_bytes());
    let share = u128::from(hasher.finish().bits());
    let micros = (share * (most.as_micros() + 1)) >> 64;
    Duration::from_micros(micros as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: Secret = Secret::from_key([1, 2]);

    fn at(micros: u64, key: u64, most: Duration) -> Duration {
        let key = Fingerprint::from_bits(key);
        of(most, &SECRET, key, Timestamp::from_micros(micros))
    }

    #[test]
    fn all_that_there_is_comes_as_often() {
        let most = Duration::from_micros(9);
        let mut counts = [0; 10];
        for micros in 0..10_000 {
            counts[at(micros, micros % 7, most).as_micros() as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1_150).contains(count)),
            "{counts:?}"
        );
        assert_eq!(at(7, 7, Duration::ZERO), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn it_is_never_more_than_was_said(micros: u64, key: u64, most in 0..3_600_000_000_u64) {
            let most = Duration::from_micros(most);
            prop_assert!(at(micros, key, most) <= most);
        }
    }
}
