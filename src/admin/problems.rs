//! The list of problems: what an operator has to look at, in `/v1/status` and on the dashboard.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use super::json::Rfc3339;
use super::problem::{Finding, Labels, Problem, ProblemEvent, Severity, labels};
use super::state::AdminState;
use super::streams::readers::message;
use super::upstreams;
use crate::clock::text::Span;
use crate::net::file_budget;
use crate::proxy::Ruleset;
use crate::store::redis::client::State as RedisState;
use crate::store::{Home, OnStoreError};
use crate::telemetry::metrics::{RecentCount, RecentEvent};
use crate::telemetry::registry::Family;
use crate::text_table;

/// The most policies that a problem names.
const MAX_NAMES: usize = 5;

/// The most problems of a kind that are listed.
const MAX_OF_A_KIND: usize = 20;

/// The kinds whose begin and end are events of their own.
const WITH_EVENTS: [&str; 2] = ["EndpointEjected", "ReloadFailed"];

/// Each kind of problem, most urgent first: the name of its alert in docs/monitoring/alerts.yaml, to which
/// `tests::WITHOUT_ALERT` has the exceptions, the alert's severity, and what to do. Of one that counters
/// show there follow the family, the event's value of the last label ([`RecentEvent::value`]), the minutes for which it is remembered, how
/// many events, or which share of all, or `10, 5 %` for both, aren't a problem yet, and the sentence.
const KINDS: &str = include_str!("problems.txt");

static PROBLEM_KINDS: LazyLock<Vec<ProblemKind>> = LazyLock::new(|| {
    let kinds = text_table::rows(KINDS);
    kinds.map(ProblemKind::of_row).collect()
});

/// A kind of problem.
struct ProblemKind {
    alert: &'static str,
    severity: Severity,
    remedy: &'static str,
    /// The event by which counters show it.
    event: Option<RecentEvent>,
    /// The most events, and percent of what could have been one, that are no problem.
    tolerated: [u64; 2],
    sentence: &'static str,
}

/// The problems that there are now, most urgent first.
pub(super) fn problems(state: &AdminState, ruleset: &Ruleset) -> Vec<Problem> {
    state
        .recent
        .sample(state.clock.now(), Duration::from_secs(1));
    let (kinds, since) = (PROBLEM_KINDS.iter(), Rfc3339(state.clock.now()));
    let found = kinds.flat_map(|kind| {
        let found = bounded(kind.find(state, ruleset)).into_iter();
        found.map(|(labels, text)| Problem {
            kind: kind.alert.into(),
            severity: kind.severity,
            since,
            labels,
            text,
            remedy: kind.remedy.into(),
        })
    });
    let mut found: Vec<_> = found.collect();
    let mut known = state.history.problems.lock();
    for problem in &mut found {
        let first = known.entry(problem.id());
        problem.since = first.or_insert_with(|| (problem.clone(), false)).0.since;
    }
    found
}

/// Forgets the problems that are over, tells what has begun and ended since the last call, and returns
/// the number of problems.
pub(super) fn settle(state: &AdminState, ruleset: &Ruleset) -> usize {
    let (found, now) = (problems(state, ruleset), state.clock.now());
    let ids: BTreeSet<_> = found.iter().map(Problem::id).collect();
    let mut events = String::new();
    let tell = |id: &String, (problem, is_told): &mut (Problem, bool)| {
        let is_over = !ids.contains(id);
        if is_over == *is_told && !WITH_EVENTS.contains(&&*problem.kind) {
            *is_told = true;
            let at = if is_over { Rfc3339(now) } else { problem.since };
            let event = ProblemEvent {
                at,
                is_over,
                problem,
            };
            events += &message("problem", &event);
        }
        !is_over
    };
    state.history.problems.lock().retain(tell);
    if !events.is_empty() {
        state.streams.tell(events, now);
    }
    found.len()
}

/// The sentences of these problems.
pub(super) fn texts(problems: &[Problem]) -> Vec<String> {
    let problems = problems.iter();
    problems.map(|problem| problem.text.clone()).collect()
}

/// The events that problems are found in.
pub fn recent_events() -> impl Iterator<Item = RecentEvent> {
    PROBLEM_KINDS.iter().filter_map(|kind| kind.event)
}

/// The first of the problems of a kind, and how many more there are.
fn bounded(mut problems: Vec<Finding>) -> Vec<Finding> {
    if problems.len() > MAX_OF_A_KIND {
        let more = problems.split_off(MAX_OF_A_KIND);
        let text = format!("{} more like this: {}, ..", more.len(), more[0].1);
        problems.push((Labels::new(), text));
    }
    problems
}

