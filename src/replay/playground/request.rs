//! The request: policies, as JSON or as the text of a configuration, and arrivals.

use std::rc::Rc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::PlayError;
use crate::clock::Timestamp;
use crate::config::{self, Loaded, compile_policies};
use crate::proxy::ruleset::CompiledPolicy;
use crate::whole_number;

/// The most policies of a request.
pub const MAX_POLICIES: usize = 8;
/// The most arrivals of a request.
pub const MAX_ARRIVALS: usize = 20_000;
/// The largest cost of an arrival, in units.
const MAX_COST: u32 = 1_000;
/// The largest number of milliseconds in a request: a year.
const MAX_MILLIS: u64 = 366 * 24 * 3_600 * 1_000;
/// The most bytes of a key.
const MAX_KEY: usize = 64;

/// Name of the configuration in reports.
const NAME: &str = "playground";
/// The upstream of the route that applies the policies. Nothing is forwarded.
const UPSTREAM: &str = "echo";

/// Arrivals at policies: either `policies` or `text`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    rename = "PlaygroundRequest",
    extend("oneOf" = [{ "required": ["policies"] }, { "required": ["text"] }])
)]
pub struct PlayRequest {
    /// Policies as in the configuration, each with a `name`.
    #[schemars(with = "Vec<Map<String, Value>>", length(min = 1, max = MAX_POLICIES))]
    #[serde(default)]
    policies: Option<Vec<Map<String, Value>>>,
    /// A configuration, whose policies decide.
    #[schemars(with = "String")]
    #[serde(default)]
    text: Option<String>,
    /// 20,000 in all at most.
    arrivals: Vec<ArrivalSpec>,
    /// The first arrival whose decisions are answered.
    #[serde(default, deserialize_with = "whole_number::deserialize")]
    pub(super) from: usize,
}

/// One arrival, or several.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ArrivalSpec {
    /// The instant of the first.
    #[serde(deserialize_with = "whole_number::deserialize")]
    #[schemars(range(max = MAX_MILLIS))]
    at_ms: u64,
    /// Several arrivals, `every_ms` apart.
    #[serde(default = "one", deserialize_with = "whole_number::deserialize")]
    #[schemars(range(min = 1, max = MAX_ARRIVALS))]
    count: u32,
    /// The time between two of them.
    #[serde(default, deserialize_with = "whole_number::deserialize")]
    #[schemars(range(max = MAX_MILLIS))]
    every_ms: u64,
    /// Printable ASCII characters without spaces.
    #[serde(default = "default_key")]
    #[schemars(regex(pattern = "^[!-~]{1,64}$"))]
    key: Rc<str>,
    /// Units.
    #[serde(default = "one", deserialize_with = "whole_number::deserialize")]
    #[schemars(range(min = 1, max = MAX_COST))]
    cost: u32,
    /// The time in flight, for `concurrency`.
    #[serde(
        default = "default_duration",
        deserialize_with = "whole_number::deserialize"
    )]
    #[schemars(range(max = MAX_MILLIS))]
    for_ms: u64,
}

fn one() -> u32 {
    1
}

fn default_key() -> Rc<str> {
    "client".into()
}

fn default_duration() -> u64 {
    1_000
}

/// An arrival at one instant.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Arrival {
    /// The instant.
    pub at_ms: u64,
    /// The client.
    pub key: Rc<str>,
    /// The cost in units.
    pub cost: u32,
    /// The time for which the request is in flight.
    pub for_ms: u64,
}

impl Arrival {
    pub(super) fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.at_ms * 1_000)
    }

    /// The instant at which the request ends, if it is admitted at once.
    pub(super) fn ends(&self) -> Timestamp {
        self.at().saturating_add_micros(self.for_ms * 1_000)
    }
}

impl PlayRequest {
    /// All arrivals, in the order of their instants.
    ///
    /// # Errors
    /// More than [`MAX_ARRIVALS`], or a number out of bounds.
    pub(super) fn arrivals(&self) -> Result<Vec<Arrival>, PlayError> {
        let counts = self.arrivals.iter().map(|one| one.count as usize);
        if counts.fold(0, usize::saturating_add) > MAX_ARRIVALS {
            return Err(impossible(format!(
                "there are more than {MAX_ARRIVALS} arrivals"
            )));
        }
        let mut all = Vec::new();
        for (place, spec) in self.arrivals.iter().enumerate() {
            spec.check(place)?;
            all.extend((0..u64::from(spec.count)).map(|number| Arrival {
                at_ms: spec.at_ms + number * spec.every_ms,
                key: Rc::clone(&spec.key),
                cost: spec.cost,
                for_ms: spec.for_ms,
            }));
        }
        all.sort_by_key(|arrival| arrival.at_ms);
        Ok(all)
    }

