//! All or nothing over several policies with any options, on virtual time, through the admission of
//! the proxy.

use std::net::IpAddr;
use std::sync::Arc;

use crate::clock::{Clock, Timestamp};
use crate::config;
use crate::limiter::Secret;
use crate::proxy::Ruleset;
use crate::proxy::inspect::dry_run::{Recorded, dry_run};
use crate::proxy::inspect::explain::{AnswerKind, Explanation};
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::telemetry::registry::Registry;
use http::Request;
use proptest::prelude::*;

/// The options of a policy beside its quota.
const MANNERS: [&str; 14] = [
    "",
    "when: { method: [POST] }",
    "when: { not: { header: { x-plan: gold } } }",
    "exempt: [{ value: a }, { cidr: 10.0.0.0/8 }]",
    "overrides: [{ value: d, mode: shadow }]",
    "overrides: [{ value: b, quota: 1/7s }, { prefix: c, quota: 6/3s }, { cidr: 10.0.0.0/8, quota: 2/9s }]",
    "on_missing_key: skip",
    "on_missing_key: { value: b }, overrides: [{ value: b, quota: 1/7s }]",
    "cost: { header: x-cost, max: 3 }",
    "retry_after_jitter: 1h",
    "mode: shadow",
    "percent: 50",
    "candidate: { quota: 1/5s }",
    "on_limit: { action: tag }",
];

/// Options that leave traces of refused requests, or decide after the others.
const MORE_MANNERS: [&str; 6] = [
    "charge_refused: true",
    "overflow: { quota: 2/9s, priority_header: { x-priority: low } }",
    "soft_limits: [{ above: 1, on_limit: { status: 420 } }]",
    "penalty: { strikes: 2, within: 9s, for: [3s] }",
    "count: [401], count_reserve: false",
    "count: [401], count_reserve: false, charge_refused: true",
];

const ALGORITHMS: [&str; 8] = [
    "gcra",
    "token_bucket, burst: 4",
    "fixed_window",
    "fixed_window, start: first_request",
    "fixed_window, start: staggered",
    "sliding_window",
    "sliding_window, oldest: whole",
    "sliding_log",
];

#[derive(Clone, Debug)]
struct Asked {
    after_millis: u64,
    method: &'static str,
    from: &'static str,
    fields: Vec<(&'static str, &'static str)>,
}

fn any_request() -> impl Strategy<Value = Asked> {
    let field = prop_oneof![
        3 => prop_oneof![Just("a"), Just("b"), Just("c"), Just("d")].prop_map(|key| ("x-key", key)),
        1 => Just(("x-plan", "gold")),
        1 => prop_oneof![Just("2"), Just("9"), Just("two")].prop_map(|cost| ("x-cost", cost)),
    ];
    (
        prop_oneof![Just(0), 1..3_000_u64],
        prop_oneof![Just("GET"), Just("POST")],
        prop_oneof![Just("192.0.2.1"), Just("10.0.0.1")],
        proptest::collection::vec(field, 0..3),
    )
        .prop_map(|(after_millis, method, from, fields)| Asked {
            after_millis,
            method,
            from,
            fields,
        })
}

/// A policy with any of the options.
fn any_policy() -> impl Strategy<Value = String> {
    policy_with(&MANNERS)
}

/// A policy with any of these options.
fn policy_with(manners: &'static [&'static str]) -> impl Strategy<Value = String> {
    let algorithm = proptest::sample::select(&ALGORITHMS[..]);
    let manner = proptest::sample::select(manners);
    (1..5_u32, 1..9_u32, algorithm, manner).prop_map(|(limit, seconds, algorithm, manner)| {
        let quota = format!("quota: {limit}/{seconds}s");
        let has_tiers = ["gcra", "token_bucket, burst: 4"].contains(&algorithm);
        let is_possible = match manner.split_once(':') {
            Some(("overflow", _)) => has_tiers,
            Some(("soft_limits", _)) => limit > 1,
            _ => true,
        };
        let manner = if is_possible { manner } else { "" };
        format!("{{ key: header:x-key, algorithm: {algorithm}, {quota}, {manner} }}")
    })
}

