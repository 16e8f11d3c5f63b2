//! Modes: whether a policy is enforced or only shadows, and switching them while it runs.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, KeyParts, Secret};

/// The mode of a policy, which has the name that the configuration writes.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum Mode {
    /// The policy refuses requests.
    Enforce,
    /// The policy decides and counts, and refuses no request.
    Shadow,
    /// The policy refuses requests of some keys, and shadows the others.
    #[strum(serialize = "enforce")]
    Partly(Rollout),
    /// The policy applies to no request.
    Disabled,
}

/// The mode of a running policy: the configured one, until an operator sets another. A reload of a
/// changed configuration makes a new one.
#[derive(Debug)]
pub struct ModeSwitch {
    /// The configured mode.
    pub configured: Mode,
    /// The number of the mode that is set, from 1 in [`SETTABLE`]; 0 for the configured one.
    set: AtomicU8,
    /// The change that set it.
    change: Mutex<Option<ModeChange>>,
}

/// The change by which an operator set a mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange {
    /// The instant of the change.
    pub at: Timestamp,
    /// The operator's reason.
    pub reason: Option<Box<str>>,
}

/// The modes that an operator can set.
const SETTABLE: [Mode; 3] = [Mode::Enforce, Mode::Shadow, Mode::Disabled];

impl ModeSwitch {
    /// The configured mode, and no other set.
    pub fn new(configured: Mode) -> Self {
        Self {
            configured,
            set: AtomicU8::new(0),
            change: Mutex::new(None),
        }
    }

    /// The mode in force.
    pub fn current(&self) -> &Mode {
        self.chosen().unwrap_or(&self.configured)
    }

    /// The mode that an operator has set.
    pub fn chosen(&self) -> Option<&Mode> {
        let number = usize::from(self.set.load(Relaxed));
        number.checked_sub(1).map(|index| &SETTABLE[index])
    }

    /// Sets the mode with this word of the configuration, or the configured one for
    /// `configured`. Returns false for any other word.
    pub fn set(&self, word: &str, change: ModeChange) -> bool {
        let is_word = |mode: &Mode| mode.into_str() == word;
        let number = match SETTABLE.iter().position(is_word) {
            Some(index) => index as u8 + 1,
            None if word == "configured" => 0,
            None => return false,
        };
        let mut last = self.change.lock();
        *last = (number > 0).then_some(change);
        self.set.store(number, Relaxed);
        true
    }

    /// The change that set a mode other than the configured one.
    pub fn change(&self) -> Option<ModeChange> {
        let change = self.change.lock().clone();
        change.filter(|_| self.current() != &self.configured)
    }

    /// Sets the mode that was set before.
    pub fn keep(&self, before: &Self) {
        let change = before.change.lock();
        self.set.store(before.set.load(Relaxed), Relaxed);
        self.change.lock().clone_from(&change);
    }
}

/// The share of keys for which a policy is enforced: the same on every node, after a restart, and
/// under any quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    percent: u8,
    /// The seed of the hash. It is no secret: clients may know which keys are in.
    hashed_by: Secret,
}

/// The effect of a policy's decision on one request, named as the mode that always has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub enum Enforcement {
    /// The decision can refuse the request.
    #[strum(serialize = "enforce")]
    Enforced,
    /// The decision is only counted.
    #[strum(serialize = "shadow")]
    Shadowed,
}

impl Rollout {
    /// A rollout to `percent` of the policy's keys, 0 to 100. Keys that are in stay in while the
    /// number grows.
    pub fn new(policy: &str, percent: u8) -> Self {
        let mut hasher = Secret::from_key([0, 0]).hasher();
        hasher.part(0, policy.as_bytes());
        Rollout {
            percent,
            hashed_by: Secret::from_key([hasher.finish().bits(), 0]),
        }
    }

    /// True for a key that is in; `hash` is that of [`Mode::enforcement`].
    fn includes(&self, hash: impl FnOnce(&Secret) -> Option<Fingerprint>) -> bool {
        hash(&self.hashed_by).is_some_and(|key| {
            let hundredth = (u128::from(key.bits()) * 100) >> 64;
            hundredth < u128::from(self.percent)
        })
    }
}

impl Mode {
    /// The percentage of keys for which the policy is enforced, if not for all.
    pub fn percent(&self) -> Option<u8> {
        match self {
            Self::Partly(rollout) => Some(rollout.percent),
            Self::Enforce | Self::Shadow | Self::Disabled => None,
        }
    }

    /// True if the policy refuses requests of some keys.
    pub fn can_refuse(&self) -> bool {
        matches!(self, Self::Enforce | Self::Partly(_))
    }