impl ProblemKind {
    fn of_row(row: [&'static str; 8]) -> Self {
        let [
            alert,
            severity,
            remedy,
            family,
            value,
            minutes,
            tolerated,
            sentence,
        ] = row;
        let is_told = |label: &&&str| sentence.contains(&format!("{{{label}}}"));
        let event = (!family.is_empty()).then(|| RecentEvent {
            family,
            labels: <&Family>::from(family)
                .labels
                .iter()
                .filter(is_told)
                .count(),
            value,
            minutes: minutes.parse().unwrap_or_default(),
        });
        let (most, percent) = tolerated.split_once(", ").unwrap_or((tolerated, tolerated));
        let percent = percent.strip_suffix(" %").unwrap_or_default();
        let tolerated = [most, percent].map(|number| number.parse().unwrap_or_default());
        Self {
            alert,
            severity: severity.parse().unwrap_or(Severity::Critical),
            remedy,
            event,
            tolerated,
            sentence,
        }
    }

    /// The problems of this kind that there are now.
    fn find(&self, state: &AdminState, ruleset: &Ruleset) -> Vec<Finding> {
        let now = match self.alert {
            "ReloadFailed" => failed_reload(state),
            "StoreDown" => store_down(ruleset),
            "SnapshotFailed" => state.snapshot_problem.get(),
            "SnapshotUnread" => state.unread_problem.get(),
            "ClockDiffers" => clock_differs(state),
            "UpgradeFailed" => state.upgrade_problem.get(),
            "RestartPending" => state.restart_problem.get(),
            "StoreUndecided" if is_store_down(ruleset) => return undecided(ruleset),
            "SyncFailing" if is_store_down(ruleset) => None,
            "CertificateExpired" => return certificates(state, |is_valid| !is_valid),
            "CertificateExpires" => return certificates(state, |is_valid| is_valid),
            "UpstreamDown" => return upstreams::without_address(ruleset),
            "NameUnresolved" => return upstreams::unresolved_names(ruleset),
            "EndpointEjected" => return upstreams::failing_hosts(ruleset),
            "ConnectionPressure" => return unlabelled(pressure(state)),
            _ => return self.counted(state, ruleset),
        };
        unlabelled(now)
    }

    /// The problems of the last minutes that counters show. Upstreams that are down are another kind.
    fn counted(&self, state: &AdminState, ruleset: &Ruleset) -> Vec<Finding> {
        let Some(event) = &self.event else {
            return Vec::new();
        };
        let down: Vec<_> = match self.alert {
            "UpstreamUnanswered" | "UpstreamErrors" => upstreams::down(ruleset).collect(),
            _ => Vec::new(),
        };
        let is_down = |name: &str| down.iter().any(|down| ***down == *name);
        let [most, percent] = self.tolerated;
        let counts = state.recent.of(event).into_iter();
        let counts = counts.filter(|count| {
            let RecentCount {
                labels,
                events,
                all,
            } = count;
            *events > most
                && events * 100 > all * percent
                && !labels.iter().any(|name| is_down(name))
        });
        counts.map(|count| self.say(event, &count)).collect()
    }

    fn say(&self, event: &RecentEvent, count: &RecentCount) -> Finding {
        let plural = if count.events == 1 { "" } else { "s" };
        let told = [
            ("events", count.events),
            ("all", count.all),
            ("percent", count.events * 100 / count.all.max(1)),
            ("minutes", event.minutes as u64),
        ];
        let told = told.map(|(name, number)| (Cow::from(name), number.to_string()));
        let names = <&Family>::from(event.family).labels.iter();
        let values = count.labels.iter().map(ToString::to_string);
        let labels: Labels = names.map(|name| (*name).into()).zip(values).collect();
        let sentence = self.sentence.replace("(s)", plural);
        let told = told.into_iter().chain(labels.clone());
        let sentence = told.fold(sentence, |sentence, (name, value)| {
            sentence.replace(&format!("{{{name}}}"), &value)
        });
        (labels, sentence)
    }
}

/// These sentences about the whole process.
fn unlabelled(texts: impl IntoIterator<Item = String>) -> Vec<Finding> {
    let texts = texts.into_iter();
    texts.map(|text| (Labels::new(), text)).collect()
}

/// The certificates with a problem, of those that clients accept now, or of the others.
fn certificates(state: &AdminState, wanted: fn(bool) -> bool) -> Vec<Finding> {
    let now = state.clock.wall_time(state.clock.now());
    let now = now.as_micros() / 1_000_000;
    let running = state.reloads.running();
    let certificates = running.certificates.iter();
    certificates
        .filter(|period| wanted(period.is_valid(now)))
        .filter_map(|period| {
            let file = period.path.display().to_string();
            Some((labels([("file", &file)]), period.problem(now)?))
        })
        .collect()
}

fn clock_differs(state: &AdminState) -> Option<String> {
    let lead = state.clock.lead();
    let by = Span(Duration::from_micros(lead.unsigned_abs()));
    let consequence = match lead {
        0 => return None,
        1.. => "forward: limits follow if it stays so for 30 s",
        _ => "back: limits run 3 % slower until they agree with it",
    };
    Some(format!("the wall clock was set {by} {consequence}"))
}

fn failed_reload(state: &AdminState) -> Option<String> {
    let why = state.reloads.last()?.cause?;
    Some(format!(
        "the last reload failed: {why}. The configuration before it runs"
    ))
}

fn is_store_down(ruleset: &Ruleset) -> bool {
    let store = ruleset.store.redis();
    store.is_some_and(|store| matches!(store.client().state(), RedisState::Down { .. }))
}

fn store_down(ruleset: &Ruleset) -> Option<String> {
    let state = ruleset.store.redis()?.client().state();
    let is_down = matches!(state, RedisState::Down { .. });
    let keys = unreachable_keys(ruleset, ", and decides about none of");
    is_down.then(|| format!("redis is {state}{keys}{}", without_redis(ruleset)))
}

/// The share of keys that Redis does not decide about now, after these words; empty for all keys.
fn unreachable_keys(ruleset: &Ruleset, of: &str) -> String {
    match ruleset.store.unreachable_share() {
        1.0.. => String::new(),
        share => format!("{of} {:.0} % of the keys", (share * 100.0).max(1.0)),
    }
}

/// The policies that can't do without Redis, which is down.
fn undecided(ruleset: &Ruleset) -> Vec<Finding> {
    let refusing = ruleset.policies_without_store().into_iter();
    let keys = unreachable_keys(ruleset, " of");
    let refusing = refusing.map(|name| {
        let text = format!("policy {name} refuses requests{keys}: it cannot reach redis");
        (labels([("policy", name)]), text)
    });
    refusing.collect()
}

/// Bounds that are nearly reached: connections, requests at upstreams, files.
fn pressure(state: &AdminState) -> Vec<String> {
    let (connections, requests) = (state.readiness.pressure(), &state.gateway.upstream_shares);
    let connections = connections.map(|one| (one.open(), one.max()));
    // As the alert on `sluicegate_connection_pressure_ratio` has it.
    let connections = connections.filter(|(open, max)| open * 5 > max * 4);
    let connections = connections.map(|(open, max)| {
        format!("{open} of {max} connections are open: near the limit, new clients close idle ones or wait")
    });
    let requests = requests.are_scarce().then(|| {
        let (in_flight, max) = (requests.in_flight(), requests.max());
        format!("{in_flight} of {max} requests are in flight at upstreams: clients that hold most get 503")
    });
    let shortage = file_budget::UPSTREAMS.shortage();
    let shortage = shortage.map(|shortage| format!("connections fail: {shortage}"));
    [connections, requests, shortage]
        .into_iter()
        .flatten()
        .collect()
}

/// The policies that go on without Redis, by the way in which they do.
fn without_redis(ruleset: &Ruleset) -> String {
    let named = |wanted: fn(Home) -> bool| {
        let policies = ruleset.policies.iter();
        let names = policies.filter(|policy| wanted(policy.quota.buckets.home));
        listed(names.map(|policy| &*policy.name).collect())
    };
    let alone = named(|home| {
        matches!(
            home,
            Home::Redis(OnStoreError::Local) | Home::Synchronised(_)
        )
    });
    let unlimited = named(|home| home == Home::Redis(OnStoreError::Admit));
    let alone = alone.map(|names| format!("; each machine counts alone for {names}"));
    let unlimited = unlimited.map(|names| format!("; nothing is limited by {names}"));
    alone.into_iter().chain(unlimited).collect()
}

/// The first policies by name, and how many more there are; `None` without any.
fn listed(names: Vec<&str>) -> Option<String> {
    let (first, more) = names.split_at(names.len().min(MAX_NAMES));
    match (first, more.len()) {
        ([], _) => None,
        ([only], 0) => Some(format!("policy {only}")),
        (first, 0) => Some(format!("policies {}", first.join(", "))),
        (first, more) => Some(format!("policies {} and {more} more", first.join(", "))),
    }
}

#[cfg(test)]
mod tests;
