//! `quota` of an amount: units per window, or the part of the request that states them.

use std::fmt;

use crate::config::sections::prelude::*;
use crate::config::value;
use crate::rules;

by_form! {
    /// Units per window.
    #[derive(PartialEq, Eq)]
    pub enum Quota("Amount", "a quota, `100/1m`, or where requests state it: `{ from: header:x-rate, per: 1s, default: 100, max: 5000 }`") {
        /// The same for all requests.
        Fixed(value::Quota) = "scalar",
        /// Stated by each request.
        Stated(Box<StatedQuota>) = "mapping",
    }
}

/// A quota that each request states.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "ToldQuota")]
pub struct StatedQuota {
    /// The part of the request with a whole number of units: `header:NAME`, `query:NAME`,
    /// `cookie:NAME`, `jwt:NAME`, a claim of the verified token, or `client:NAME`, a column of the
    /// client. 0 refuses the request.
    pub from: Located<KeyPart>,
    /// The window, as in a quota: `1ms` to `366d`, or `1mo` or `1y`.
    pub per: Located<Window>,
    /// The units of requests that state none, or no whole number, up to `max`; 0 refuses them.
    pub default: Located<InUse>,
    /// The largest number of units, 1 to 549755813887; a request that states more has this.
    pub max: Located<WindowUnits>,
}

impl Quota {
    /// The largest quota of a request.
    pub fn largest(&self) -> value::Quota {
        match self {
            Self::Fixed(quota) => *quota,
            Self::Stated(stated) => value::Quota::new(stated.max.units(), stated.per.value),
        }
    }

    /// The quota, if requests state it.
    pub fn stated(&self) -> Option<&StatedQuota> {
        match self {
            Self::Fixed(_) => None,
            Self::Stated(stated) => Some(stated),
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(quota) => quota.fmt(f),
            Self::Stated(stated) => {
                let default = value::Quota::new(stated.default.get().into(), stated.per.value);
                let (largest, from) = (self.largest(), &stated.from);
                write!(f, "{default}, or up to {largest} by {from}")
            }
        }
    }
}

impl StatedQuota {
    /// The limit that requests state; `None` if it cannot be read from this part.
    pub(in crate::config) fn limit(&self) -> Option<rules::StatedLimit> {
        let part = match &self.from.value {
            KeyPart::Header(name) => rules::KeyPart::Header(name.get().clone()),
            KeyPart::Cookie(name) => rules::KeyPart::Cookie(name.clone()),
            KeyPart::Query(name) => rules::KeyPart::Query(name.clone()),
            KeyPart::Claim(name) => rules::KeyPart::Claim(name.clone()),
            KeyPart::ClientColumn(name) => rules::KeyPart::ClientColumn(name.clone()),
            _ => return None,
        };
        Some(rules::StatedLimit {
            part,
            default: self.default.get().into(),
            max: self.max.units(),
            window: self.per.to_string(),
        })
    }
}

/// Checks the quota of a policy, of an override or of a candidate, if requests state it.
pub(crate) fn check(policy: &Policy, findings: &Findings<'_>) {
    let stated = policy.amounts.quota.as_ref();
    let Some(stated) = stated.and_then(|quota| quota.stated()) else {
        return;
    };
    if stated.limit().is_none() {
        let message = format!("`{}` has no number of units", stated.from.value);
        let finding = conflict(stated.from.node, message);
        findings.add(
            finding.help(
                "use `header:NAME`, `query:NAME`, `cookie:NAME`, `jwt:NAME` or `client:NAME`",
            ),
        );
    }
    if u64::from(stated.default.get()) > stated.max.units() {
        let message = "the default is above the most that a request can state";
        let finding = conflict(stated.default.node, message).related(stated.max.node, "the most");
        findings.add(finding.help("lower `default`, or raise `max`"));
    }
    if !matches!(
        policy.algorithm.value,
        AlgorithmName::FixedWindow | AlgorithmName::SlidingWindow | AlgorithmName::SlidingLog
    ) {
        let algorithm = word(&policy.algorithm);
        let message = format!("requests can't state the quota of `algorithm: {algorithm}`");
        let finding = conflict(stated.from.node, message);
        let finding = finding.related(policy.algorithm.node, "the algorithm");
        findings.add(finding.help(
            "write `algorithm: sliding_window`, or `fixed_window` or `sliding_log`: one count serves all limits",
        ));
    }
}
