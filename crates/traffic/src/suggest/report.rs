//! The proposal: for machines as JSON, and for people.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use readable::time::{Span, rfc_3339};
use serde::Serialize;

use super::paths::unique_name;
use super::quota::{Peaks, Proposal};
use super::survey::{KnownRoute, NO_BUCKET, Seen, Survey};
use super::{DEFAULT_KEY, Wishes, yaml};
use crate::tally::LinesReport;

/// The fewest clients, and requests, for which a quota is proposed.
const MIN_CLIENTS: usize = 10;
const MIN_REQUESTS: usize = 100;
/// How many clients are named of those that would have been limited.
const MAX_NAMED: usize = 5;
const HOUR: Duration = Duration::from_secs(3_600);

/// A proposal for the requests of a log.
#[derive(Debug, Serialize)]
pub struct Suggestion {
    /// Requests whose lines could be read.
    pub requests: u64,
    /// When the first came, and the latest; none in an empty log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
    #[serde(flatten)]
    pub(super) wishes: Wishes,
    /// Reasons to doubt the numbers.
    pub(super) remarks: Vec<String>,
    /// The routes, in the order of the configuration.
    pub(super) routes: Vec<RouteSuggestion>,
    /// Requests that no route takes.
    unrouted: usize,
    /// Requests that the proxy answers before any limit, by reason.
    answered: BTreeMap<&'static str, u64>,
    /// Lines that could not be read.
    unparsable: LinesReport,
    /// The configuration with the proposed limits.
    #[serde(skip)]
    pub yaml: String,
}

/// How clients use a route, and what is proposed for them.
#[derive(Debug, Serialize)]
pub(super) struct RouteSuggestion {
    #[serde(rename = "route")]
    pub name: String,
    /// The paths of a route that the log suggests.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub requests_for: String,
    pub requests: usize,
    pub clients: usize,
    /// Why no limit is proposed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_limit: Option<NoLimit>,
    /// The policy in the configuration that is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    #[serde(rename = "busiest")]
    peaks: [Peaks; 3],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Proposal>,
    /// Requests that the proposal would have refused.
    pub limited: usize,
    pub limited_clients: usize,
    most_limited: Vec<LimitedKey>,
}

/// Why a route gets no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoLimit {
    /// There are too few requests or clients.
    LittleData,
    /// The configuration has limits for it.
    Limited,
    /// The proxy answers.
    Answered,
}

/// A client that would have been limited.
#[derive(Debug, Serialize)]
struct LimitedKey {
    key: String,
    limited: usize,
    requests: usize,
}

impl Suggestion {
    /// A proposal for these routes, to whose places the requests are sorted. `is_whole` says that the
    /// routes are proposed, too.
    pub(super) fn new(
        survey: &Survey,
        routes: Vec<KnownRoute>,
        wishes: Wishes,
        mut names: HashSet<String>,
        is_whole: bool,
    ) -> Self {
        let mut rest = &*survey.requests;
        let routes = routes.into_iter().zip(0..).map(|(route, place)| {
            let end = rest.partition_point(|request| request.place <= place);
            let (requests, later) = rest.split_at(end);
            rest = later;
            let mut suggested = RouteSuggestion::new(route, requests, survey, &wishes);
            let proposal = suggested.proposal.as_ref();
            suggested.policy = proposal.map(|_| unique_name(&suggested.name, &mut names));
            suggested
        });
        let routes = routes.collect();
        let answered: u64 = survey.answered.values().sum();
        let mut suggestion = Self {
            requests: survey.requests.len() as u64 + answered,
            from: survey.times.map(|(first, _)| rfc_3339(first)),
            until: survey.times.map(|(_, latest)| rfc_3339(latest)),
            remarks: remarks(survey, &wishes.key),
            wishes,
            routes,
            unrouted: rest.len(),
            answered: survey.answered.clone(),
            unparsable: survey.unparsable.clone(),
            yaml: String::new(),
        };
        suggestion.yaml = yaml::write(&suggestion, is_whole);
        suggestion
    }

    /// The number of lines that could not be read.
    pub fn unparsable_lines(&self) -> u64 {
        self.unparsable.count
    }
}

impl RouteSuggestion {
    fn new(route: KnownRoute, requests: &[Seen], survey: &Survey, wishes: &Wishes) -> Self {
        let bucketless = requests.partition_point(|request| request.key != NO_BUCKET);
        let clients = requests[..bucketless].chunk_by(|one, other| one.key == other.key);
        let clients: Vec<_> = clients.collect();
        let is_little = requests.len() < MIN_REQUESTS || clients.len() < MIN_CLIENTS;
        let no_limit = route.no_limit.or(is_little.then_some(NoLimit::LittleData));
        let peaks = Peaks::of(&clients, wishes.percentile);
        let proposal = no_limit.is_none().then(|| {
            let has_hour = survey.span() >= HOUR;
            Proposal::new(&clients, &peaks, has_hour, wishes)
        });
        let mut suggestion = Self {
            name: route.name,
            requests_for: route.requests_for,
            requests: requests.len(),
            clients: clients.len(),
            no_limit,
            policy: None,
            peaks,
            proposal,
            limited: 0,
            limited_clients: 0,
            most_limited: Vec::new(),
        };
        if let Some(proposal) = &suggestion.proposal {
            let limited = clients
                .iter()
                .map(|client| (proposal.limited(client), client));
            let mut limited: Vec<_> = limited.filter(|(count, _)| *count > 0).collect();
            limited.sort_by_key(|(count, client)| (Reverse(*count), client[0].key));
            let refused: usize = limited.iter().map(|(count, _)| count).sum();
            suggestion.limited = refused + requests.len() - bucketless;
            suggestion.limited_clients = limited.len();
            let most = limited
                .iter()
                .take(MAX_NAMED)
                .map(|(limited, client)| LimitedKey {
                    key: survey.key.names[client[0].key as usize].to_string(),
                    limited: *limited,
                    requests: client.len(),
                });
            suggestion.most_limited = most.collect();
        }
        suggestion
    }
}