fn snapshot(policies: &[String]) -> Arc<Ruleset> {
    let limits = policies.join(", ");
    let text = format!("routes: [{{ upstream: echo, limits: [{limits}] }}]");
    let loaded = config::parse("test.yaml", text, &|_| None);
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    let rules = config::compile_rules(&loaded).unwrap_or_else(|report| panic!("{report}"));
    let surroundings = BuildContext {
        workers: 1,
        registry: Registry::default(),
        clock: Arc::new(Clock::manual(Timestamp::EPOCH)),
        secret: Secret::from_key([1, 2]),
    };
    PreparedRuleset::new(rules, &surroundings, None).migrate_buckets(Timestamp::EPOCH)
}

/// The outcome of a request: whether it was allowed, and the remaining units of each policy by
/// name.
type Outcome = (bool, Vec<(String, bool, u64)>);

fn outcome(snapshot: &Ruleset, asked: &Asked, now: Timestamp) -> Outcome {
    let request = request(asked);
    let from: IpAddr = asked.from.parse().expect("an address");
    let outcome = dry_run(
        snapshot,
        &request,
        from,
        now,
        Recorded::default(),
        |rehearsal| {
            let decisions = rehearsal.decisions().map(|(limit, _, decision)| {
                (
                    limit.policy.name.to_string(),
                    decision.is_admitted(),
                    decision.remaining,
                )
            });
            (!rehearsal.is_refused(), decisions.collect())
        },
    );
    outcome.unwrap_or((false, Vec::new()))
}

