//! Exceptions of a policy: exemptions, overrides, and a candidate in shadow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::located::Located;
use crate::config::schema::{InUse, Mode, Policy, Units, Zone};
use crate::config::value::{Cidr, KeyPart, Quota, Refill, Text, TimeZone};

/// An item of `exempt`: to whom the policy does not apply, or no policy where it stands at the top.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [{ "required": ["value"] }, { "required": ["prefix"] }, { "required": ["cidr"] }]))]
pub struct Exemption {
    /// Which part of the key `value` or `prefix` is about; needed where the key has several, and at the top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Located<KeyPart>>,
    /// Who has this value in that part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Located<Text>>,
    /// Whose value in that part starts so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Located<Text>>,
    /// Clients with this address, or in this network, whatever the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cidr: Option<Located<Cidr>>,
}

/// An item of `overrides`: who has another quota.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [{ "required": ["value"] }, { "required": ["prefix"] }, { "required": ["cidr"] }]))]
#[schemars(extend("anyOf" = [{ "required": ["quota"] }, { "required": ["capacity", "refill"] }, { "required": ["max"] }, { "required": ["time_zone"] }]))]
pub struct Override {
    /// Which part of the key `value` or `prefix` is about; needed where the key has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Located<KeyPart>>,
    /// Who has this value in that part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Located<Text>>,
    /// Whose value in that part starts so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Located<Text>>,
    /// Clients with this address, or in this network, whatever the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cidr: Option<Located<Cidr>>,
    /// The quota, instead of the policy's; 0 refuses always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Located<Quota>>,
    /// The burst; as many units as this quota has unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Located<Units>>,
    /// The capacity, with a `refill`, in place of a `quota`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Located<Units>>,
    /// The refill, with a `capacity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill: Option<Located<Refill>>,
    /// The units that can be taken at once, for `concurrency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Located<InUse>>,
    /// Where days, weeks, months and years begin, instead of the policy's `time_zone`: the IANA name of a time zone. With
    /// it the quota is the policy's unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<Located<TimeZone>>,
}

/// `candidate` of a policy: a quota that is tried out beside its own.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("anyOf" = [{ "required": ["quota"] }, { "required": ["capacity", "refill"] }, { "required": ["max"] }]))]
pub struct Candidate {
    /// The quota, instead of the policy's; 0 would refuse always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Located<Quota>>,
    /// The burst; as many units as this quota has unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Located<Units>>,
    /// The capacity, with a `refill`, in place of a `quota`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Located<Units>>,
    /// The refill, with a `capacity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill: Option<Located<Refill>>,
    /// The units that can be taken at once, for `concurrency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Located<InUse>>,
}

impl Candidate {
    /// The policy in shadow that tries the candidate out. It exempts clients with an override.
    pub fn applied_to(&self, policy: &Policy) -> Policy {
        let overridden = policy.overrides.iter().map(|one| {
            let selection = one.selection();
            Located::from(Exemption {
                part: selection.part.cloned(),
                value: selection.value.cloned(),
                prefix: selection.prefix.cloned(),
                cidr: selection.cidr.cloned(),
            })
        });
        let exempt = policy.exempt.iter().cloned().chain(overridden);
        Policy {
            quota: self.quota.clone(),
            burst: self.burst.clone(),
            capacity: self.capacity.clone(),
            refill: self.refill.clone(),
            max: self.max.clone(),
            mode: Mode::Shadow.into(),
            percent: None,
            exempt: exempt.collect::<Vec<_>>().into(),
            overrides: Vec::new().into(),
            candidate: None,
            penalty: None,
            ..policy.clone()
        }
    }
}

/// The clients that an exception selects.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// The part, where it is named.
    pub part: Option<&'a Located<KeyPart>>,
    /// A value of it.
    pub value: Option<&'a Located<Text>>,
    /// The beginning of one.
    pub prefix: Option<&'a Located<Text>>,
    /// A network.
    pub cidr: Option<&'a Located<Cidr>>,
}

impl Exemption {
    /// The selected clients.
    pub fn selection(&self) -> Selection<'_> {
        Selection {
            part: self.part.as_ref(),
            value: self.value.as_ref(),
            prefix: self.prefix.as_ref(),
            cidr: self.cidr.as_ref(),
        }
    }
}

impl Override {
    /// The selected clients.
    pub fn selection(&self) -> Selection<'_> {
        Selection {
            part: self.part.as_ref(),
            value: self.value.as_ref(),
            prefix: self.prefix.as_ref(),
            cidr: self.cidr.as_ref(),
        }
    }

    /// The policy for the selected clients.
    pub fn applied_to(&self, policy: &Policy) -> Policy {
        let zone = self.time_zone.as_ref();
        let time_zone = zone.map(|zone| Located {
            value: Zone::Named(zone.value.clone()),
            node: zone.node,
        });
        let time_zone = time_zone.or_else(|| policy.time_zone.clone());
        if zone.is_some() && !self.has_quota() {
            return Policy {
                time_zone,
                ..policy.clone()
            };
        }
        Policy {
            quota: self.quota.clone(),
            burst: self.burst.clone(),
            capacity: self.capacity.clone(),
            refill: self.refill.clone(),
            max: self.max.clone(),
            time_zone,
            ..policy.clone()
        }
    }

    /// True if the override has amounts.
    fn has_quota(&self) -> bool {
        let quota = self.quota.is_some() || self.burst.is_some() || self.max.is_some();
        quota || self.capacity.is_some() || self.refill.is_some()
    }
}

impl Selection<'_> {
    /// The key part of `value` or `prefix`: the named one, or the only part of the key.
    pub fn part_of<'p>(&'p self, policy: &'p Policy) -> Option<&'p KeyPart> {
        let named = self.part.map(|part| &part.value);
        let mut parts = policy.key.0.iter().map(|part| &part.value);
        match named {
            Some(named) => parts.find(|part| *part == named),
            None => parts.next().filter(|_| parts.next().is_none()),
        }
    }
}

impl std::fmt::Display for Selection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(part) = self.part {
            write!(f, "{part} ")?;
        }
        match (self.value, self.prefix, self.cidr) {
            (Some(value), ..) => write!(f, "value {value}"),
            (None, Some(prefix), _) => write!(f, "prefix {prefix}"),
            (None, None, Some(cidr)) => write!(f, "cidr {cidr}"),
            (None, None, None) => f.write_str("nothing"),
        }
    }
}
