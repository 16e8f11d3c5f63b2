//! The report on a whole log: for machines as JSON, for people in `report/text.rs`.

mod html;
mod policy;
mod text;
mod timeline;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;

use super::tally::{FOLLOWED, LinesReport, OutcomeCounts, Tally, is_zero};
use super::warnings::{Warning, Warnings};
use crate::clock::text::rfc_3339;
use crate::proxy::Ruleset;
use crate::proxy::activity::top_keys::TopEntry;
use crate::proxy::ruleset::{Limit, Route};
use crate::telemetry::metrics::{LimitDecision, LimitMetrics};

use policy::{KeyReport, PolicyReport};
use timeline::TimelineReport;

pub use html::ReplayPage;
pub(super) use policy::MAX_KEYS;

/// The report on the requests of a log.
#[derive(Debug, Serialize)]
pub struct ReplayReport {
    /// Requests whose lines could be read.
    pub requests: u64,
    /// When the first came, and the latest; none in an empty log.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// A sentence on what is left out, if anything is.
    #[serde(skip)]
    scope: Option<String>,
    /// Requests that policies in shadow would have limited.
    #[serde(skip)]
    shadowed: u64,
    /// The outcomes of those that met the limits.
    #[serde(flatten)]
    pub(super) counts: OutcomeCounts,
    /// Requests that the proxy answers before any limit, by reason.
    answered: BTreeMap<&'static str, u64>,
    /// Data that limits depend on and the log lacks; left out if it has everything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Warning>,
    /// Routes with requests, in the order of the configuration.
    routes: Vec<RouteReport>,
    /// Policies that requests met, in the order of the configuration.
    policies: Vec<PolicyReport>,
    /// Counts over time.
    timeline: TimelineReport,
    /// Lines that were decided later than their time.
    pub out_of_order: LinesReport,
    /// Lines that could not be read.
    pub unparsable: LinesReport,
    /// Policies that were left out, since a log does not say when requests end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_replayed: Vec<Arc<str>>,
    /// Requests refused because the log has a ban, by policies without a penalty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recorded_bans: Vec<BanReport>,
}

/// Requests that a policy refused because the log has a ban.
#[derive(Debug, Serialize)]
struct BanReport {
    policy: Arc<str>,
    requests: u64,
}

#[derive(Debug, Serialize)]
struct RouteReport {
    /// `None` for requests that no route takes.
    route: Option<Arc<str>>,
    requests: u64,
    limited: u64,
    limits: Vec<LimitReport>,
}

/// The decisions of a policy on a route. A request that another policy refused counts as neither
/// admitted nor refused.
#[derive(Debug, Serialize)]
struct LimitReport {
    policy: Arc<str>,
    allowed: u64,
    limited: u64,
    delayed: u64,
    /// Admitted at a lower priority; left out where there is none.
    #[serde(skip_serializing_if = "is_zero")]
    overflowed: u64,
    /// Admitted beyond the quota, and told to the upstream; left out where there is none.
    #[serde(skip_serializing_if = "is_zero")]
    tagged: u64,
    /// Allowed requests that it would refuse or tag if it were enforced; left out if there is none.
    #[serde(skip_serializing_if = "is_zero")]
    shadowed: u64,
}

/// Requests that a policy limits, or would limit if it were not in shadow.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct PolicyCount {
    pub(super) limited: u64,
    pub(super) shadowed: u64,
    /// The keys of these requests; 2048 for that many or more.
    pub(super) limited_clients: usize,
}

/// A count: not more than `most`, and not less than `least`.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct CountRange {
    pub(super) most: u64,
    pub(super) least: u64,
}

impl ReplayReport {
    pub(super) fn new(ruleset: &Ruleset, tally: &Tally, warnings: &Warnings) -> Self {
        let latest = tally.times.map(|(_, latest)| latest);
        let answered: u64 = tally.answered.values().sum();
        let places = (0..ruleset.routes.len()).map(Some).chain([None]);
        let mut report = ReplayReport {
            requests: tally.all.requests() + answered,
            scope: None,
            shadowed: 0,
            from: tally.times.map(|(first, _)| rfc_3339(first)),
            until: latest.map(rfc_3339),
            counts: tally.all,
            answered: tally.answered.clone(),
            warnings: warnings.all(ruleset, |policy| tally.has_met(policy)),
            routes: places
                .zip(&tally.routes)
                .filter(|(_, counts)| counts.requests() > 0)
                .map(|(place, counts)| RouteReport::new(place, ruleset.route(place), counts))
                .collect(),
            policies: ruleset
                .policies
                .iter()
                .filter_map(|policy| PolicyReport::new(policy, tally, latest?))
                .collect(),
            timeline: TimelineReport::new(ruleset, tally),
            out_of_order: tally.out_of_order.clone(),
            unparsable: tally.unparsable.clone(),
            not_replayed: tally.left_out.clone(),
            recorded_bans: warnings
                .banned()
                .map(|(policy, requests)| BanReport {
                    policy: Arc::clone(policy),
                    requests,
                })
                .collect(),
        };
        report.shadowed = report.limits().map(|limit| limit.shadowed).sum();
        let counts = report.limited_by_policy();
        for policy in &mut report.policies {
            policy.would_limit = policy.limited_clients > 0 && counts[&policy.policy].limited == 0;
        }
        report
    }

