//! Header fields never contradict each other, for all algorithms and styles.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use readable::time::parse_rfc_3339;

use super::*;
use crate::limiter::algorithms::{
    Concurrency, FixedWindow, Gcra, IntervalRefill, LeakyBucket, OldestPart, SlidingCounters,
    SlidingLog, SlidingWindow, Start,
};
use crate::limiter::charge_all;
use crate::limiter::{Fingerprint, Quota, Verdict};
use crate::store::{Charge, OnFull, Table};

const START: Timestamp = Timestamp::from_micros(1_000_000_000);

#[test]
fn durations_are_written_as_openai_writes_them() {
    let text = |milliseconds: u64| go_duration(milliseconds * 1_000);
    assert_eq!(text(0), "0ms");
    assert_eq!(text(120), "120ms");
    assert_eq!(text(999), "999ms");
    assert_eq!(text(1_000), "1s");
    assert_eq!(text(8_640), "8.64s");
    assert_eq!(text(59_001), "59.001s");
    assert_eq!(text(86_400), "1m26.4s");
    assert_eq!(text(360_000), "6m0s");
    assert_eq!(text(3_600_000), "1h0m0s");
}

fn quotas() -> impl Strategy<Value = Quota> {
    let windows = prop_oneof![
        Just(500_000_u64),
        Just(1_000_000),
        Just(1_500_000),
        Just(60_000_000),
        1_000_u64..10_000_000,
    ];
    (0..40_u32, windows).prop_map(|(limit, window)| {
        Quota::new(limit, Duration::from_micros(window)).expect("a window within bounds")
    })
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    (quotas(), 1..100_u32, 0..9_u8).prop_map(|(quota, other, kind)| {
        let window = quota.window();
        match kind {
            0 => Algorithm::Gcra(Gcra::new(quota, other).expect("a burst")),
            1 => Algorithm::TokenBucket(Gcra::new(quota, other).expect("a burst")),
            2 => Algorithm::IntervalRefill(
                IntervalRefill::new(quota.limit(), other, window).expect("a refill"),
            ),
            3 => Algorithm::LeakyBucket(
                LeakyBucket::new(quota, other, Duration::from_millis(1_700), other / 3)
                    .expect("a line"),
            ),
            4 => Algorithm::FixedWindow(FixedWindow::new(quota, Start::FirstRequest)),
            5 => Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Weighted)),
            6 => match SlidingCounters::new(quota, 4, OldestPart::Weighted) {
                Ok(counters) => Algorithm::SlidingCounters(counters),
                Err(_) => Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Ignored)),
            },
            7 => Algorithm::SlidingLog(SlidingLog::new(quota).expect("a log")),
            _ => Algorithm::Concurrency(Concurrency::new(quota.limit(), window)),
        }
    })
}

/// The fields of a response, by name.
fn written(
    verdict: &Verdict,
    facts: &AdvertisedPolicy,
    algorithm: &Algorithm,
    now: Timestamp,
) -> SentFields {
    let prefixed = |style, prefix| StyleFields::new(style, Some(&HeaderName::from_static(prefix)));
    let styles = HeaderStyles::new(
        vec![
            StyleFields::new(Style::Ietf, None),
            StyleFields::new(Style::Draft6, None),
            prefixed(Style::XRateLimit, "plain"),
            prefixed(Style::GitHub, "gh"),
            prefixed(Style::OpenAi, "ai"),
            prefixed(Style::Anthropic, "an"),
        ],
        Exposure::Unchanged,
    );
    let decision = verdict.decision().expect("a decision");
    let applied = AppliedPolicy {
        policy: facts,
        own: None,
        algorithm,
        decision,
    };
    let mut headers = Headers::new();
    write(&styles, &[applied], 0, now, &mut headers);
    if let Outcome::Refuse { retry_at: Some(at) } = decision.outcome {
        write_retry_after(&styles, at, now, &mut headers);
    }
    let mut sent: HashMap<String, String> = HashMap::new();
    for (name, value) in headers.iter() {
        let text = String::from_utf8_lossy(value).into_owned();
        sent.insert(name.as_str().to_owned(), text);
    }
    let applied = AppliedPolicy {
        policy: facts,
        own: None,
        algorithm,
        decision,
    };
    let mut headers = Headers::new();
    write_draft7(&applied, now, &mut headers);
    let text = headers.get(RATELIMIT).expect("a field");
    let text = String::from_utf8_lossy(text).into_owned();
    sent.insert("draft-7".to_owned(), text);
    SentFields(sent)
}

#[derive(Debug)]
struct SentFields(HashMap<String, String>);

impl SentFields {
    fn number(&self, name: &str) -> Option<u64> {
        Some(self.0.get(name)?.parse().expect("a number"))
    }

    /// The number after `name=` in a list of parameters.
    fn parameter(&self, field: &str, name: &str) -> Option<u64> {
        let parts = self.0.get(field)?.split([';', ',']);
        let mut values = parts.filter_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
        values
            .next()
            .map(|digits| digits.parse().expect("a number"))
    }

