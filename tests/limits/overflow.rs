//! Policies with overflow buckets, through the binary: each bucket serves requests beyond the one
//! before, at a lower priority.

use std::fmt::Write as _;
use std::thread;

use crate::support::client::{Connection, Response, get, run};
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::replay::{Replay, line};
use proptest::prelude::*;
use serde_json::{Value, json};

const TIERS: &str = "policies:
  gold:
    key: constant
    quota: 2/1h
    overflow:
      quota: 3/1h
      burst: 1
      priority_header: { x-priority: low, x-tier: 2 }
      overflow: { quota: 1/1h, priority_header: { x-priority: lowest } }
  other: { quota: 9/1h }
";

fn ask(gateway: &Gateway) -> Response {
    let request = "GET / HTTP/1.1\r\nHost: a\r\nX-Priority: high\r\nX-Tier: 1\r\n\r\n";
    Connection::open(gateway.address()).exchange(request)
}

/// A field of the request that the upstream got, from its echo.
fn sent(answer: &Response, name: &str) -> Option<String> {
    let text = answer.text();
    let field = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    field.map(str::to_owned)
}

fn decided(gateway: &Gateway, policy: &str, decision: &str) -> Option<f64> {
    gateway.metric(&format!(
        "sluicegate_limit_decisions_total{{policy=\"{policy}\",route=\"all\",decision=\"{decision}\"}}"
    ))
}

#[test]
fn a_request_beyond_one_bucket_is_charged_to_the_next_and_the_upstream_gets_its_priority() {
    let gateway = Gateway::start(&format!(
        "{TIERS}routes: [{{ name: all, upstream: echo, limits: [gold, other] }}]\n"
    ));
    let answers: Vec<_> = (0..5).map(|_| ask(&gateway)).collect();
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    let told: Vec<_> = answers[..4]
        .iter()
        .map(|answer| (sent(answer, "x-priority"), sent(answer, "x-tier")))
        .collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        told,
        [
            (None, None),
            (None, None),
            (some("low"), some("2")),
            (some("lowest"), None)
        ]
    );
    assert_eq!(
        answers[2].expect_header("ratelimit-policy"),
        "\"gold\";q=3;w=3600, \"other\";q=9;w=3600"
    );
    // The second comes back first: one of three an hour.
    let seconds: u64 = answers[4]
        .expect_header("retry-after")
        .parse()
        .expect("seconds");
    assert!((1_190..=1_200).contains(&seconds), "{seconds}");
    for (policy, decision, count) in [
        ("gold", "allowed", 2.0),
        ("gold", "overflowed", 2.0),
        ("gold", "limited", 1.0),
        ("other", "allowed", 4.0),
    ] {
        assert_eq!(
            decided(&gateway, policy, decision),
            Some(count),
            "{policy} {decision}"
        );
    }
    assert_eq!(decided(&gateway, "other", "limited"), Some(0.0));
}

#[test]
fn parallel_requests_are_charged_exactly() {
    let gateway = Gateway::start(
        "policies: { tiers: { key: constant, algorithm: token_bucket, capacity: 7, refill: 1 per 1h,
    overflow: { capacity: 5, refill: 1 per 1h, priority_header: { x-priority: low } } } }
routes: [{ name: all, upstream: echo, limits: [tiers] }]
",
    );
    let answers: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..40).map(|_| scope.spawn(|| ask(&gateway))).collect();
        let each = threads.into_iter();
        each.map(|thread| thread.join().expect("an answer"))
            .collect()
    });
    let admitted = answers.iter().filter(|answer| answer.status == 200);
    let (low, high): (Vec<_>, Vec<_>) =
        admitted.partition(|answer| sent(answer, "x-priority").is_some());
    assert_eq!((high.len(), low.len()), (7, 5));
}

