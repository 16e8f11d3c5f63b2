//! Actions of operators on single keys: as machines keep them, and as they announce them to each
//! other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use crate::clock::Timestamp;
use crate::limiter::Fingerprint;

/// The operator who banned a key or granted it units, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The operator, by role and place of the token; empty if an earlier release stored it.
    pub actor: Box<str>,
    /// The operator's reason; empty without one.
    pub reason: Box<str>,
}

/// A ban by an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorBan {
    /// The instant at which the operator banned the key.
    pub since: Timestamp,
    /// The end of the ban.
    pub until: Timestamp,
    /// The operator.
    pub by: Attribution,
}

/// The granted units of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedUnits {
    /// The units that are left.
    pub left: u32,
    /// The units of the grant.
    pub units: u32,
    /// The instant of the grant.
    pub since: Timestamp,
    /// The end of the grant.
    pub until: Timestamp,
    /// The operator.
    pub by: Attribution,
}

/// A ban or a grant in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    /// A ban.
    Ban(OperatorBan),
    /// A grant. Of a shared key, the units that are left are those of the grant.
    Grant(GrantedUnits),
}

/// The kind of a ban or a grant.
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

/// An operator's action on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The label of the policy.
    pub policy: Box<str>,
    /// The key, by the fingerprint that all machines share.
    pub key: Fingerprint,
    /// The action.
    pub action: AnnouncedAction,
    /// The instant of the action, in the server's time.
    pub at: Timestamp,
    /// The last instant at which it matters: the end of a ban or a grant.
    pub keep: Timestamp,
}

/// An action of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnouncedAction {
    /// The bucket was made whole.
    Reset,
    /// Units were granted; 0 take the grant back.
    Grant {
        /// The units.
        units: u32,
        /// The end of a synchronised grant, by each machine's own clock: totals are kept under this
        /// number. `None` if an older release announced it.
        ends: Option<Timestamp>,
        /// The operator.
        by: Attribution,
    },
    /// The key was banned by this operator.
    Ban(Attribution),
    /// The ban was lifted.
    Unban,
}

impl AnnouncedAction {
    /// The word of the announcement.
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Grant { .. } => "grant",
            Self::Ban(_) => "ban",
            Self::Unban => "unban",
        }
    }
}
