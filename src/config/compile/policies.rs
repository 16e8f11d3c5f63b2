//! Policies, named and in place, and the limits of routes that refer to them.

use std::collections::HashMap;

use http::StatusCode;

use super::algorithms::algorithm;
use crate::config::diagnostic::Code;
use crate::config::document::NodeId;
use crate::config::finding::Finding;
use crate::config::schema::{self, BodyFormat, OnLimit, Policy};
use crate::proxy::snapshot::PolicySpec;
use crate::proxy::{Format, Formats, RejectSpec, Template};
use crate::store;

/// Every policy of a configuration. A limit in place is a policy of its own, called after its route
/// and its place there.
pub(super) struct Policies<'a> {
    config: &'a schema::Config,
    specs: Vec<PolicySpec>,
    written: Vec<&'a Policy>,
    names: HashMap<&'a str, usize>,
    pub(super) findings: Vec<Finding>,
}

impl<'a> Policies<'a> {
    pub(super) fn new(config: &'a schema::Config) -> Self {
        let mut policies = Policies {
            config,
            specs: Vec::new(),
            written: Vec::new(),
            names: HashMap::new(),
            findings: Vec::new(),
        };
        for (name, policy) in config.policies.iter() {
            let index = policies.add(name.as_str().to_owned(), policy);
            policies.names.insert(name.as_str(), index);
        }
        policies
    }

    pub(super) fn into_specs(self) -> Vec<PolicySpec> {
        self.specs
    }

    /// The policy at `index`, as it was written.
    pub(super) fn get(&self, index: usize) -> &'a Policy {
        self.written[index]
    }

    /// The index of the policy that has this name.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Adds a policy, and returns its index.
    pub(super) fn add(&mut self, name: String, policy: &'a Policy) -> usize {
        match algorithm(policy) {
            Ok(algorithm) => self.specs.push(PolicySpec {
                name,
                key: key_text(policy),
                quota: quota_text(policy),
                algorithm,
                max_keys: policy.max_keys.as_ref().map(|keys| keys.get() as usize),
                on_full: match policy.on_full.value {
                    schema::OnFull::Forget => store::OnFull::Forget,
                    schema::OnFull::Strict => store::OnFull::Strict,
                },
                reject: reject(&policy.on_limit, &self.config.responses.on_limit),
            }),
            Err(error) => {
                let burst = policy.burst.as_ref().map(|burst| burst.node);
                let refill = policy.refill.as_ref().map(|refill| refill.node);
                let quota = policy.quota.as_ref().map(|quota| quota.node);
                let node = burst.or(refill).or(quota).unwrap_or(NodeId::ABSENT);
                self.findings
                    .push(Finding::error(node, Code::InvalidValue, error.to_string()));
            }
        }
        self.written.push(policy);
        self.written.len() - 1
    }
}

/// The key as it is written: with the name, what identifies a policy's buckets.
fn key_text(policy: &Policy) -> String {
    let parts: Vec<_> = policy
        .key
        .0
        .iter()
        .map(|part| part.value.to_string())
        .collect();
    format!("{} or {}", parts.join(", "), policy.on_missing_key.value)
}

/// The quota as it is written, or what stands in its place.
fn quota_text(policy: &Policy) -> String {
    match (&policy.quota, &policy.capacity, &policy.refill) {
        (Some(quota), ..) => quota.value.to_string(),
        (None, Some(capacity), Some(refill)) => {
            format!("{}, {}", capacity.get(), refill.value)
        }
        _ => String::new(),
    }
}

/// What the policy says of its refusals, and what all say where it says nothing.
fn reject(own: &OnLimit, general: &OnLimit) -> RejectSpec {
    let format = own.format.as_ref().or(general.format.as_ref());
    let headers = general.headers.iter().chain(own.headers.iter());
    let headers: HashMap<_, _> = headers
        .map(|(name, value)| (name.get().clone(), value.get().clone()))
        .collect();
    let status = own
        .status
        .as_ref()
        .or(general.status.as_ref())
        .map(|status| status.get() as u16);
    RejectSpec {
        status: status
            .and_then(|status| StatusCode::from_u16(status).ok())
            .unwrap_or(StatusCode::TOO_MANY_REQUESTS),
        formats: match format.map_or(BodyFormat::Auto, |format| format.value) {
            BodyFormat::Auto => Formats::Accept,
            BodyFormat::Problem => Formats::Always(Format::Problem),
            BodyFormat::Json => Formats::Always(Format::Json),
            BodyFormat::Text => Formats::Always(Format::Plain),
            BodyFormat::Html => Formats::Always(Format::Html),
        },
        body: own
            .body
            .as_ref()
            .or(general.body.as_ref())
            .and_then(|body| Template::parse(body.as_str()).ok()),
        headers: headers.into_iter().collect(),
        docs_url: own
            .docs_url
            .as_ref()
            .or(general.docs_url.as_ref())
            .map(|url| url.as_str().to_owned()),
    }
}
