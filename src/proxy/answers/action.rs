//! What becomes of a request beyond its quota: it is answered, at once or after a while, or it is not.

use std::time::Duration;

use http::header::{HeaderName, HeaderValue};

use crate::telemetry::metrics::HeldMetrics;
use crate::telemetry::registry::Registry;

/// What a policy does to requests beyond its quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionSpec {
    /// Answers with an error.
    Reject,
    /// Answers with what looks like success, and names the policy in no header field.
    Decoy,
    /// Answers with an error after a while.
    Tarpit(TarpitSpec),
    /// Closes the connection, or resets the stream, without an answer.
    Drop,
    /// Admits, and tells the upstream in this field.
    Tag(HeaderName),
}

/// How requests are held before they are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TarpitSpec {
    /// For how long.
    pub delay: Duration,
    /// How many at once; further ones are refused at once.
    pub max_held: u32,
}

/// An action that runs.
#[derive(Debug)]
pub enum Action {
    /// As [`ActionSpec::Reject`].
    Reject,
    /// As [`ActionSpec::Decoy`].
    Decoy,
    /// As [`ActionSpec::Tarpit`].
    Tarpit(Tarpit),
    /// As [`ActionSpec::Drop`].
    Drop,
    /// As [`ActionSpec::Tag`].
    Tag(Tag),
}

/// A field that tells the upstream of a policy.
#[derive(Clone, Debug)]
pub struct Tag {
    pub(crate) name: HeaderName,
    /// The policy's name.
    pub(crate) value: HeaderValue,
}

/// Holds requests for a while.
#[derive(Debug)]
pub struct Tarpit {
    spec: TarpitSpec,
    held: HeldMetrics,
}

/// A place in a tarpit, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct TarpitSlot {
    delay: Duration,
    held: HeldMetrics,
}

impl Action {
    /// The action of `policy`. What it holds is found again by that name, and counts on over a reload.
    pub(crate) fn new(spec: ActionSpec, policy: &str, registry: &Registry) -> Self {
        match spec {
            ActionSpec::Reject => Self::Reject,
            ActionSpec::Decoy => Self::Decoy,
            ActionSpec::Tarpit(spec) => Self::Tarpit(Tarpit {
                spec,
                held: HeldMetrics::new(registry, policy),
            }),
            ActionSpec::Drop => Self::Drop,
            ActionSpec::Tag(name) => Self::Tag(Tag {
                name,
                value: HeaderValue::from_str(policy).expect("names are visible ASCII"),
            }),
        }
    }

    /// Whether clients may know of the policy.
    pub(crate) fn is_disclosed(&self) -> bool {
        !matches!(self, Self::Decoy)
    }

    /// What it does, in a word.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Reject => "limited",
            Self::Decoy => "answered with a decoy",
            Self::Tarpit(_) => "held, then limited",
            Self::Drop => "dropped",
            Self::Tag(_) => "tagged",
        }
    }

    /// The field that it adds, where it refuses nothing.
    pub(crate) fn tag(&self) -> Option<&Tag> {
        match self {
            Self::Tag(tag) => Some(tag),
            _ => None,
        }
    }
}

impl Tarpit {
    /// A place, if one is free.
    pub(crate) fn acquire(&self) -> Option<TarpitSlot> {
        self.held
            .enter_below(self.spec.max_held)
            .then(|| TarpitSlot {
                delay: self.spec.delay,
                held: self.held.clone(),
            })
    }
}

impl TarpitSlot {
    /// Waits for as long as the request is to be held.
    pub(crate) async fn wait(self) {
        tokio::time::sleep(self.delay).await;
    }
}

impl Drop for TarpitSlot {
    fn drop(&mut self) {
        self.held.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tarpit(max_held: u32, registry: &Registry) -> Tarpit {
        let delay = Duration::from_secs(10);
        let spec = ActionSpec::Tarpit(TarpitSpec { delay, max_held });
        match Action::new(spec, "p", registry) {
            Action::Tarpit(tarpit) => tarpit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_more_are_held_than_there_are_places_also_over_a_reload() {
        let registry = Registry::default();
        let before = tarpit(2, &registry);
        let first = before.acquire().expect("a place");
        let after = tarpit(2, &registry);
        let second = after.acquire().expect("a place");
        drop(before);
        assert!(after.acquire().is_none());
        drop(first);
        assert!(after.acquire().is_some());
        drop(second);
        let all = [after.acquire(), after.acquire(), after.acquire()];
        assert_eq!(all.map(|held| held.is_some()), [true, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_taken_for_as_long_as_was_said() {
        let tarpit = tarpit(1, &Registry::default());
        let waiting = tokio::spawn(tarpit.acquire().expect("a place").wait());
        tokio::time::sleep(Duration::from_millis(9_999)).await;
        assert!(!waiting.is_finished());
        assert!(tarpit.acquire().is_none());
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(waiting.is_finished());
        assert!(tarpit.acquire().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_gives_the_place_back() {
        let tarpit = tarpit(1, &Registry::default());
        let waiting = tokio::spawn(tarpit.acquire().expect("a place").wait());
        tokio::time::sleep(Duration::from_secs(1)).await;
        waiting.abort();
        assert!(waiting.await.is_err());
        assert!(tarpit.acquire().is_some());
    }
}