    /// The effect on a key whose fingerprint under a secret is `hash`. It has none if it lacks a
    /// part, whatever replaces the part.
    pub(crate) fn enforcement(
        &self,
        hash: impl FnOnce(&Secret) -> Option<Fingerprint>,
    ) -> Enforcement {
        match self {
            Self::Enforce => Enforcement::Enforced,
            Self::Shadow | Self::Disabled => Enforcement::Shadowed,
            Self::Partly(rollout) => {
                if rollout.includes(hash) {
                    Enforcement::Enforced
                } else {
                    Enforcement::Shadowed
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, Method};
    use proptest::prelude::*;

    use super::*;
    use crate::http::headers::Headers;
    use crate::rules::{Descriptor, Head, KeyPart, OnMissingKey};

    const NAME: HeaderName = HeaderName::from_static("x-key");

    fn is_in(policy: &str, percent: u8, key: &str) -> bool {
        let value = HeaderValue::from_str(key).expect("a value");
        let headers: Headers = [(NAME, value)].into_iter().collect();
        let head = Head {
            method: &Method::GET,
            host: "a",
            path: "/",
            query: None,
            headers: &headers,
            client_ip: [192, 0, 2, 1].into(),
            local: None,
            scheme: None,
            token: None,
            body: None,
            client: None,
            is_any_target: false,
        };
        let descriptor = Descriptor::new(vec![KeyPart::Header(NAME)], OnMissingKey::Refuse, 64);
        let mode = Mode::Partly(Rollout::new(policy, percent));
        mode.enforcement(|secret| descriptor.whole_fingerprint(secret, &head))
            == Enforcement::Enforced
    }

    fn members(policy: &str, percent: u8) -> Vec<usize> {
        let all = 0..10_000;
        all.filter(|number| is_in(policy, percent, &format!("key-{number}")))
            .collect()
    }

    #[test]
    fn so_many_percent_are_in_and_others_for_another_policy() {
        for (percent, least, most) in [
            (0, 0, 0),
            (10, 900, 1_100),
            (50, 4_800, 5_200),
            (100, 10_000, 10_000),
        ] {
            let count = members("a", percent).len();
            assert!((least..=most).contains(&count), "{percent}: {count}");
        }
        assert_ne!(members("a", 10), members("b", 10));
    }

    #[test]
    fn requests_without_the_key_are_in_shadow_whatever_stands_in() {
        let descriptor = |on_missing| {
            let parts = vec![KeyPart::Header(NAME), KeyPart::Method];
            Descriptor::new(parts, on_missing, 64)
        };
        let headers = Headers::new();
        let head = Head {
            method: &Method::GET,
            host: "a",
            path: "/",
            query: None,
            headers: &headers,
            client_ip: [192, 0, 2, 1].into(),
            local: None,
            scheme: None,
            token: None,
            body: None,
            client: None,
            is_any_target: false,
        };
        for on_missing in [
            OnMissingKey::Part(KeyPart::Host),
            OnMissingKey::Skip,
            OnMissingKey::Refuse,
            OnMissingKey::Shared,
            OnMissingKey::Value("free".into()),
        ] {
            let mode = Mode::Partly(Rollout::new("a", 100));
            let descriptor = descriptor(on_missing.clone());
            let stance = mode.enforcement(|secret| descriptor.whole_fingerprint(secret, &head));
            assert_eq!(stance, Enforcement::Shadowed, "{on_missing:?}");
        }
    }

    /// The hash must not change between versions or differ between nodes.
    #[test]
    fn who_is_in_stays_the_same_for_ever() {
        let tenth: Vec<_> = members("per-key", 10).into_iter().take(6).collect();
        assert_eq!(tenth, [1, 7, 18, 34, 57, 59]);
    }

    #[test]
    fn the_change_that_set_a_mode_is_known_until_the_mode_is_the_configured_one() {
        let change = ModeChange {
            at: Timestamp::from_micros(5),
            reason: Some("ticket 42".into()),
        };
        let switch = ModeSwitch::new(Mode::Enforce);
        assert_eq!(switch.change(), None);
        assert!(switch.set("shadow", change.clone()));
        assert_eq!(switch.change(), Some(change.clone()));
        let next = ModeSwitch::new(Mode::Enforce);
        next.keep(&switch);
        assert_eq!(
            (next.current(), next.change()),
            (&Mode::Shadow, Some(change.clone()))
        );
        assert!(switch.set("enforce", change.clone()));
        assert_eq!(switch.change(), None, "as configured");
        assert!(next.set("configured", change.clone()));
        assert_eq!(next.change(), None);
        assert!(!next.set("loud", change));
    }

    proptest! {
        #[test]
        fn who_is_in_stays_in_as_more_come(key in "[a-z]{1,8}", percent in 0..100_u8) {
            prop_assert!(!is_in("a", percent, &key) || is_in("a", percent + 1, &key));
        }
    }
}
