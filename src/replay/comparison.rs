//! Two configurations over one log: what each limits, by policies and by clients.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use serde::Serialize;

use super::report::{CountRange, MAX_KEYS, PolicyCount, ReplayReport, client_count};
use super::simulation::Simulation;

/// The difference between two configurations.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The summary of the earlier configuration.
    pub before: ReplayReport,
    /// The summary of the later configuration.
    pub after: ReplayReport,
    /// The policies that requests met, those of the later configuration first.
    policies: Vec<PolicyChange>,
    /// The keys whose refusals differ most, at most 10.
    clients: Vec<ClientChange>,
}

/// Requests that a policy limits; `None` for a policy that no request met.
#[derive(Debug, Serialize)]
struct PolicyChange {
    policy: Arc<str>,
    before: Option<PolicyCount>,
    after: Option<PolicyCount>,
}

/// Requests of a key that a policy limits, or would limit if it were not in shadow.
#[derive(Debug, Serialize)]
struct ClientChange {
    policy: Arc<str>,
    key: String,
    before: CountRange,
    after: CountRange,
}

/// The counts of a key before and after.
type KeyCounts = HashMap<(Arc<str>, String), [Option<CountRange>; 2]>;

impl Comparison {
    /// The difference; that of one policy alone, if `only` names it.
    pub(super) fn new([before, after]: [&Simulation; 2], only: Option<&str>) -> Self {
        let mut reports = [before.report(), after.report()];
        if let Some(only) = only {
            reports
                .iter_mut()
                .for_each(|report| report.keep_policy(only));
        }
        let policies = policies(&reports);
        let clients = clients([before, after], only);
        let [before, after] = reports;
        Self {
            before,
            after,
            policies,
            clients,
        }
    }
}

fn policies([before, after]: &[ReplayReport; 2]) -> Vec<PolicyChange> {
    let counts = [before, after].map(ReplayReport::limited_by_policy);
    let mut known = HashSet::new();
    let names = after.limiting_policies().chain(before.limiting_policies());
    let changes = names.filter(|name| known.insert(*name)).map(|name| {
        let [before, after] = counts.each_ref().map(|counts| counts.get(name).copied());
        PolicyChange {
            policy: Arc::clone(name),
            before,
            after,
        }
    });
    changes.collect()
}

/// The keys whose refusals differ most. A key that one configuration does not follow was limited
/// there at most as often as the least limited one that it follows.
fn clients(simulations: [&Simulation; 2], only: Option<&str>) -> Vec<ClientChange> {
    let mut counts = KeyCounts::new();
    for (side, simulation) in simulations.into_iter().enumerate() {
        for (policy, key, count) in simulation.limited_keys() {
            if only.is_none_or(|only| *policy == *only) {
                counts.entry((policy, key)).or_default()[side] = Some(count);
            }
        }
    }
    let changes = counts.into_iter().map(|((policy, key), found)| {
        let count = |side: usize| {
            let unfollowed = || CountRange::up_to(simulations[side].limited_floor(&policy));
            found[side].unwrap_or_else(unfollowed)
        };
        let (before, after) = (count(0), count(1));
        ClientChange {
            policy,
            key,
            before,
            after,
        }
    });
    let mut changes: Vec<_> = changes
        .filter(|change| change.before.most != change.after.most)
        .collect();
    changes.sort_by(|one, other| {
        let by_difference = other.difference().cmp(&one.difference());
        by_difference.then_with(|| (&one.policy, &one.key).cmp(&(&other.policy, &other.key)))
    });
    changes.truncate(MAX_KEYS);
    changes
}

impl PolicyChange {
    /// A note on a policy that only would limit; `partly` has the words if it does so for a part of
    /// the requests.
    fn note(&self, partly: impl Fn(PolicyCount) -> String) -> String {
        let words = [self.before, self.after].map(|count| match count {
            Some(count) if count.shadowed > 0 && count.limited > 0 => partly(count),
            Some(count) if count.shadowed > 0 => "in shadow".to_owned(),
            _ => String::new(),
        });
        match words.each_ref().map(|words| &**words) {
            ["", ""] => String::new(),
            [before, after] if before == after => format!(" ({before})"),
            [before, ""] => format!(" (before {before})"),
            ["", after] => format!(" (after {after})"),
            [before, after] => format!(" (before {before}, after {after})"),
        }
    }
}

