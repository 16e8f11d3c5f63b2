//! The keys that a policy met and limited: the busiest, and how long they were refused.

use limiter::{Decision, Fingerprint, Outcome, Timestamp};

use crate::top_keys::TopKeys;

/// How many keys of a policy are followed: every key with more than 1 / 2048 of the hits is among
/// them.
pub(crate) const FOLLOWED: usize = 2048;

/// The keys of one policy.
#[derive(Debug)]
pub(crate) struct PolicyKeys {
    /// By requests, with what they are called.
    pub busiest: TopKeys<MetKey>,
    /// By refusals.
    pub limited: TopKeys<LimitedKey>,
    /// The key that was limited longest.
    pub longest: Option<LimitedKey>,
    /// Its place among the policies.
    pub place: usize,
}

/// A key that has met a policy.
#[derive(Clone, Debug)]
pub(crate) struct MetKey {
    pub name: String,
    /// The most that it used of its bucket, in percent.
    pub most_used: u8,
    pub is_limited: bool,
}

/// A key that has been refused.
#[derive(Clone, Debug)]
pub(crate) struct LimitedKey {
    pub name: String,
    pub span: LimitedSpan,
}

/// A time during which a key was refused: from a refusal to the end that it announced, or that
/// others within that time did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitedSpan {
    pub since: Timestamp,
    /// `None` where it never ends.
    until: Option<Timestamp>,
}

impl PolicyKeys {
    pub(super) fn new(place: usize) -> Self {
        PolicyKeys {
            place,
            busiest: TopKeys::new(FOLLOWED),
            limited: TopKeys::new(FOLLOWED),
            longest: None,
        }
    }

    pub(super) fn count(
        &mut self,
        key: Fingerprint,
        name: impl Fn() -> String,
        decision: &Decision,
        now: Timestamp,
    ) {
        let met = self.busiest.hit(key, 1, || MetKey {
            name: name(),
            most_used: 0,
            is_limited: false,
        });
        met.most_used = met.most_used.max(used_percent(decision));
        met.is_limited |= !decision.is_admitted();
        let Outcome::Refuse { retry_at } = decision.outcome else {
            return;
        };
        let limited = self.limited.hit(key, 1, || LimitedKey {
            name: name(),
            span: LimitedSpan {
                since: now,
                until: retry_at,
            },
        });
        limited.span.extend(now, retry_at);
        let length = limited.span.length(now);
        let longest = self.longest.as_ref();
        if longest.is_none_or(|longest| longest.span.length(now) < length) {
            self.longest = Some(limited.clone());
        }
    }
}

/// How much of its bucket the key has used after a decision.
fn used_percent(decision: &Decision) -> u8 {
    let capacity = decision.capacity;
    let used = capacity.saturating_sub(decision.remaining);
    u8::try_from(used * 100 / capacity.max(1)).unwrap_or(100)
}

impl LimitedSpan {
    /// Another refusal. Whoever is refused at the announced end, or later, was admitted before.
    fn extend(&mut self, now: Timestamp, retry_at: Option<Timestamp>) {
        match (self.until, retry_at) {
            (Some(until), _) if now >= until => {
                *self = LimitedSpan {
                    since: now,
                    until: retry_at,
                }
            }
            (Some(until), Some(retry_at)) => self.until = Some(until.max(retry_at)),
            _ => self.until = None,
        }
    }

    /// How long it is, in microseconds; as long as it has lasted at `now` where it never ends.
    pub(crate) fn length(&self, now: Timestamp) -> u64 {
        let until = self.until.unwrap_or(now);
        until.as_micros().saturating_sub(self.since.as_micros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn span(refusals: &[(u64, Option<u64>)]) -> LimitedSpan {
        let mut refusals = refusals
            .iter()
            .map(|&(now, retry_at)| (at(now), retry_at.map(at)));
        let (since, until) = refusals.next().expect("a refusal");
        let mut span = LimitedSpan { since, until };
        refusals.for_each(|(now, retry_at)| span.extend(now, retry_at));
        span
    }

    #[test]
    fn a_key_is_limited_until_the_end_that_its_refusals_announce() {
        let length = |refusals: &[_]| span(refusals).length(at(100));
        assert_eq!(length(&[(5, Some(9))]), 4);
        assert_eq!(length(&[(5, Some(9)), (8, Some(20))]), 15);
        assert_eq!(length(&[(5, Some(9)), (8, Some(8))]), 4);
        // At the end it was admitted, and then refused again.
        assert_eq!(length(&[(5, Some(9)), (9, Some(20))]), 11);
    }

    #[test]
    fn what_is_never_admitted_is_limited_from_its_first_refusal_on() {
        assert_eq!(span(&[(5, None), (50, None)]).length(at(60)), 55);
        assert_eq!(span(&[(5, Some(9)), (8, None)]).length(at(60)), 55);
    }
}
