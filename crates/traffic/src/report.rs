//! The report on a whole log: for machines as JSON, for people in `report/text.rs`.

mod html;
mod policy;
mod text;
mod timeline;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use readable::time::rfc_3339;
use serde::Serialize;

use crate::tally::{FOLLOWED, LinesReport, OutcomeCounts, Tally, is_zero};
use crate::top_keys::TopEntry;

use policy::{KeyReport, PolicyReport};
use timeline::TimelineReport;

pub use html::ReplayPage;
pub(crate) use policy::MAX_KEYS;
pub use policy::PolicyFacts;

/// What is known of the requests beside their counts.
#[derive(Debug)]
pub struct ReplayFacts<'a> {
    /// The routes, and at last what no route takes.
    pub routes: Vec<(Option<Arc<str>>, Vec<LimitCounts>)>,
    /// The policies, in the order of the configuration.
    pub policies: Vec<PolicyFacts<'a>>,
    /// Data that limits depend on and the log lacks.
    pub warnings: Vec<Warning>,
    /// Policies that were left out, since a log does not say when requests end.
    pub not_replayed: Vec<Arc<str>>,
    /// Requests refused because the log has a ban, by policies without a penalty.
    pub recorded_bans: Vec<BanCount>,
}

/// A reason to doubt the result.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The policy that it concerns; all of them where `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Arc<str>>,
    /// The missing data, and the replacement.
    pub message: String,
    /// The option with which the proxy's own log would have the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
}

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
    pub(crate) counts: OutcomeCounts,
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
    out_of_order: LinesReport,
    /// Lines that could not be read.
    unparsable: LinesReport,
    /// Policies that were left out, since a log does not say when requests end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_replayed: Vec<Arc<str>>,
    /// Requests refused because the log has a ban, by policies without a penalty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recorded_bans: Vec<BanCount>,
}

/// Requests that a policy refused because the log has a ban.
#[derive(Debug, Serialize)]
pub struct BanCount {
    /// The policy.
    pub policy: Arc<str>,
    /// The requests.
    pub requests: u64,
}

#[derive(Debug, Serialize)]
struct RouteReport {
    /// `None` for requests that no route takes.
    route: Option<Arc<str>>,
    requests: u64,
    limited: u64,
    limits: Vec<LimitCounts>,
}

/// The decisions of a policy on a route. A request that another policy refused counts as neither
/// admitted nor refused.
#[derive(Debug, Serialize)]
pub struct LimitCounts {
    /// The policy, or its soft limit.
    pub policy: Arc<str>,
    /// Admitted at once.
    pub allowed: u64,
    /// Refused.
    pub limited: u64,
    /// Admitted after a wait.
    pub delayed: u64,
    /// Admitted at a lower priority; left out where there is none.
    #[serde(skip_serializing_if = "is_zero")]
    pub overflowed: u64,
    /// Admitted beyond the quota, and told to the upstream; left out where there is none.
    #[serde(skip_serializing_if = "is_zero")]
    pub tagged: u64,
    /// Admitted beyond the quota, and served by another upstream; left out where there is none.
    #[serde(skip_serializing_if = "is_zero")]
    pub routed: u64,
    /// Allowed requests that it would refuse or tag if it were enforced; left out if there is none.
    #[serde(skip_serializing_if = "is_zero")]
    pub shadowed: u64,
}

/// Requests that a policy limits, or would limit if it were not in shadow.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct PolicyCount {
    pub(crate) limited: u64,
    pub(crate) shadowed: u64,
    /// The keys of these requests; 2048 for that many or more.
    pub(crate) limited_clients: usize,
}

/// A count: not more than `most`, and not less than `least`.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct CountRange {
    pub(crate) most: u64,
    pub(crate) least: u64,
}

impl ReplayReport {
    /// The report on what `tally` has counted.
    pub fn new(tally: &Tally, facts: ReplayFacts<'_>) -> Self {
        let latest = tally.times.map(|(_, latest)| latest);
        let answered: u64 = tally.answered.values().sum();
        let names = facts.policies.iter().map(|policy| policy.name);
        let timeline = TimelineReport::new(names, tally);
        let routes = facts.routes.into_iter().zip(&tally.routes);
        let mut report = ReplayReport {
            requests: tally.all.requests() + answered,
            scope: None,
            shadowed: 0,
            from: tally.times.map(|(first, _)| rfc_3339(first)),
            until: latest.map(rfc_3339),
            counts: tally.all,
            answered: tally.answered.clone(),
            warnings: facts.warnings,
            routes: routes
                .filter(|(_, counts)| counts.requests() > 0)
                .map(|((route, limits), counts)| RouteReport {
                    route,
                    requests: counts.requests(),
                    limited: counts.limited,
                    limits,
                })
                .collect(),
            policies: facts
                .policies
                .iter()
                .filter_map(|policy| PolicyReport::new(policy, tally, latest?))
                .collect(),
            timeline,
            out_of_order: tally.out_of_order.clone(),
            unparsable: tally.unparsable.clone(),
            not_replayed: facts.not_replayed,
            recorded_bans: facts.recorded_bans,
        };
        report.shadowed = report.limits().map(|limit| limit.shadowed).sum();
        let counts = report.limited_by_policy();
        for policy in &mut report.policies {
            policy.would_limit = policy.limited_clients > 0 && counts[&policy.policy].limited == 0;
        }
        report
    }

    /// The requests that each policy limits, on all routes.
    pub(crate) fn limited_by_policy(&self) -> HashMap<Arc<str>, PolicyCount> {
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
    pub(crate) fn limiting_policies(&self) -> impl Iterator<Item = &Arc<str>> {
        self.limits().map(|limit| &limit.policy)
    }

    fn limits(&self) -> impl Iterator<Item = &LimitCounts> {
        self.routes.iter().flat_map(|route| &route.limits)
    }

    /// The number of lines that could not be read.
    pub fn unparsable_lines(&self) -> u64 {
        self.unparsable.count
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

impl CountRange {
    pub(crate) fn of<T>(entry: &TopEntry<T>) -> Self {
        Self {
            most: entry.count,
            least: entry.count - entry.excess,
        }
    }

    /// A count of 0 to `most`.
    pub(crate) fn up_to(most: u64) -> Self {
        Self { most, least: 0 }
    }

    /// The count, if it is exact.
    fn exact(self) -> Option<u64> {
        (self.most == self.least).then_some(self.most)
    }
}

/// A number of clients, as people read it: not all are followed.
pub(crate) fn client_count(clients: usize) -> String {
    match clients {
        FOLLOWED => format!("{clients} or more"),
        clients => clients.to_string(),
    }
}