/// A row of the comparison, in texts.
pub(super) struct ComparisonRow<'a> {
    /// A policy; or a policy and a key.
    pub name: Cow<'a, str>,
    pub before: String,
    pub after: String,
    /// A note behind them; begins with a space if it is not empty.
    pub note: String,
}

impl Comparison {
    /// Requests that each policy limits. Policies in shadow have what they would limit.
    pub(super) fn policy_rows(&self) -> impl Iterator<Item = ComparisonRow<'_>> {
        let count = |count: Option<PolicyCount>| {
            count.map_or("-".to_owned(), |one| {
                (one.limited + one.shadowed).to_string()
            })
        };
        self.policies.iter().map(move |change| ComparisonRow {
            name: Cow::Borrowed(&*change.policy),
            before: count(change.before),
            after: count(change.after),
            note: change.note(|count| format!("{} of them in shadow", count.shadowed)),
        })
    }

    /// Clients that each policy limits.
    pub(super) fn limited_client_rows(&self) -> impl Iterator<Item = ComparisonRow<'_>> {
        let clients = |count: Option<PolicyCount>| {
            count.map_or("-".to_owned(), |one| client_count(one.limited_clients))
        };
        self.policies.iter().map(move |change| ComparisonRow {
            name: Cow::Borrowed(&*change.policy),
            before: clients(change.before),
            after: clients(change.after),
            note: String::new(),
        })
    }

    /// The clients that differ most.
    pub(super) fn client_rows(&self) -> impl Iterator<Item = ComparisonRow<'_>> {
        self.clients.iter().map(|change| {
            let (policy, key) = (&change.policy, &change.key);
            let of_policy = self.policies.iter().find(|one| one.policy == *policy);
            ComparisonRow {
                name: Cow::Owned(format!("{policy}: {key}")),
                before: change.before.to_string(),
                after: change.after.to_string(),
                note: of_policy.map_or_else(String::new, |one| {
                    one.note(|_| "policy partly in shadow".to_owned())
                }),
            }
        })
    }
}

impl ClientChange {
    fn difference(&self) -> u64 {
        self.before.most.abs_diff(self.after.most)
    }
}

/// A table of what is limited before and after. Policies in shadow have what they would limit.
impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.after.write_span(f)?;
        writeln!(f, "\n      before       after  requests that are limited")?;
        let (before, after) = (self.before.counts.limited, self.after.counts.limited);
        writeln!(f, "{before:>12}{after:>12}  in all")?;
        let write = |row: ComparisonRow<'_>, what: &str, f: &mut Formatter<'_>| {
            let ComparisonRow {
                name,
                before,
                after,
                note,
            } = row;
            writeln!(f, "{before:>12}{after:>12}  {what}{name}{note}")
        };
        let mut rows = self.policy_rows();
        rows.try_for_each(|row| write(row, "policy ", f))?;
        writeln!(f, "\n      before       after  clients that are limited")?;
        let mut rows = self.limited_client_rows();
        rows.try_for_each(|row| write(row, "policy ", f))?;
        if !self.clients.is_empty() {
            writeln!(f, "\n      before       after  clients that differ most")?;
        }
        let mut rows = self.client_rows();
        rows.try_for_each(|row| write(row, "", f))?;
        let [before, after] = [&self.before, &self.after].map(|one| one.remarks().to_string());
        f.write_str(&after)?;
        if before.is_empty() || before == after {
            return Ok(());
        }
        write!(f, "\nwith the configuration before:\n{before}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_partly_in_shadow_says_how_many_requests_are() {
        let count = |limited, shadowed| {
            Some(PolicyCount {
                limited,
                shadowed,
                limited_clients: 1,
            })
        };
        let note = |before, after| {
            let policy = "p".into();
            PolicyChange {
                policy,
                before,
                after,
            }
            .note(|count| format!("{} of them in shadow", count.shadowed))
        };
        assert_eq!(note(count(5, 0), None), "");
        assert_eq!(note(count(0, 5), count(0, 3)), " (in shadow)");
        assert_eq!(
            note(count(0, 5), count(2, 3)),
            " (before in shadow, after 3 of them in shadow)"
        );
        assert_eq!(note(None, count(2, 3)), " (after 3 of them in shadow)");
    }
}
