//! Warnings of data that limits depend on and the log lacks: missing fields of requests, and times
//! without a fraction of a second. Decisions on such requests may be others than the proxy made
//! at the time.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE, HeaderName};
use traffic::{BanCount, DEFAULT_HOST, Warning};

use crate::clock::{Timestamp, whole_micros};
use crate::limiter::Algorithm;
use crate::proxy::Ruleset;
use crate::proxy::ruleset::{Limit, Policy, Quota};
use crate::rules::{Cost, Credential, Descriptor, Head, KeyPart, OnMissingKey, RouteMatch};

const SECOND: u64 = 1_000_000;

/// The format in which the proxy's own log has all that limits depend on.
const JSON: &str = "access_log.format: json";

fn of_policy(policy: &Policy, message: String, option: Option<&str>) -> Warning {
    Warning {
        policy: Some(Arc::clone(&policy.name)),
        message,
        option: option.map(str::to_owned),
    }
}

/// Counts of what was missing, one for each field that the configuration reads.
#[derive(Debug)]
pub(super) struct Warnings {
    /// At the routes' places; the last is for requests that no route takes.
    routes: Vec<Vec<LimitInputs>>,
    /// Fields by which routes are chosen.
    chosen_by: Vec<Input>,
    /// Requests taken to be for a host that the log doesn't name, if the configuration asks for it and
    /// the user hasn't named it.
    host: Option<Count>,
    /// A request came at a fraction of a second.
    has_fractions: bool,
    /// Two requests came at one instant.
    has_equal_times: bool,
    last: Option<Timestamp>,
    /// Requests that recorded bans refused, by policy.
    banned: BTreeMap<Arc<str>, u64>,
}

/// A field of requests that a rule reads, and for what.
#[derive(Debug, PartialEq)]
struct Input {
    part: KeyPart,
    /// The rule, in a clause; empty for a key.
    clause: &'static str,
    /// What becomes of requests without the field.
    then: String,
    count: Count,
}

/// The data that one limit of a route reads.
#[derive(Debug)]
struct LimitInputs {
    policy: Arc<str>,
    /// In its condition.
    when: Vec<Input>,
    /// On requests to which it applies.
    then: Vec<Input>,
}

/// Requests for which a field was read, and those of them that lacked it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    missing: u64,
    requests: u64,
}

impl Warnings {
    /// Nothing missing so far. `is_host_given` says that the user named the host of requests whose
    /// line names none.
    pub(super) fn new(ruleset: &Ruleset, routes: &[RouteMatch], is_host_given: bool) -> Self {
        let limits = || ruleset.all_routes();
        let by_host = routes.iter().any(|route| !route.hosts.is_empty());
        let mut keys = limits().flat_map(|route| &route.limits);
        let has_host = |limit: &Limit| limit.spec.descriptor.parts.contains(&KeyPart::Host);
        let conditions = routes.iter().flat_map(|route| &route.conditions);
        let parts = conditions.flat_map(|condition| condition.inputs());
        let access = limits().filter_map(|route| route.access.as_ref());
        let of_access = access.flat_map(|access| access.rules.iter());
        let parts = parts.chain(of_access.flat_map(|access| access.inputs()));
        let chosen_by = parts.map(|part| Input::optional(part, ", which routes ask for,"));
        Warnings {
            routes: limits()
                .map(|route| route.limits.iter().map(LimitInputs::of).collect())
                .collect(),
            chosen_by: unique(chosen_by),
            host: (!is_host_given && (by_host || keys.any(has_host))).then(Count::default),
            has_fractions: false,
            has_equal_times: false,
            last: None,
            banned: BTreeMap::new(),
        }
    }

    /// How many requests each policy without a penalty refused because the log has bans.
    pub(super) fn banned(&self) -> Vec<BanCount> {
        let counts = self.banned.iter().map(|(policy, requests)| BanCount {
            policy: Arc::clone(policy),
            requests: *requests,
        });
        counts.collect()
    }

    /// Notes the policies that refuse a request because the log has a ban.
    pub(super) fn note_bans(&mut self, policies: &[Arc<str>]) {
        for policy in policies {
            *self.banned.entry(Arc::clone(policy)).or_default() += 1;
        }
    }

    /// Notes the time of a request, and whether its line names the host.
    pub(super) fn arrive(&mut self, time: Timestamp, names_host: bool) {
        if let Some(host) = &mut self.host {
            host.add(!names_host);
        }
        self.has_fractions |= !time.as_micros().is_multiple_of(SECOND);
        self.has_equal_times |= self.last.replace(time) == Some(time);
    }