    fn check(&self, algorithm: &Algorithm, decision: &Decision, now: Timestamp) {
        if algorithm.is_concurrency() {
            let names = self.0.keys().filter(|name| name.contains('-'));
            let older = names.filter(|name| name.ends_with("limit") || name.contains("limit-req"));
            assert_eq!(older.count(), 0, "no rate: {self:?}");
            let remaining = self.parameter("ratelimit", "r").expect("a number");
            let limit = algorithm.capacity();
            return self.check_ietf(algorithm, decision, limit, remaining);
        }
        let [limit, remaining] = ["limit", "remaining"].map(|name| {
            let value = self.number(&format!("ratelimit-{name}")).expect("a number");
            assert_eq!(
                self.number(&format!("plain-{name}")),
                Some(value),
                "{self:?}"
            );
            assert_eq!(self.number(&format!("gh-{name}")), Some(value), "{self:?}");
            let openai = self.number(&format!("ai-{name}-requests"));
            assert_eq!(openai, Some(value), "{self:?}");
            let anthropic = self.number(&format!("an-requests-{name}"));
            assert_eq!(anthropic, Some(value), "{self:?}");
            assert_eq!(self.parameter("draft-7", name), Some(value), "{self:?}");
            value
        });
        assert_eq!(limit, algorithm.capacity(), "{self:?}");
        assert!(remaining <= limit, "{self:?}");
        let used = self.number("gh-used").expect("a number");
        assert_eq!(used, limit - remaining, "{self:?}");

        let reset = self.number("ratelimit-reset");
        assert_eq!(reset, self.number("plain-reset"), "{self:?}");
        assert_eq!(reset, self.parameter("draft-7", "reset"), "{self:?}");
        assert_eq!(reset.is_some(), self.0.contains_key("gh-reset"), "{self:?}");
        let openai = self.0.contains_key("ai-reset-requests");
        assert_eq!(reset.is_some(), openai, "{self:?}");
        assert_eq!(reset.is_some(), limit > 0, "a quota of 0: {self:?}");
        if let (Some(reset), true) = (reset, decision.is_admitted()) {
            assert_eq!(reset == 0, used == 0, "{self:?}");
        }
        if let (Some(reset), Some(at)) = (reset, self.number("gh-reset")) {
            let now = now.as_micros().div_ceil(1_000_000);
            assert!((now..=now + reset).contains(&at), "{self:?}");
            let anthropic = parse_rfc_3339(&self.0["an-requests-reset"]).expect("an instant");
            assert_eq!(anthropic.as_micros(), at * 1_000_000, "{self:?}");
        }
        self.check_ietf(algorithm, decision, limit, remaining);
        if let Some(retry_after) = self.number("retry-after") {
            assert_eq!(reset, Some(retry_after), "{self:?}");
            let more = self.parameter("ratelimit", "t");
            let more = more.filter(|_| !algorithm.is_concurrency());
            assert!(more.is_none_or(|more| more <= retry_after), "{self:?}");
        }
    }

    fn check_ietf(&self, algorithm: &Algorithm, decision: &Decision, limit: u64, remaining: u64) {
        assert_eq!(
            self.parameter("ratelimit", "r"),
            Some(remaining),
            "{self:?}"
        );
        let quota = self.parameter("ratelimit-policy", "q").expect("a quota");
        assert!(quota >= limit && (quota > 0) == (limit > 0), "{self:?}");
        let window = self.parameter("ratelimit-policy", "w");
        if let (Some((units, micros)), true) = (algorithm.rate(), limit > 0) {
            let window = window.expect("a window of this size");
            assert!(window > 0, "{self:?}");
            let exactly = u128::from(units) * u128::from(window) * 1_000_000;
            assert_eq!(u128::from(quota) * u128::from(micros), exactly, "{self:?}");
        }
        if decision.remaining < decision.capacity && !algorithm.is_concurrency() {
            let more = self.parameter("ratelimit", "t").expect("an instant");
            assert!(more > 0, "{self:?}");
        }
        if limit == 0 {
            assert_eq!(self.parameter("ratelimit", "t"), None, "{self:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn fields_agree_with_each_other_in_all_styles(
        algorithm in algorithms(),
        requests in prop::collection::vec((0..3_000_000_u64, 0..6_u32, 0..8_u8), 1..60),
    ) {
        let table = Table::new("test", algorithm.clone(), 16, OnFull::Forget);
        let facts = AdvertisedPolicy::new("test", &algorithm, QuotaUnit::Requests);
        let mut now = START;
        for (gap, cost, ban) in requests {
            now = now.saturating_add_micros(gap);
            let charge = Charge::new(&table, Fingerprint::from_bits(7), cost);
            let mut verdict = charge_all(&[charge], now);
            let is_banned = ban == 0;
            if is_banned {
                verdict.ban(0, now.saturating_add(Duration::from_secs(5)));
            }
            let decision = *verdict.decision().expect("a decision");
            let sent = written(&verdict, &facts, &algorithm, now);
            sent.check(&algorithm, &decision, now);
            if is_banned {
                let more = sent.parameter("ratelimit", "t");
                prop_assert!(algorithm.capacity() == 0 || more.is_some_and(|more| more >= 5), "{:?}", sent);
                if let Some(retry_after) = sent.number("retry-after") {
                    prop_assert_eq!(more, Some(retry_after));
                }
            }
        }
    }
}