    /// The requests that each policy limits, on all routes.
    pub(super) fn limited_by_policy(&self) -> HashMap<Arc<str>, PolicyCount> {
        let mut counts = HashMap::<_, PolicyCount>::new();
        for limit in self.limits() {
            let count = counts.entry(Arc::clone(&limit.policy)).or_default();
            count.limited += limit.limited;
            count.shadowed += limit.shadowed;
        }
        for policy in &self.policies {
            let count = counts.entry(Arc::clone(&policy.policy)).or_default();
            count.limited_clients = policy.limited_clients;
        }
        counts
    }

    /// The policies that limit requests, once for each route.
    pub(super) fn limiting_policies(&self) -> impl Iterator<Item = &Arc<str>> {
        self.limits().map(|limit| &limit.policy)
    }

    fn limits(&self) -> impl Iterator<Item = &LimitReport> {
        self.routes.iter().flat_map(|route| &route.limits)
    }

    /// Leaves all other policies out.
    pub fn keep_policy(&mut self, name: &str) {
        self.scope = Some(format!(
            "only policy {name} is shown, but the counts of requests are of all policies"
        ));
        self.policies.retain(|policy| *policy.policy == *name);
        for route in &mut self.routes {
            route.limits.retain(|limit| *limit.policy == *name);
        }
        self.routes.retain(|route| !route.limits.is_empty());
        let is_about = |policy: &Option<Arc<str>>| policy.as_deref().is_none_or(|one| one == name);
        self.warnings.retain(|warning| is_about(&warning.policy));
        self.not_replayed.retain(|policy| **policy == *name);
        self.timeline.policies.retain(|one| *one.policy == *name);
        self.recorded_bans.retain(|ban| *ban.policy == *name);
    }
}

impl RouteReport {
    fn new(place: Option<usize>, route: &Route, counts: &OutcomeCounts) -> Self {
        RouteReport {
            route: place.map(|_| Arc::clone(&route.name)),
            requests: counts.requests(),
            limited: counts.limited,
            limits: route.limits.iter().flat_map(LimitReport::all).collect(),
        }
    }
}

impl LimitReport {
    /// The policy, and its soft limits.
    fn all(limit: &Limit) -> impl Iterator<Item = Self> {
        let soft = limit.policy.soft_limits.iter().map(|soft| &soft.name);
        let names = std::iter::once(&limit.policy.name).chain(soft);
        let metrics = std::iter::once(&limit.metrics).chain(&limit.soft_metrics);
        names.zip(metrics).map(Self::new)
    }

    fn new((name, metrics): (&Arc<str>, &LimitMetrics)) -> Self {
        LimitReport {
            policy: Arc::clone(name),
            allowed: metrics.count(LimitDecision::Allowed),
            limited: metrics.count(LimitDecision::Limited),
            delayed: metrics.count(LimitDecision::Delayed),
            overflowed: metrics.count(LimitDecision::Overflowed),
            tagged: metrics.count(LimitDecision::Tagged),
            shadowed: metrics.count(LimitDecision::Shadowed),
        }
    }
}

impl CountRange {
    pub(super) fn of<T>(entry: &TopEntry<T>) -> Self {
        Self {
            most: entry.count,
            least: entry.count - entry.excess,
        }
    }

    /// A count of 0 to `most`.
    pub(super) fn up_to(most: u64) -> Self {
        Self { most, least: 0 }
    }

    /// The count, if it is exact.
    fn exact(self) -> Option<u64> {
        (self.most == self.least).then_some(self.most)
    }
}

/// A number of clients, as people read it: not all are followed.
pub(super) fn client_count(clients: usize) -> String {
    match clients {
        FOLLOWED => format!("{clients} or more"),
        clients => clients.to_string(),
    }
}