    /// Notes what a request lacks of what the limits of the route at this place read.
    pub(super) fn note(&mut self, ruleset: &Ruleset, place: Option<usize>, head: &Head<'_>) {
        note(&mut self.chosen_by, head);
        let route = ruleset.route(place);
        if route.limits_for(head).is_empty() && route.tags_for(head).next().is_none() {
            return;
        }
        let inputs = &mut self.routes[place.unwrap_or(ruleset.routes.len())];
        for (limit, inputs) in route.limits.iter().zip(inputs) {
            note(&mut inputs.when, head);
            let when = limit.spec.when.as_ref();
            if when.is_none_or(|when| when.applies(head)) {
                note(&mut inputs.then, head);
            }
        }
    }

    /// The doubts, by policies; `is_met` tells the policies that requests met with a key.
    pub(super) fn all(&self, ruleset: &Ruleset, is_met: impl Fn(&Policy) -> bool) -> Vec<Warning> {
        let mut all: Vec<_> = self.host.and_then(unnamed_host).into_iter().collect();
        all.extend(self.missing(ruleset));
        let policies = || ruleset.policies.iter();
        all.extend(policies().filter_map(|policy| unstated_costs(policy)));
        let met = || policies().filter(|policy| is_met(policy));
        all.extend(met().filter_map(|policy| staggered(policy)));
        if self.has_equal_times && !self.has_fractions {
            all.extend(met().filter_map(|policy| whole_seconds(policy)));
        }
        all
    }

    /// Warnings of missing fields. A part of a key is named wherever it was missing; other fields are
    /// optional, and told if no request had them.
    fn missing(&self, ruleset: &Ruleset) -> Vec<Warning> {
        let chosen_by = self.chosen_by.iter().map(|input| (None, input));
        let of_limits = self.routes.iter().flatten().flat_map(|limit| {
            let inputs = limit.when.iter().chain(&limit.then);
            inputs.map(move |input| (Some(&limit.policy), input))
        });
        // The same in several routes is one.
        let mut counts = BTreeMap::<_, (Count, &KeyPart)>::new();
        for (policy, input) in chosen_by.chain(of_limits) {
            let key = (policy, input.clause, &input.then, input.part.to_string());
            let (count, _) = counts.entry(key).or_insert((Count::default(), &input.part));
            count.missing += input.count.missing;
            count.requests += input.count.requests;
        }
        let warnings = counts.into_iter().filter_map(|(key, (count, part))| {
            let (policy, clause, then, text) = key;
            let Count { missing, requests } = count;
            // If other requests have the field, it is logged.
            let field = field(part, ruleset).filter(|_| missing == requests);
            let is_told = missing > 0 && (clause.is_empty() || missing == requests);
            is_told.then(|| Warning {
                policy: policy.cloned(),
                message: format!(
                    "{text}{clause} was missing in {missing} of {requests} requests{then}"
                ),
                option: field.map(|field| format!("access_log.headers: [{field}]")),
            })
        });
        warnings.collect()
    }
}

/// Counts one request that may lack these.
fn note(inputs: &mut [Input], head: &Head<'_>) {
    for input in inputs {
        input.count.add(input.part.is_missing(head));
    }
}

fn unique(inputs: impl Iterator<Item = Input>) -> Vec<Input> {
    let mut unique = Vec::new();
    for input in inputs {
        if !unique.contains(&input) {
            unique.push(input);
        }
    }
    unique
}

/// The header field that has the part.
fn field<'a>(part: &'a KeyPart, ruleset: &'a Ruleset) -> Option<&'a HeaderName> {
    match part {
        KeyPart::Header(name) | KeyPart::Credentials(name) => Some(name),
        KeyPart::Cookie(_) => Some(&COOKIE),
        KeyPart::BasicUser => Some(&AUTHORIZATION),
        KeyPart::Claim(_) => {
            let tokens = ruleset.tokens.as_ref();
            Some(tokens.map_or(&AUTHORIZATION, |tokens| tokens.verifier.header()))
        }
        KeyPart::Client | KeyPart::ClientColumn(_) => {
            let clients = ruleset.clients.as_ref()?;
            match clients.clients.identify_by.first()? {
                Credential::Bearer => Some(&AUTHORIZATION),
                Credential::Part(part) => field(part, ruleset),
            }
        }
        _ => None,
    }
}