/// What makes all numbers doubtful.
fn remarks(survey: &Survey, key: &str) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some((line, count)) = survey.left_over {
        remarks.push(format!(
            "Only the lines before line {line} were used: the other {count} requests have no room. Use a shorter log"
        ));
    }
    if survey.times.is_some() && survey.span() < HOUR {
        remarks.push(format!(
            "The log covers {}, less than an hour: busier hours and days are unknown. Use a log of a whole day or week",
            Span(survey.span())
        ));
    }
    let clients = survey.key.names.len();
    if key == DEFAULT_KEY && (1..=3).contains(&clients) {
        remarks.push(format!(
            "Different addresses in the log: {clients}. If these are proxies, use a log with the clients' addresses, a \
             configuration with `client_ip.trusted_proxies`, or another --key"
        ));
    }
    let (missing, requests) = (survey.key.missing, survey.key.requests);
    if missing > 0 {
        remarks.push(format!(
            "{key} was missing in {missing} of {requests} requests, which count by client_ip. sluicegate logs the fields in \
             `access_log.headers`"
        ));
    }
    let mut times = survey.requests.iter().map(|request| request.time);
    let some_coincide = survey.requests.len() as u64 > survey.span().as_secs() + 1;
    if some_coincide && times.all(|time| time.is_multiple_of(1_000_000)) {
        remarks.push(
            "The log has times in whole seconds. All requests of a second count as its beginning's, so bursts look larger \
             than they were"
                .to_owned(),
        );
    }
    remarks
}

impl NoLimit {
    pub(super) const fn sentence(self) -> &'static str {
        match self {
            Self::LittleData => "not enough data: it takes 100 requests by 10 clients",
            Self::Limited => "the configuration has limits for it",
            Self::Answered => "the proxy answers itself",
        }
    }
}

impl Display for Suggestion {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests", self.requests)?;
        if let (Some(from), Some(until)) = (&self.from, &self.until) {
            write!(f, " from {from} to {until}")?;
        }
        writeln!(f, ", by {}", self.wishes.key)?;
        for remark in &self.remarks {
            writeln!(f, "note: {remark}")?;
        }
        if self.unrouted > 0 {
            writeln!(f, "{:>12}  matched no route", self.unrouted)?;
        }
        for (reason, count) in &self.answered {
            writeln!(f, "{count:>12}  answered before any limit: {reason}")?;
        }
        for route in &self.routes {
            route.write(self.wishes.percentile, f)?;
        }
        self.unparsable.write("unparsable", f)
    }
}

impl RouteSuggestion {
    fn write(&self, percentile: f64, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\nroute {}", self.name)?;
        if !self.requests_for.is_empty() {
            write!(f, " ({})", self.requests_for)?;
        }
        let (requests, clients) = (self.requests, self.clients);
        writeln!(f, ": {requests} requests, {clients} clients")?;
        if let Some(reason) = self.no_limit {
            writeln!(f, "  no limit proposed: {}", reason.sentence())?;
        }
        let Some(proposal) = &self.proposal else {
            return Ok(());
        };
        let percentile = format!("{percentile}%");
        writeln!(
            f,
            "  busiest        50%       90%{percentile:>10}   busiest client"
        )?;
        for Peaks {
            window,
            half,
            p90,
            chosen,
            most,
        } in &self.peaks
        {
            writeln!(f, "  {window:<8}{half:>10}{p90:>10}{chosen:>10}{most:>17}")?;
        }
        let Proposal {
            quota,
            burst,
            reason,
            ..
        } = proposal;
        writeln!(
            f,
            "  proposed: quota: {quota}, burst: {burst}\n    {reason}"
        )?;
        let (limited, of) = (self.limited, self.limited_clients);
        let share = limited as f64 / requests as f64 * 100.0;
        writeln!(
            f,
            "  would have limited {of} of {clients} clients, {limited} of {requests} requests ({share:.2}%)"
        )?;
        for key in &self.most_limited {
            let share = key.limited as f64 / key.requests as f64 * 100.0;
            writeln!(
                f,
                "{:>12}  {} ({share:.1}% of {} requests)",
                key.limited, key.key, key.requests
            )?;
        }
        Ok(())
    }
}