#[test]
fn each_dscp_has_its_own_connections() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "workers: 1
policies: {{ tiers: {{ key: constant, quota: 2/1h, overflow: {{ quota: 2/1h, dscp: 8 }} }} }}
routes: [{{ upstream: \"{}\", limits: [tiers] }}]
",
        origin.url()
    ));
    let statuses: Vec<_> = (0..5).map(|_| get(gateway.address(), "/").status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    assert_eq!(origin.connections(), 2, "two requests over each");
}

#[test]
fn a_reload_keeps_the_used_units_of_each_bucket() {
    let config = |second: u32| {
        format!(
            "policies: {{ tiers: {{ key: constant, quota: 1/1h, overflow: {{ quota: {second}/1h, priority_header: {{ x-priority: low }} }} }} }}
routes: [{{ name: all, upstream: echo, limits: [tiers] }}]
"
        )
    };
    let gateway = Gateway::start(&config(1));
    let ask = || {
        let answer = ask(&gateway);
        (answer.status, sent(&answer, "x-priority"))
    };
    let low = || (200, Some("low".to_owned()));
    assert_eq!([ask(), ask()], [(200, None), low()]);
    assert_eq!(ask().0, 429);
    gateway.reload(&config(2));
    assert_eq!(ask(), low());
    assert_eq!(ask().0, 429);
}

#[test]
fn a_shadowed_policy_charges_each_bucket_and_changes_no_request() {
    let config = format!("{TIERS}routes: [{{ name: a, upstream: echo, limits: [gold] }}]\n");
    let config = config.replace("key: constant", "key: constant\n    mode: shadow");
    let log = line("1000", "/", "").repeat(6);
    let decided = Replay::new(&config, log).decisions(&[]);
    let shadowed: Vec<_> = decided
        .iter()
        .map(|one| one["shadowed_by"].is_array())
        .collect();
    assert_eq!(shadowed, [false, false, false, false, true, true]);
    assert!(decided.iter().all(|one| one.get("overflowed").is_none()));
}

#[test]
fn explain_names_the_charged_bucket() {
    let gateway = Gateway::start(
        "policies: { tiers: { quota: 2/1h, cost: { header: x-cost, max: 9 }, overflow: { quota: 5/1h } } }
routes: [{ upstream: echo, limits: [tiers] }]
",
    );
    let config = gateway.config_path();
    let config = config.to_str().expect("a path of ours");
    let explain = |cost: &str| {
        let binary = env!("CARGO_BIN_EXE_sluicegate");
        let field = format!("x-cost: {cost}");
        let arguments = [
            "explain",
            "GET",
            "http://a/",
            "--config",
            config,
            "-H",
            &field,
        ];
        run(binary, &arguments).stdout
    };
    assert!(!explain("2").contains("  bucket"));
    let overflown = explain("4");
    let said = "limit     tiers (gcra, 5/1h)\n";
    assert!(overflown.contains(said), "{overflown}");
    let said = "  bucket  2, at a lower priority\n  cost    4\n  says    overflowed: 1 left";
    assert!(overflown.contains(said), "{overflown}");
    assert!(explain("6").contains("answer    limited by tiers"));
}

/// A bucket of `burst` units, one of which returns each `period` microseconds; used units are kept
/// as time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    period: u64,
    burst: u64,
    whole_at: u64,
}

impl Bucket {
    /// The first instant from `now` on at which a unit is available.
    fn free_at(&self, now: u64) -> u64 {
        let most = self.burst * self.period;
        now.max((self.whole_at + self.period).saturating_sub(most))
    }

    fn take(&mut self, now: u64) {
        self.whole_at = self.whole_at.max(now) + self.period;
    }
}

fn buckets() -> impl Strategy<Value = Bucket> {
    (1..=40_u64, 1..=4_u64).prop_map(|(period, burst)| Bucket {
        period: period * 1_000,
        burst,
        whole_at: 0,
    })
}

fn written(buckets: &[Bucket]) -> String {
    let [first, rest @ ..] = buckets else {
        return String::new();
    };
    let mut text = format!(
        "quota: 1/{}ms, burst: {}",
        first.period / 1_000,
        first.burst
    );
    if !rest.is_empty() {
        write!(text, ", overflow: {{ {} }}", written(rest)).expect("a text");
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Beside another policy, only the bucket that pays is charged, once, and the retry is exact.
    #[test]
    fn the_first_bucket_with_enough_units_is_charged(
        mut tiers in prop::collection::vec(buckets(), 1..=3), mut other in buckets(),
        gaps in prop::collection::vec(0..=30_u64, 1..200),
    ) {
        let config = format!(
            "routes: [{{ name: a, upstream: echo, limits: [{{ {} }}, {{ {} }}] }}]\n",
            written(&tiers), written(std::slice::from_ref(&other)),
        );
        let (mut log, mut expected) = (String::new(), Vec::new());
        let mut now = 1_000_000_000;
        for gap in gaps {
            now += gap * 1_000;
            log.push_str(&line(&(now / 1_000).to_string(), "/", ""));
            let pays = tiers.iter_mut().position(|tier| tier.free_at(now) == now);
            let soonest = tiers.iter().map(|tier| tier.free_at(now)).min().expect("a tier");
            match (pays, other.free_at(now)) {
                (Some(tier), free_at) if free_at == now => {
                    tiers[tier].take(now);
                    other.take(now);
                    expected.push(("allowed", (tier > 0).then(|| json!(["a#0"])), None));
                }
                (_, free_at) => {
                    let wait = free_at.max(soonest) - now;
                    expected.push(("limited", None, Some(wait as f64 / 1_000.0)));
                }
            }
        }
        let decided = Replay::new(&config, &log).decisions(&[]);
        let told: Vec<_> = decided
            .iter()
            .map(|one| {
                let ruling = one["decision"].as_str().expect("a decision");
                (ruling, one.get("overflowed").cloned(), one.get("retry_after_ms").and_then(Value::as_f64))
            })
            .collect();
        prop_assert_eq!(told, expected, "{}\n{}", config, log);
    }
}
