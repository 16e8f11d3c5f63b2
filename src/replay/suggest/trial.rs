//! Runs the proposed configuration over the requests of the log: whom it would have limited. Buckets
//! and decisions are the proxy's own, as in a replay.

use std::cmp::Reverse;
use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::grouping::ByRoute;
use super::keys::NO_BUCKET;
use super::report::{KeySuggestion, LimitedKey, MAX_OFFENDERS, Suggestion};
use super::survey::Survey;
use super::yaml;
use crate::clock::Timestamp;
use crate::config::Report;
use crate::limiter::Verdict;
use crate::proxy::ruleset::Policy;
use crate::replay::simulation::build;
use crate::store::{Refusals, charge_into};

/// The requests of a key, and those that would have been limited.
#[derive(Clone, Copy, Default)]
struct Count {
    requests: u64,
    limited: u64,
}

/// Notes for each proposed quota what it would have limited.
///
/// # Errors
/// The configuration that was written is none.
pub(super) fn run(
    suggestion: &mut Suggestion,
    survey: &Survey,
    by_route: &ByRoute,
) -> Result<(), Report> {
    // Policies that are to be added come without routes.
    let routes = match survey.paths {
        Some(_) => "",
        None => "routes: [{ upstream: echo }]\n",
    };
    let (ruleset, _) = build(yaml::compile(&format!("{}{routes}", suggestion.yaml))?);
    let policies = ruleset.policies.iter().map(|one| (&*one.name, &**one));
    let policies: HashMap<_, _> = policies.collect();
    for (place, route) in suggestion.routes.iter_mut().enumerate() {
        let policy = route.policy.as_ref().and_then(|name| policies.get(&**name));
        if let Some(policy) = policy {
            try_policy(policy, survey, by_route.of(place), &mut route.limit);
        }
    }
    Ok(())
}

/// Lets a policy decide on these requests, as in shadow: refused ones are not charged.
fn try_policy(policy: &Policy, survey: &Survey, requests: &[u32], limit: &mut KeySuggestion) {
    let (kind, ids) = (&survey.key, &survey.requests.keys);
    let buckets = &policy.quota.buckets;
    let mut counts = HashMap::<u32, Count, FixedState>::default();
    let mut bucketless = 0;
    let mut verdict = Verdict::default();
    for index in requests.iter().map(|index| *index as usize) {
        let id = ids[index];
        if id == NO_BUCKET {
            bucketless += 1;
            continue;
        }
        let charge = buckets.charge(kind.keys[id as usize].fingerprint, 1, None);
        let now = Timestamp::from_micros(survey.requests.times[index]);
        charge_into(&mut verdict, &[charge], 0, Refusals::Charged, now);
        let count = counts.entry(id).or_default();
        count.requests += 1;
        count.limited += u64::from(!verdict.decisions[0].is_admitted());
    }
    let limited = counts.into_iter().filter(|(_, one)| one.limited > 0);
    let mut limited: Vec<_> = limited.collect();
    let refused: u64 = limited.iter().map(|(_, one)| one.limited).sum();
    limited.sort_by_key(|(id, one)| (Reverse(one.limited), *id));
    limit.limited = refused + bucketless;
    limit.limited_clients = limited.len();
    let most = limited.iter().take(MAX_OFFENDERS);
    let most = most.map(|(id, one)| LimitedKey {
        key: kind.keys[*id as usize].name.to_string(),
        limited: one.limited,
        requests: one.requests,
    });
    limit.most_limited = most.collect();
}
