//! Exemptions, overrides and candidates of a policy.

use crate::config::sections::prelude::*;

/// An item of `exempt`: to whom the policy does not apply, or no policy where it stands at the top.
/// Overrides select clients with the same options.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Exemption")]
#[schemars(extend("oneOf" = [{ "required": ["value"] }, { "required": ["prefix"] }, { "required": ["cidr"] },
    { "required": ["when"], "not": { "anyOf": [{ "required": ["value"] }, { "required": ["prefix"] }, { "required": ["cidr"] }] } }]))]
pub struct Selection {
    /// The part of the key that `value` or `prefix` is about; needed where the key has several, and
    /// at the top.
    pub part: Option<Located<KeyPart>>,
    /// Clients with this value in that part.
    pub value: Option<Located<Hidden<Text>>>,
    /// Clients whose value in that part starts so.
    pub prefix: Option<Located<Hidden<Text>>>,
    /// Clients with this address, or in this network, whatever the key.
    pub cidr: Option<Located<Cidr>>,
    /// The requests, of these clients or of all: those that certainly meet this condition.
    pub when: Option<Located<Condition>>,
}

/// An item of `overrides`: requests with another quota, mode or answer.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("anyOf" = [{ "required": ["quota"] }, { "required": ["capacity", "refill"] }, { "required": ["max"] }, { "required": ["burst"] }, { "required": ["time_zone"] }, { "required": ["mode"] }, { "required": ["on_limit"] }]))]
pub struct Override {
    /// The clients.
    #[serde(rename = "$selection")]
    #[schemars(flatten)]
    pub selection: Selection,
    /// The amounts, in place of the policy's. A `burst` alone keeps the policy's buckets.
    #[serde(rename = "$amounts")]
    #[schemars(flatten)]
    pub amounts: Amounts,
    /// Where days, weeks, months and years begin, instead of the policy's `time_zone`: the IANA
    /// name of a time zone. With it the quota is the policy's unless given.
    pub time_zone: Option<Located<TimeZone>>,
    /// `enforce` or `shadow`, instead of the policy's mode. Alone it keeps the policy's buckets.
    pub mode: Option<Located<Mode>>,
    /// Responses to refused requests; the policy's `on_limit` fills in. Alone it keeps the policy's
    /// buckets.
    pub on_limit: Option<Located<OnLimit>>,
}

/// `candidate` of a policy: a quota that is tried out beside its own.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("anyOf" = [{ "required": ["quota"] }, { "required": ["capacity", "refill"] }, { "required": ["max"] }]))]
pub struct Candidate {
    /// The amounts, in place of the policy's.
    #[serde(rename = "$amounts")]
    #[schemars(flatten)]
    pub amounts: Amounts,
}

impl Candidate {
    /// The policy in shadow that tries the candidate out. It exempts clients with another quota.
    pub fn applied_to(&self, policy: &Policy) -> Policy {
        let overridden = policy.overrides.iter().filter(|one| one.has_buckets());
        let overridden = overridden.map(|one| Located::from(one.selection.clone()));
        let exempt = policy.exempt.iter().cloned().chain(overridden);
        Policy {
            amounts: self.amounts.clone(),
            mode: Mode::Shadow.into(),
            percent: None,
            exempt: exempt.collect::<Vec<_>>().into(),
            overrides: Vec::new().into(),
            soft_limits: Vec::new().into(),
            candidate: None,
            penalty: None,
            ..policy.clone()
        }
    }
}

impl Override {
    /// True if it has buckets of its own. Without a quota of its own it charges the policy's.
    pub fn has_buckets(&self) -> bool {
        let others = Amounts {
            burst: None,
            ..self.amounts.clone()
        };
        !others.is_empty() || self.time_zone.is_some()
    }

    /// Its burst in the policy's buckets.
    pub(super) fn shared_burst(&self) -> Option<&Located<Units>> {
        self.amounts.burst.as_ref().filter(|_| !self.has_buckets())
    }

    /// The units that have to stay in the policy's bucket for requests with the policy's burst.
    pub(in crate::config) fn kept(&self, policy: &Policy) -> u64 {
        self.shared_burst().map_or(0, |burst| {
            policy.amounts.capacity().saturating_sub(burst.units())
        })
    }

    /// The policy for the selected clients.
    pub fn applied_to(&self, policy: &Policy) -> Policy {
        let zone = self.time_zone.as_ref();
        let time_zone = zone.map(|zone| Located {
            value: Zone::Named(zone.value.clone()),
            node: zone.node,
        });
        let time_zone = time_zone.or_else(|| policy.time_zone.clone());
        let amounts = match self.shared_burst() {
            Some(burst) => Amounts {
                burst: Some(*burst),
                ..policy.amounts.clone()
            },
            None if zone.is_some() && self.amounts.is_empty() => policy.amounts.clone(),
            None => self.amounts.clone(),
        };
        Policy {
            amounts,
            time_zone,
            ..policy.clone()
        }
    }
}

impl Selection {
    /// A text that tells it apart from others. It has the value or the prefix, and so is never shown.
    pub(in crate::config) fn identity(&self) -> String {
        let part = self.part.as_ref().map(|part| format!("{part} "));
        let clients = match (&self.value, &self.prefix, &self.cidr) {
            (Some(value), ..) => format!("value {}", value.reveal()),
            (None, Some(prefix), _) => format!("prefix {}", prefix.reveal()),
            (None, None, Some(cidr)) => format!("cidr {cidr}"),
            (None, None, None) => "anyone".to_owned(),
        };
        let clients = part.unwrap_or_default() + &clients;
        match &self.when {
            Some(when) => format!("when {} {clients}", when.identity()),
            None => clients,
        }
    }

    /// The key part of `value` or `prefix`: the named one, or the only part of the key.
    pub(super) fn part_of<'p>(&'p self, policy: &'p Policy) -> Option<&'p KeyPart> {
        let named = self.part.as_ref().map(|part| &part.value);
        let mut parts = policy.key.0.iter().map(|part| &part.value);
        match named {
            Some(named) => parts.find(|part| *part == named),
            None => parts.next().filter(|_| parts.next().is_none()),
        }
    }
}
