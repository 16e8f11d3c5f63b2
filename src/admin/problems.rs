//! The list of problems: what an operator has to look at, in `/v1/status` and on the dashboard.

use std::time::Duration;

use strum::VariantArray;

use super::reload_history::ReloadResult;
use super::state::AdminState;
use super::upstreams;
use crate::clock::text::Span;
use crate::net::file_budget;
use crate::proxy::Ruleset;
use crate::store::redis::client::State as RedisState;
use crate::store::{Home, OnStoreError};
use crate::telemetry::metrics::{RecentCount, RecentEvent};

/// The most policies that a problem names.
const MAX_NAMES: usize = 5;

/// The most problems of a kind that are listed.
const MAX_OF_A_KIND: usize = 20;

/// The most requests to the admin listener that are refused before it is a problem: people mistype.
const REFUSED_LOGINS: u64 = 20;

/// A kind of problem, most urgent first. Each has the name of its alert in docs/monitoring/alerts.yaml;
/// `tests::WITHOUT_ALERT` has the exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
enum ProblemKind {
    ReloadFailed,
    StoreDown,
    StoreUndecided,
    CertificateExpires,
    UpstreamDown,
    UpstreamUnanswered,
    NameUnresolved,
    EndpointEjected,
    EndpointFlapping,
    ConnectionPressure,
    ConnectionsRefused,
    UpstreamRequestsRefused,
    BucketsUnrecorded,
    CostsUnsettled,
    SyncFailing,
    StoreReportsLost,
    SnapshotFailed,
    SnapshotUnread,
    ClockDiffers,
    UpgradeFailed,
    RestartPending,
    Panicked,
    AdminRefusals,
    AccessLogDropsLines,
    LogDropsLines,
    SpansDropped,
}

/// The problems that there are now, most urgent first.
pub(super) fn problems(state: &AdminState, ruleset: &Ruleset) -> Vec<String> {
    state
        .recent
        .sample(state.clock.now(), Duration::from_secs(1));
    let kinds = ProblemKind::VARIANTS.iter();
    let found = kinds.flat_map(|kind| bounded(kind.find(state, ruleset)));
    found.collect()
}

/// The first of the problems of a kind, and how many more there are.
fn bounded(mut problems: Vec<String>) -> Vec<String> {
    if problems.len() > MAX_OF_A_KIND {
        let more = problems.split_off(MAX_OF_A_KIND);
        problems.push(format!("{} more like this: {}, ..", more.len(), more[0]));
    }
    problems
}

impl ProblemKind {
    /// The problems of this kind that there are now.
    fn find(self, state: &AdminState, ruleset: &Ruleset) -> Vec<String> {
        let recent = |event, describe: &dyn Fn(&RecentCount, usize) -> String| {
            recent(state, event, |count, minutes| {
                Some(describe(count, minutes))
            })
        };
        match self {
            Self::ReloadFailed => failed_reload(state).into_iter().collect(),
            Self::StoreDown => store_down(ruleset).into_iter().collect(),
            Self::StoreUndecided => undecided(state, ruleset),
            Self::CertificateExpires => {
                let now = state.clock.wall_time(state.clock.now());
                let now = now.as_micros() / 1_000_000;
                let running = state.reloads.running();
                running
                    .certificates
                    .iter()
                    .filter_map(|period| period.problem(now))
                    .collect()
            }
            Self::UpstreamDown => upstreams::down(ruleset)
                .map(|name| format!("upstream {name}: {}", upstreams::DOWN))
                .collect(),
            Self::UpstreamUnanswered => unanswered(state, ruleset),
            Self::NameUnresolved => upstreams::unresolved_names(ruleset),
            Self::EndpointEjected => upstreams::failing_hosts(ruleset),
            Self::EndpointFlapping => flapping(state),
            Self::ConnectionPressure => pressure(state),
            Self::ConnectionsRefused => refused_connections(state),
            Self::UpstreamRequestsRefused => {
                recent(RecentEvent::UpstreamRefusal, &|count, minutes| {
                    let (name, refused) = (&count.labels[0], number(count.events, "request"));
                    format!(
                        "upstream {name}: {refused} got 503 in the last {minutes} minutes, since too many \
                     were in flight, or files were short"
                    )
                })
            }
            Self::BucketsUnrecorded => recent(RecentEvent::Unrecorded, &|count, minutes| {
                let (name, passed) = (&count.labels[0], number(count.events, "request"));
                format!(
                    "policy {name}: {passed} passed without a bucket in the last {minutes} minutes, \
                     because keys that refuse fill its table"
                )
            }),
            Self::CostsUnsettled => unsettled(state),
            Self::SyncFailing if is_store_down(ruleset) => Vec::new(),
            Self::SyncFailing => recent(RecentEvent::SyncFailure, &|count, minutes| {
                let rounds = number(count.events, "round");
                format!("{rounds} of synchronising buckets failed in the last {minutes} minutes")
            }),
            Self::StoreReportsLost => recent(RecentEvent::StoreLoss, &|count, minutes| {
                let reports = number(count.events, "report");
                format!("{reports} to redis did not arrive in the last {minutes} minutes")
            }),
            Self::SnapshotFailed => state.snapshot_problem.get().into_iter().collect(),
            Self::SnapshotUnread => state.unread_problem.get().into_iter().collect(),
            Self::ClockDiffers => clock_differs(state).into_iter().collect(),
            Self::UpgradeFailed => state.upgrade_problem.get().into_iter().collect(),
            Self::RestartPending => state.restart_problem.get().into_iter().collect(),
            Self::Panicked => recent(RecentEvent::Panic, &|count, minutes| {
                let requests = number(count.events, "request");
                format!("{requests} met a bug in the last {minutes} minutes: the log has the place")
            }),
            Self::AdminRefusals => refused_logins(state),
            Self::AccessLogDropsLines => recent(RecentEvent::AccessLogLoss, &|count, minutes| {
                let lines = number(count.events, "line");
                format!("the access log lost {lines} in the last {minutes} minutes")
            }),
            Self::LogDropsLines => recent(RecentEvent::LogLoss, &|count, minutes| {
                let lines = number(count.events, "line");
                format!("the process's own log lost {lines} in the last {minutes} minutes")
            }),
            Self::SpansDropped => recent(RecentEvent::SpanLoss, &|count, minutes| {
                let spans = number(count.events, "span");
                format!(
                    "the export lost {spans} in the last {minutes} minutes: the log has the reason"
                )
            }),
        }
    }
}

