//! Changes of single keys by operators, as machines announce them to each other, and the rules that
//! are in force because of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use crate::clock::Timestamp;
use crate::limiter::Fingerprint;
use crate::telemetry::metrics::KeyAction;

/// The operator who changed a key, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The operator, by role and place of the token.
    pub actor: Box<str>,
    /// The operator's reason; empty without one.
    pub reason: Box<str>,
}

/// A change of a key by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Makes its bucket full again.
    Reset,
    /// Grants units, instead of any earlier grant. 0 units take that back.
    Grant {
        /// Units, spendable at once.
        units: u32,
        /// The end of the grant.
        until: Timestamp,
    },
    /// Bans the key, instead of any earlier ban by an operator.
    Ban {
        /// The end of the ban.
        until: Timestamp,
    },
    /// Lifts all bans, and forgets the key's strikes.
    Unban,
}

/// A change that machines tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    /// The label of the policy.
    pub policy: Box<str>,
    /// The key, by the fingerprint that all machines share.
    pub key: Fingerprint,
    /// The change. The end of a synchronised grant is that by each machine's own clock: totals are
    /// kept under this number. All other ends are in `keep`.
    pub change: KeyChange,
    /// The operator.
    pub by: Attribution,
    /// The instant of the change, in the server's time.
    pub at: Timestamp,
    /// The last instant at which it matters: the end of a ban or a grant.
    pub keep: Timestamp,
}

/// A ban or a grant by an operator, or a reset that still matters to buckets and to remembered
/// refusals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRule {
    /// The units of a grant; 0 if it was taken back while Redis may still have some of it.
    pub units: u32,
    /// The units of a grant that are left; all of them where that is not known.
    pub left: u32,
    /// The instant of the operator's change.
    pub since: Timestamp,
    /// The end.
    pub until: Timestamp,
    /// The operator.
    pub by: Attribution,
}

impl KeyRule {
    /// A change at `now`, of which no unit is spent.
    pub(crate) fn new(units: u32, until: Timestamp, by: &Attribution, now: Timestamp) -> Self {
        KeyRule {
            units,
            left: units,
            since: now,
            until,
            by: by.clone(),
        }
    }
}

/// The kind of a rule that operators can list and end.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OperatorActionKind {
    /// A ban.
    Ban,
    /// A grant.
    Grant,
}

impl KeyChange {
    /// Its kind, in the words of metrics and announcements.
    pub const fn action(self) -> KeyAction {
        match self {
            Self::Reset => KeyAction::Reset,
            Self::Grant { .. } => KeyAction::Grant,
            Self::Ban { .. } => KeyAction::Ban,
            Self::Unban => KeyAction::Unban,
        }
    }

    /// The units of a grant; 0 of all others.
    pub const fn units(self) -> u32 {
        match self {
            Self::Grant { units, .. } => units,
            Self::Reset | Self::Ban { .. } | Self::Unban => 0,
        }
    }
}

impl OperatorActionKind {
    /// The change that ends a rule of this kind.
    pub const fn end(self, rule: &KeyRule) -> KeyChange {
        match self {
            Self::Ban => KeyChange::Unban,
            Self::Grant => KeyChange::Grant {
                units: 0,
                until: rule.until,
            },
        }
    }
}