impl LimitInputs {
    fn of(limit: &Limit) -> Self {
        let when = limit.spec.when.iter().flat_map(|when| when.inputs());
        let when = when.map(|part| Input::optional(part, ", which `when` asks for,"));
        let parts = &limit.spec.descriptor.parts;
        let keys = parts.iter().filter(|part| part.is_from_fields());
        let instead = format!("; {}", fallback(&limit.spec.descriptor));
        let keys = keys.map(|part| Input::new(part.clone(), "", instead.clone()));
        let excepted = limit.spec.exceptions.iter().flat_map(|some| some.inputs());
        let excepted = excepted.filter(|part| part.is_from_fields() && !parts.contains(part));
        let excepted = excepted.map(|part| Input::optional(part, ", which exceptions ask for,"));
        let units = match &limit.spec.cost {
            Cost::Stated { default, .. } if *default > 1 => format!("{default} units"),
            Cost::Constant(_) | Cost::Stated { .. } | Cost::Tokens(_) => "one unit".to_owned(),
        };
        let costs = limit.spec.cost.inputs();
        let cost = costs.map(|part| {
            let then = format!("; each counted as {units}");
            Input::new(part.clone(), ", which says the cost,", then)
        });
        let stated = limit.policy.quotas().filter_map(|one| one.stated.as_ref());
        let stated = stated.map(|one| {
            let then = format!("; each counted under {}", one.quota(one.default));
            Input::new(one.part.clone(), ", which says the quota,", then)
        });
        let mut quotas = limit.policy.quotas();
        let zone = quotas.find_map(|quota| quota.local_periods.as_ref());
        let zone = zone.map(|local| {
            let part = local.part.clone();
            let then = "; counted in the default one".to_owned();
            Input::new(part, ", which says the time zone,", then)
        });
        let then = keys.chain(excepted).chain(cost).chain(zone).chain(stated);
        LimitInputs {
            policy: Arc::clone(&limit.policy.name),
            when: unique(when),
            then: unique(then),
        }
    }
}

/// Describes the handling of requests that lack a part of the key.
fn fallback(descriptor: &Descriptor) -> String {
    match &descriptor.on_missing {
        OnMissingKey::Part(KeyPart::ClientIp { .. }) => "counted by client_ip".to_owned(),
        OnMissingKey::Part(part) if part.is_from_fields() => {
            format!("counted by {part}, and where that is missing by client_ip")
        }
        OnMissingKey::Part(part) => format!("counted by {part}"),
        OnMissingKey::Skip => "not limited".to_owned(),
        OnMissingKey::Refuse => "refused".to_owned(),
        OnMissingKey::Shared => "counted as one key".to_owned(),
        OnMissingKey::Value(value) => format!("counted as {value}"),
    }
}

impl Input {
    fn new(part: KeyPart, clause: &'static str, then: String) -> Self {
        let count = Count::default();
        Input {
            part,
            clause,
            then,
            count,
        }
    }

    fn optional(part: KeyPart, clause: &'static str) -> Self {
        Self::new(part, clause, String::new())
    }
}

impl Count {
    fn add(&mut self, is_missing: bool) {
        self.requests += 1;
        self.missing += u64::from(is_missing);
    }
}

/// The warning about a log that doesn't name the hosts of requests.
fn unnamed_host(Count { missing, requests }: Count) -> Option<Warning> {
    let message = format!(
        "the host was missing in {missing} of {requests} requests; taken to be {}, which --host changes",
        DEFAULT_HOST
    );
    (missing > 0).then(|| Warning {
        policy: None,
        message,
        option: (missing == requests).then(|| JSON.to_owned()),
    })
}

/// The warning about a policy whose costs no response of the log states.
fn unstated_costs(policy: &Policy) -> Option<Warning> {
    let (estimated, all) = policy.settlements.as_ref()?.estimated();
    let is_told = all > 0 && estimated == all;
    is_told.then(|| {
        let message = format!(
            "what responses cost was missing in {estimated} of {all} requests; each counted as its estimate (the log \
             needs `costs`, `response_headers`, `status` or `bytes`)"
        );
        of_policy(policy, message, Some(JSON))
    })
}

/// The warning about a policy whose windows start where only the proxy knows.
fn staggered(policy: &Policy) -> Option<Warning> {
    (policy.quotas()).find(|quota| quota.algorithm().is_staggered())?;
    let message = "a secret of the proxy staggers the windows of keys, and the log does not have it; \
                   they started at other times than they did in the proxy";
    Some(of_policy(policy, message.to_owned(), None))
}

/// The warning about a policy that tells apart what came within a second.
fn whole_seconds(policy: &Policy) -> Option<Warning> {
    let mut algorithms = policy.quotas().map(Quota::algorithm);
    let finer = algorithms.find(|algorithm| is_finer_than_a_second(algorithm))?;
    let kind = finer.kind();
    let message = format!(
        "the log has times in whole seconds, and {kind} measures finer; requests of one second were decided \
         as if all came at its beginning, so that more may be limited than were"
    );
    Some(of_policy(policy, message, Some(JSON)))
}

/// True if units come back within a second, or a window ends within one.
fn is_finer_than_a_second(algorithm: &Algorithm) -> bool {
    let window = algorithm.window().map_or(u64::MAX, whole_micros);
    match algorithm {
        Algorithm::Gcra(_) | Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => {
            let limit = algorithm.limit();
            limit > 0 && window / limit < SECOND
        }
        Algorithm::IntervalRefill(refill) => refill.refill().1 < SECOND,
        Algorithm::FixedWindow(_)
        | Algorithm::SlidingWindow(_)
        | Algorithm::SlidingCounters(_)
        | Algorithm::SlidingLog(_) => window < SECOND,
        Algorithm::Concurrency(_) | Algorithm::Grant(_) => false,
    }
}