/// The problems that `describe` finds in the counts of an event, and in the minutes for which it is
/// remembered.
fn recent(
    state: &AdminState,
    event: RecentEvent,
    describe: impl Fn(&RecentCount, usize) -> Option<String>,
) -> Vec<String> {
    let counts = state.recent.of(event);
    let problems = counts
        .iter()
        .filter_map(|count| describe(count, event.minutes()));
    problems.collect()
}

/// A number of things.
fn number(count: u64, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ => format!("{count} {thing}s"),
    }
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
    let reload = state.reloads.last();
    let reload = reload.filter(|reload| reload.result == ReloadResult::Failed)?;
    let why = reload.error.as_deref().map(first_line);
    let why = why.as_deref().unwrap_or("it says no reason");
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

/// The policies that can't do without Redis now, or could not lately.
fn undecided(state: &AdminState, ruleset: &Ruleset) -> Vec<String> {
    if is_store_down(ruleset) {
        let refusing = ruleset.policies_without_store().into_iter();
        let keys = unreachable_keys(ruleset, " of");
        return refusing
            .map(|name| format!("policy {name} refuses requests{keys}: it cannot reach redis"))
            .collect();
    }
    recent(state, RecentEvent::Undecided, |count, minutes| {
        let (name, requests) = (&count.labels[0], number(count.events, "request"));
        Some(format!(
            "policy {name}: redis did not decide {requests} in the last {minutes} minutes, which \
             passed or were refused as `on_store_error` says"
        ))
    })
}

/// The upstreams that work by now, and left most requests of the last minutes without a response.
fn unanswered(state: &AdminState, ruleset: &Ruleset) -> Vec<String> {
    let down: Vec<_> = upstreams::down(ruleset).collect();
    recent(state, RecentEvent::Unanswered, |count, minutes| {
        let (name, events, all) = (&*count.labels[0], count.events, count.all);
        let is_down = down.iter().any(|down| &***down == name);
        (events * 2 > all && !is_down).then(|| {
            format!(
                "upstream {name}: {events} of {all} requests in the last {minutes} minutes got no \
                 response from it"
            )
        })
    })
}

/// The endpoints that are ejected again and again.
fn flapping(state: &AdminState) -> Vec<String> {
    recent(state, RecentEvent::Ejection, |count, minutes| {
        let (upstream, endpoint, times) = (&count.labels[0], &count.labels[1], count.events);
        (times > 5).then(|| {
            format!("upstream {upstream}: {endpoint} was ejected {times} times in the last {minutes} minutes")
        })
    })
}

/// The policies whose costs are often not settled.
fn unsettled(state: &AdminState) -> Vec<String> {
    recent(state, RecentEvent::Unsettled, |count, minutes| {
        let (name, events, all) = (&count.labels[0], count.events, count.all);
        // One response in a hundred may fail.
        (events * 100 > all).then(|| {
            format!("policy {name}: {events} of {all} responses in the last {minutes} minutes state no cost")
        })
    })
}

fn refused_logins(state: &AdminState) -> Vec<String> {
    recent(state, RecentEvent::AdminRefusal, |count, minutes| {
        let requests = count.events;
        (requests > REFUSED_LOGINS).then(|| {
            format!(
                "{requests} requests to the admin listener were refused in the last {minutes} minutes: the \
                 log has the addresses"
            )
        })
    })
}

/// Bounds that are nearly reached: connections, requests at upstreams, files.
fn pressure(state: &AdminState) -> Vec<String> {
    let (connections, requests) = (state.readiness.pressure(), state.gateway.upstream_shares());
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

/// Connections of clients that had as many as they may. A few are what the bound is for.
fn refused_connections(state: &AdminState) -> Vec<String> {
    recent(state, RecentEvent::ConnectionRefusal, |count, minutes| {
        (count.events > 100).then(|| {
            format!(
                "{} connections were closed in the last {minutes} minutes, since their clients had \
                 max_connections_per_client: the log names one. Is it a proxy that trusted_proxies lacks?",
                count.events
            )
        })
    })
}

/// The first line of an error, after the place that it points to.
pub fn first_line(error: &str) -> String {
    let mut lines = error.lines();
    let first = lines.next().unwrap_or_default();
    let coded = first.strip_prefix("error[");
    let message = coded.and_then(|rest| rest.split_once("]: "));
    let message = message.map_or(first, |(_, message)| message);
    let place = lines
        .next()
        .and_then(|line| line.trim_start().strip_prefix("--> "));
    match place {
        Some(place) => format!("{place}: {message}"),
        None => message.to_owned(),
    }
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
