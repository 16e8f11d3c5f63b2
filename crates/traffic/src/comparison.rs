//! Two configurations over one log: what each limits, by policies and by clients.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use serde::Serialize;

use crate::report::{CountRange, MAX_KEYS, PolicyCount, ReplayReport, client_count};
use crate::tally::Tally;

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
    pub fn new(tallies: [&Tally; 2], mut reports: [ReplayReport; 2], only: Option<&str>) -> Self {
        if let Some(only) = only {
            reports
                .iter_mut()
                .for_each(|report| report.keep_policy(only));
        }
        let policies = policies(&reports);
        let clients = clients(tallies, only);
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
fn clients(tallies: [&Tally; 2], only: Option<&str>) -> Vec<ClientChange> {
    let mut counts = KeyCounts::new();
    for (side, tally) in tallies.into_iter().enumerate() {
        let policies = tally.policies.iter();
        for (policy, keys) in policies.filter(|(name, _)| only.is_none_or(|only| ***name == *only))
        {
            for entry in keys.limited.entries() {
                let key = (Arc::clone(policy), entry.value.name.clone());
                counts.entry(key).or_default()[side] = Some(CountRange::of(entry));
            }
        }
    }
    let changes = counts.into_iter().map(|((policy, key), found)| {
        let count = |side: usize| {
            let unfollowed = || {
                let keys = tallies[side].policies.get(&policy);
                CountRange::up_to(keys.map_or(0, |keys| keys.limited.floor()))
            };
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
        let cells = |change: &PolicyChange, cell: fn(PolicyCount) -> String| {
            [change.before, change.after].map(|count| count.map_or("-".to_owned(), cell))
        };
        for change in &self.policies {
            let [before, after] = cells(change, |one| (one.limited + one.shadowed).to_string());
            let note = change.note(|count| format!("{} of them in shadow", count.shadowed));
            let policy = &change.policy;
            writeln!(f, "{before:>12}{after:>12}  policy {policy}{note}")?;
        }
        writeln!(f, "\n      before       after  clients that are limited")?;
        for change in &self.policies {
            let [before, after] = cells(change, |one| client_count(one.limited_clients));
            writeln!(f, "{before:>12}{after:>12}  policy {}", change.policy)?;
        }
        if !self.clients.is_empty() {
            writeln!(f, "\n      before       after  clients that differ most")?;
        }
        for change in &self.clients {
            let [before, after] = [change.before, change.after].map(|count| count.to_string());
            let (policy, key) = (&change.policy, &change.key);
            let of_policy = self.policies.iter().find(|one| one.policy == *policy);
            let note = of_policy.map(|one| one.note(|_| "policy partly in shadow".to_owned()));
            let note = note.unwrap_or_default();
            writeln!(f, "{before:>12}{after:>12}  {policy}: {key}{note}")?;
        }
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