    /// The policies, and the settings of named ones if the request has a text.
    ///
    /// # Errors
    /// Policies that are not valid, too many, or such as virtual time cannot decide.
    pub(super) fn policies(&self) -> Result<(Vec<CompiledPolicy>, Option<Value>), PlayError> {
        let (text, is_given) = match (&self.policies, &self.text) {
            (Some(policies), None) => (configuration(policies)?, false),
            (None, Some(text)) => (text.clone(), true),
            _ => return Err(impossible("name either `policies` or a `text`")),
        };
        let (mut policies, loaded) = compile(text)?;
        let settings = loaded.document.json("policies");
        policies.sort_by_key(|one| place(&settings, &one.spec.name));
        if policies.is_empty() || policies.len() > MAX_POLICIES {
            return Err(impossible(format!(
                "there are {} policies: 1 to {MAX_POLICIES} can be compared",
                policies.len()
            )));
        }
        let mut queueing = policies
            .iter()
            .filter(|one| one.quota.algorithm.queueing().is_some());
        match queueing.next() {
            None => Ok((policies, is_given.then_some(settings))),
            Some(one) => Err(impossible(format!(
                "{}: waiting for `concurrency` takes real requests: leave `queue` out",
                one.spec.name
            ))),
        }
    }
}

impl ArrivalSpec {
    fn check(&self, place: usize) -> Result<(), PlayError> {
        let span = u64::from(self.count).saturating_mul(self.every_ms);
        let longest = self.at_ms.saturating_add(span).max(self.for_ms);
        let why = if longest > MAX_MILLIS {
            "lies more than 366 days ahead".to_owned()
        } else if !(1..=MAX_COST).contains(&self.cost) {
            format!("has a cost of {}, and not of 1 to {MAX_COST}", self.cost)
        } else if self.key.is_empty() || self.key.len() > MAX_KEY || !is_plain(&self.key) {
            format!("has a key that is not 1 to {MAX_KEY} printable ASCII characters")
        } else {
            return Ok(());
        };
        Err(impossible(format!("arrivals[{place}] {why}")))
    }
}

/// The place of a policy, or of its candidate, among the named ones; those in place come last.
fn place(policies: &Value, name: &str) -> usize {
    let name = name.split('/').next();
    let mut names = policies.as_object().into_iter().flat_map(Map::keys);
    names
        .position(|known| Some(known.as_str()) == name)
        .unwrap_or(usize::MAX)
}

/// The value of a header field can have these characters, and keeps them all.
fn is_plain(key: &str) -> bool {
    key.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A configuration of these policies. JSON is YAML.
fn configuration(policies: &[Map<String, Value>]) -> Result<String, PlayError> {
    let mut named = Map::new();
    for (place, policy) in policies.iter().enumerate() {
        let mut policy = policy.clone();
        let name = match policy.shift_remove("name") {
            Some(Value::String(name)) => name,
            Some(_) => return Err(impossible(format!("policies[{place}].name isn't a text"))),
            None => format!("policy-{place}"),
        };
        if named.contains_key(&name) {
            return Err(impossible(format!("two policies are called {name}")));
        }
        named.insert(name, Value::Object(policy));
    }
    let names: Vec<_> = named.keys().cloned().collect();
    let configuration = json!({
        "policies": named,
        "routes": [{ "upstream": UPSTREAM, "limits": names, "request": { "read_body": "64KiB" } }],
    });
    Ok(configuration.to_string())
}

/// Compiles a configuration without reading files or the environment.
fn compile(text: String) -> Result<(Vec<CompiledPolicy>, Loaded), PlayError> {
    let refused = |report| PlayError::Policies(Box::new(report));
    let loaded = config::parse(NAME, text, &|_| None).map_err(refused)?;
    let policies = compile_policies(&loaded).map_err(refused)?;
    Ok((policies, loaded))
}

fn impossible(why: impl Into<String>) -> PlayError {
    PlayError::Impossible(why.into())
}