fn request(asked: &Asked) -> crate::http::message::Request<()> {
    let mut request = Request::builder()
        .method(asked.method)
        .uri("/")
        .header("host", "a");
    for (name, value) in &asked.fields {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request").into()
}

/// The outcome that `explain` tells of a request; `None` where the request has no number as its cost.
fn explained(snapshot: &Ruleset, asked: &Asked, now: Timestamp) -> Option<Outcome> {
    let from = asked.from.parse().expect("an address");
    let pending = Explanation::begin(
        snapshot,
        &snapshot.store,
        request(asked).map(|()| String::new()),
        from,
        None,
        now,
    );
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let report = runtime.expect("a runtime").block_on(pending.conclude());
    let keyless = |reason: &str| ["key_missing", "key_several"].contains(&reason);
    let is_keyless = report.limits.iter().any(|limit| {
        limit.reason.as_deref().is_some_and(keyless) && limit.decision.as_deref() == Some("limited")
    });
    let decided = report.limits.iter().filter_map(|limit| {
        let (name, remaining) = (limit.policy.to_string(), limit.remaining?);
        let is_tag = limit.action == "tag";
        let word = limit.decision.as_deref();
        let is_admitted = matches!(word, Some("allowed" | "overflowed"));
        (!is_keyless && !is_tag).then_some((name, is_admitted, remaining))
    });
    let mut decided: Vec<_> = decided.collect();
    decided.sort();
    match report.answer.decision {
        AnswerKind::Answered => None,
        answer => Some((answer != AnswerKind::Limited, decided)),
    }
}

/// The requests at their instants, with the outcome of each.
fn run(policies: &[String], requests: &[(Timestamp, Asked)]) -> Vec<Outcome> {
    let snapshot = snapshot(policies);
    let outcomes = requests
        .iter()
        .map(|(now, asked)| outcome(&snapshot, asked, *now));
    outcomes.collect()
}

/// The requests with their instants.
fn timed(requests: Vec<Asked>) -> Vec<(Timestamp, Asked)> {
    let mut now = Timestamp::from_micros(1_700_000_000_000_000);
    let requests = requests.into_iter().map(|asked| {
        now = now.saturating_add_micros(asked.after_millis * 1_000);
        (now, asked)
    });
    requests.collect()
}

/// The place of the policy in a name such as `any#1` or `any#1/candidate`.
fn index(name: &str) -> usize {
    let name = name.trim_end_matches("/candidate");
    let place = name
        .rsplit('#')
        .next()
        .and_then(|digits| digits.parse().ok());
    place.expect("it is called after its place")
}

/// A policy that skips every request, and keeps the others from the short way of plain limits.
const SKIPPED: &str = "{ key: header:x-none, quota: 1/1s, on_missing_key: skip, count: [500] }";

proptest! {
    /// `explain` says what the request meets that comes at the same instant.
    #[test]
    fn explain_says_what_happens(
        policies in proptest::collection::vec(
            prop_oneof![any_policy(), policy_with(&MORE_MANNERS)],
            1..4,
        ),
        requests in proptest::collection::vec(any_request(), 1..30),
    ) {
        let snapshot = snapshot(&policies);
        for (now, asked) in timed(requests) {
            let explained = explained(&snapshot, &asked, now);
            let (is_admitted, mut told) = outcome(&snapshot, &asked, now);
            told.sort();
            if let Some(explained) = explained {
                prop_assert_eq!(explained, (is_admitted, told), "{:?}", asked);
            }
        }
    }

    /// The short way decides as the long one.
    #[test]
    fn a_policy_that_skips_all_requests_changes_no_outcome(
        policies in proptest::collection::vec(any_policy(), 1..4),
        requests in proptest::collection::vec(any_request(), 1..60),
    ) {
        let (requests, skipped) = (timed(requests), [SKIPPED.to_owned()]);
        let long = [&policies[..], &skipped].concat();
        prop_assert_eq!(run(&policies, &requests), run(&long, &requests));
    }

    /// A refused request leaves no trace: without the refused ones, all others have the same
    /// outcome.
    #[test]
    fn a_refused_request_is_charged_to_none_of_its_policies(
        policies in proptest::collection::vec(any_policy(), 1..4),
        requests in proptest::collection::vec(any_request(), 1..60),
    ) {
        let timed = timed(requests);
        let all = run(&policies, &timed);
        let (admitted, told): (Vec<_>, Vec<_>) = timed.into_iter().zip(all).filter(|(_, (admitted, _))| *admitted).unzip();
        prop_assert_eq!(run(&policies, &admitted), told);
    }

    /// Shadowed policies change no outcome of the others. Each counts what it would do alone on the
    /// requests that the others allow.
    #[test]
    fn a_shadowed_policy_changes_nothing_and_counts_what_it_would_do(
        enforced in proptest::collection::vec(any_policy(), 1..3),
        shadows in proptest::collection::vec(any_policy(), 1..3),
        requests in proptest::collection::vec(any_request(), 1..60),
    ) {
        let shadows: Vec<_> = shadows.into_iter().filter(|policy| !["mode", "percent", "candidate"].iter().any(|word| policy.contains(word))).collect();
        let in_shadow: Vec<_> = shadows.iter().map(|policy| policy.replacen("{ ", "{ mode: shadow, ", 1)).collect();
        let timed = timed(requests);
        let alone = run(&enforced, &timed);
        let together = run(&[enforced.clone(), in_shadow].concat(), &timed);
        let own = |(admitted, told): &Outcome| {
            let told = told.iter().filter(|(name, ..)| index(name) < enforced.len());
            (*admitted, told.cloned().collect::<Vec<_>>())
        };
        prop_assert_eq!(together.iter().map(own).collect::<Vec<_>>(), alone);

        for (place, shadow) in shadows.iter().enumerate() {
            let place = enforced.len() + place;
            let (met, said): (Vec<_>, Vec<_>) = timed.iter().zip(&together)
                .filter(|(_, (admitted, _))| *admitted)
                .map(|(timed, (_, told))| {
                    let said = told.iter().find(|(name, ..)| index(name) == place);
                    (timed.clone(), said.map(|(_, admits, remaining)| (*admits, *remaining)))
                })
                .unzip();
            let by_itself = run(std::slice::from_ref(shadow), &met);
            let by_itself: Vec<_> = by_itself.iter().map(|(_, told)| told.first().map(|(_, admits, remaining)| (*admits, *remaining))).collect();
            prop_assert_eq!(by_itself, said);
        }
    }
}
