//! `ejection` of an upstream: addresses that fail are left out for a while.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::config::schema::{DAY, HOUR, MINUTE, SECOND};
use crate::config::value::{Duration, Percentage, Whole};
use crate::config::{Code, Finding, Findings, Located};
use crate::upstream::EjectionSpec;

/// `ejection` of an upstream.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename = "$form", expecting = "`off`, or a mapping: `{ for: 10s }`")]
#[schemars(rename = "Ejection", untagged)]
pub enum Ejection {
    /// Addresses that fail stay in use.
    #[serde(rename = "scalar")]
    Off(Off),
    /// When and for how long an address is left out.
    #[serde(rename = "mapping")]
    On(EjectionRules),
}

/// The word that switches it off.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Off {
    /// Off.
    #[default]
    Off,
}

/// When and for how long an address that fails is left out.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EjectionRules {
    /// Failures in a row that eject an address: resets, invalid responses, time-outs and statuses
    /// from 500 to 599 except 501 and 505. 1 to 1000.
    pub consecutive_failures: Located<Whole<1, 1_000, 5>>,
    /// The part of its requests that fail, of at least 100 in 10 s, that ejects an address; none
    /// unless given.
    pub failure_rate: Option<Located<Percentage<1, 100>>>,
    /// The length of the first ejection; each further one in a row is longer by this. `100ms` to
    /// `1h`.
    #[serde(rename = "for")]
    pub base: Located<Duration<100, HOUR, { 10 * SECOND }>>,
    /// The length of the longest ejection, `100ms` to `1d`.
    #[serde(rename = "max_for")]
    pub max: Located<Duration<100, DAY, { 5 * MINUTE }>>,
    /// The part of the addresses that may be ejected at once: at least one of two, and never the
    /// last. Addresses that take no connection are ejected beyond it.
    pub max_ejected: Located<Percentage<0, 100, 50>>,
}

impl Default for Ejection {
    fn default() -> Self {
        Self::On(EjectionRules::default())
    }
}

/// Serializes the written form, which the schema shows as the default.
impl Serialize for Ejection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off(off) => off.serialize(serializer),
            Self::On(rules) => rules.serialize(serializer),
        }
    }
}

pub(super) fn check(ejection: &Ejection, findings: &Findings<'_>) {
    let Ejection::On(rules) = ejection else {
        return;
    };
    let (base, max) = (&rules.base, &rules.max);
    if max.get() < base.get() {
        let message = format!(
            "the longest ejection, {}, is shorter than the first",
            max.value
        );
        let finding = Finding::error(max.node.or(base.node), Code::Conflict, message);
        let finding = finding.related(base.node, "the first");
        findings.add(finding.help(format!("write `max_for: {}` or more", base.value)));
    }
}

pub(super) fn compile(ejection: &Ejection) -> Option<EjectionSpec> {
    match ejection {
        Ejection::Off(_) => None,
        Ejection::On(rules) => Some(EjectionSpec {
            consecutive_failures: rules.consecutive_failures.get(),
            failure_rate: rules.failure_rate.as_ref().map(|rate| rate.get()),
            base: rules.base.get(),
            max: rules.max.get(),
            max_ejected: rules.max_ejected.get(),
        }),
    }
}
