//! Policies, named and in place, and the limits of routes that refer to them.

use std::collections::HashMap;

use crate::config::schema::{self, AlgorithmName, BodyFormat, Limit, OnLimit, Policy, WindowStart};
use crate::limiter::{Algorithm, FixedWindow, Gcra, Oldest, Quota, SlidingWindow, Start};
use crate::proxy::snapshot::PolicySpec;
use crate::proxy::{Format, Formats, RejectSpec};
use crate::store;

/// Every policy of a configuration. A limit in place is a policy of its own, called after its route
/// and its place there.
pub(super) struct Policies<'a> {
    config: &'a schema::Config,
    specs: Vec<PolicySpec>,
    policies: Vec<&'a Policy>,
    named: HashMap<&'a str, usize>,
}

impl<'a> Policies<'a> {
    pub(super) fn new(config: &'a schema::Config) -> Self {
        let mut policies = Policies {
            config,
            specs: Vec::new(),
            policies: Vec::new(),
            named: HashMap::new(),
        };
        for (name, policy) in &config.policies {
            let index = policies.add(name.as_str().to_owned(), policy);
            policies.named.insert(name.as_str(), index);
        }
        policies
    }

    pub(super) fn into_specs(self) -> Vec<PolicySpec> {
        self.specs
    }

    /// The policy at `index`, as it was written.
    pub(super) fn get(&self, index: usize) -> &'a Policy {
        self.policies[index]
    }

    /// The policy that `limit`, the `place`-th of `owner`, means.
    pub(super) fn resolve(&mut self, limit: &'a Limit, owner: &str, place: usize) -> Option<usize> {
        match limit {
            Limit::Named(name) => self.named.get(name.as_str()).copied(),
            Limit::InPlace(policy) => Some(self.add(format!("{owner}.{place}"), policy)),
        }
    }

    fn add(&mut self, name: String, policy: &'a Policy) -> usize {
        self.specs.push(PolicySpec {
            name,
            key: key_text(policy),
            quota: policy.quota.to_string(),
            algorithm: algorithm(policy),
            max_keys: policy.max_keys.as_ref().map(|keys| keys.get() as usize),
            on_full: match policy.on_full.value {
                schema::OnFull::Forget => store::OnFull::Forget,
                schema::OnFull::Strict => store::OnFull::Strict,
            },
            reject: reject(&policy.on_limit, &self.config.responses.on_limit),
        });
        self.policies.push(policy);
        self.specs.len() - 1
    }
}

/// The key as it is written: with the name, what identifies a policy's buckets.
fn key_text(policy: &Policy) -> String {
    let parts: Vec<_> = policy.key.0.iter().map(|part| part.value.to_string()).collect();
    format!("{} or {}", parts.join(", "), policy.on_missing_key.value)
}

fn algorithm(policy: &Policy) -> Result<Algorithm, QuotaError> {
    let quota = Quota::new(policy.quota.limit(), policy.quota.window())?;
    let burst = policy.burst.as_ref().map_or(quota.limit(), |burst| burst.get());
    Ok(match policy.algorithm.value {
        AlgorithmName::Gcra => Algorithm::Gcra(Gcra::new(quota, burst)?),
        AlgorithmName::TokenBucket => Algorithm::TokenBucket(Gcra::new(quota, burst)?),
        AlgorithmName::FixedWindow => {
            let start = match policy.start.as_ref().map(|start| start.value) {
                Some(WindowStart::FirstRequest) => Start::FirstRequest,
                Some(WindowStart::Clock) | None if quota.window() == WEEK => Start::MONDAY,
                Some(WindowStart::Clock) | None => Start::EPOCH,
            };
            Algorithm::FixedWindow(FixedWindow::new(quota, start))
        }
        AlgorithmName::SlidingWindow => {
            Algorithm::SlidingWindow(SlidingWindow::new(quota, Oldest::Weighted))
        }
    })
}

/// Stands in where an algorithm cannot be had; what is compiled beside a finding never runs.
const REFUSES_ALL: Quota = Quota::NOTHING;

/// What the policy says of its refusals, and what all say where it says nothing.
fn reject(own: &OnLimit, general: &OnLimit) -> RejectSpec {
    let format = own.format.as_ref().or(general.format.as_ref());
    let headers = general.headers.iter().chain(&own.headers);
    let headers: HashMap<_, _> = headers
        .map(|(name, value)| (name.get().clone(), value.get().clone()))
        .collect();
    RejectSpec {
        status: own.status.as_ref().or(general.status.as_ref()).map_or(
            http::StatusCode::TOO_MANY_REQUESTS,
            |status| {
                http::StatusCode::from_u16(status.get() as u16)
                    .expect("a status of the schema is from 400 to 599")
            },
        ),
        formats: match format.map_or(BodyFormat::Auto, |format| format.value) {
            BodyFormat::Auto => Formats::Accept,
            BodyFormat::Problem => Formats::Always(Format::Problem),
            BodyFormat::Text => Formats::Always(Format::Plain),
            BodyFormat::Html => Formats::Always(Format::Html),
        },
        body: own.body.as_ref().or(general.body.as_ref()).map(|body| body.as_str().to_owned()),
        headers: headers.into_iter().collect(),
        docs_url: own
            .docs_url
            .as_ref()
            .or(general.docs_url.as_ref())
            .map(|url| url.as_str().to_owned()),
    }
}
