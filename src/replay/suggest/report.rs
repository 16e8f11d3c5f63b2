//! The proposal: for machines as JSON, for people in `report/text.rs`.

mod text;

use std::collections::BTreeMap;

use serde::Serialize;

use super::keys::DEFAULT_KEY;
use super::peaks::Peaks;
use super::quota::{Distribution, MIN_KEYS, MIN_REQUESTS, Margin, Proposal, Wishes, sorted_peaks};
use super::survey::Survey;
use crate::clock::text::{Span, rfc_3339};
use crate::config::Loaded;
use crate::replay::tally::LinesReport;

/// How many keys are told of those that would have been limited.
pub(super) const MAX_OFFENDERS: usize = 5;

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
    /// By which requests are counted.
    pub(super) key: String,
    #[serde(flatten)]
    pub(super) margin: Margin,
    /// Reasons to doubt the numbers.
    pub(super) remarks: Vec<String>,
    /// The routes, in the order of the configuration.
    pub(super) routes: Vec<RouteSuggestion>,
    /// Requests that no route takes.
    pub(super) unrouted: u64,
    /// Requests that the proxy answers before any limit, by reason.
    pub(super) answered: BTreeMap<&'static str, u64>,
    /// Lines that were decided later than their time.
    pub(super) out_of_order: LinesReport,
    /// Lines that could not be read.
    pub unparsable: LinesReport,
    /// The configuration with the proposed limits.
    #[serde(skip)]
    pub yaml: String,
}

/// The proposal for a route.
#[derive(Debug, Serialize)]
pub(super) struct RouteSuggestion {
    #[serde(rename = "route")]
    pub name: String,
    /// The paths and methods of a route that the log suggests.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub requests_for: String,
    #[serde(skip)]
    pub matches: Option<String>,
    pub requests: u64,
    /// Why no limit is proposed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_limit: Option<NoLimit>,
    /// The policy in the configuration that is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    #[serde(flatten)]
    pub limit: KeySuggestion,
}

/// Why a route gets no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NoLimit {
    LittleData,
    /// The configuration has limits for it.
    Limited,
    /// The proxy answers.
    Answered,
}

/// How clients ask, and what is proposed for them.
#[derive(Debug, Serialize)]
pub(super) struct KeySuggestion {
    /// Keys with requests.
    pub clients: usize,
    /// How many requests clients make in their busiest second, minute and hour.
    pub per_second: Distribution,
    pub per_minute: Distribution,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_hour: Option<Distribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Proposal>,
    /// Requests that the proposal would have refused.
    pub limited: u64,
    pub limited_clients: usize,
    pub most_limited: Vec<LimitedKey>,
}

/// A key that would have been limited.
#[derive(Debug, Serialize)]
pub(super) struct LimitedKey {
    pub key: String,
    pub limited: u64,
    pub requests: u64,
}

impl Suggestion {
    pub(super) fn new(survey: &Survey, wishes: &Wishes, unrouted: u64) -> Self {
        let tally = &survey.tally;
        let answered: u64 = tally.answered.values().sum();
        let kept = survey.requests.times.len() as u64;
        Self {
            requests: kept + answered,
            from: tally.times.map(|(first, _)| rfc_3339(first)),
            until: tally.times.map(|(_, latest)| rfc_3339(latest)),
            key: wishes.key.clone(),
            margin: wishes.margin,
            remarks: remarks(survey),
            routes: Vec::new(),
            unrouted,
            answered: tally.answered.clone(),
            out_of_order: tally.out_of_order.clone(),
            unparsable: tally.unparsable.clone(),
            yaml: String::new(),
        }
    }
}

/// What makes all numbers doubtful.
fn remarks(survey: &Survey) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some((count, line)) = survey.left_over {
        remarks.push(format!(
            "Only the lines before line {line} were used: the other {count} requests have no room. Use a shorter log"
        ));
    }
    if let Some(span) = survey.span().filter(|_| !survey.has_hour()) {
        remarks.push(format!(
            "The log covers {}, less than an hour: busier hours and days are unknown. Use a log of a whole day or week",
            Span(span)
        ));
    }
    let clients = survey.key.keys.len();
    if survey.key.text == DEFAULT_KEY && (1..=3).contains(&clients) {
        let (addresses, are) = match clients {
            1 => ("1 address".to_owned(), "that is a proxy"),
            _ => (format!("{clients} addresses"), "those are proxies"),
        };
        remarks.push(format!(
            "All requests come from {addresses}. If {are}, use a log with the clients' addresses, a configuration with \
             `client_ip.trusted_proxies`, or another --key"
        ));
    }
    let (missing, requests) = (survey.key.missing, survey.key.requests);
    if missing > 0 {
        let key = &survey.key.text;
        remarks.push(format!(
            "{key} was missing in {missing} of {requests} requests, which count by client_ip. sluicegate logs the fields in \
             `access_log.headers`"
        ));
    }
    if survey.has_whole_seconds() {
        remarks.push(
            "The log has times in whole seconds. All requests of a second count as its beginning's, so bursts look larger \
             than they were"
                .to_owned(),
        );
    }
    remarks
}

impl NoLimit {
    /// Why a route of a configuration gets none, whatever the log has.
    pub(super) fn of_configured(config: &Loaded, route: usize) -> Option<Self> {
        let is_limited = config.has_own_limits(route);
        is_limited
            .then_some(Self::Limited)
            .or(config.is_answered(route).then_some(Self::Answered))
    }

    pub(super) fn sentence(self, route: &RouteSuggestion) -> String {
        let (requests, clients) = (route.requests, route.limit.clients);
        match self {
            Self::LittleData if requests == 0 => "no requests in the log".to_owned(),
            Self::LittleData => format!(
                "not enough data: {requests} requests by {}, and it takes {MIN_REQUESTS} requests by {MIN_KEYS} clients",
                clients_text(clients)
            ),
            Self::Limited => "the configuration has limits for it".to_owned(),
            Self::Answered => "the proxy answers itself".to_owned(),
        }
    }
}

/// A number of clients.
fn clients_text(clients: usize) -> String {
    match clients {
        1 => "1 client".to_owned(),
        clients => format!("{clients} clients"),
    }
}

impl KeySuggestion {
    pub(super) fn new(times: &[Vec<u64>], margin: Margin, has_hour: bool) -> Self {
        let peaks: Vec<_> = times.iter().map(|times| Peaks::of(times)).collect();
        let sorted = sorted_peaks(&peaks);
        let [second, minute, hour] = sorted.each_ref().map(|one| Distribution::of(one, margin));
        let proposal = (!peaks.is_empty()).then(|| Proposal::new(&sorted, times, margin, has_hour));
        Self {
            clients: peaks.len(),
            per_second: second,
            per_minute: minute,
            per_hour: has_hour.then_some(hour),
            limited: 0,
            limited_clients: 0,
            most_limited: Vec::new(),
            proposal,
        }
    }
}
