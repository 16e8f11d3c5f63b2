//! `sluicegate replay --decisions` beside plain models of the algorithms, written from their definitions: all
//! that was ever charged is kept, and everything is counted anew for each request.

mod support;

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use support::replay::Replay;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Gcra,
    TokenBucket,
    Clock,
    FirstRequest,
    Weighted,
    Whole,
    Ignored,
}

const KINDS: [Kind; 7] = [
    Kind::Gcra,
    Kind::TokenBucket,
    Kind::Clock,
    Kind::FirstRequest,
    Kind::Weighted,
    Kind::Whole,
    Kind::Ignored,
];

/// A policy; times in microseconds.
#[derive(Clone, Debug)]
struct Policy {
    kind: Kind,
    limit: u64,
    window: u64,
    burst: u64,
    cost: u64,
}

/// Units that were charged to one key, and when.
type Charges = Vec<(u64, u64)>;

impl Policy {
    /// The most units that can ever be taken at once.
    fn most(&self) -> u64 {
        match self.kind {
            _ if self.limit == 0 => 0,
            Kind::Gcra | Kind::TokenBucket => self.burst,
            _ => self.limit,
        }
    }

    /// The whole units that can be taken at `now`, by the definition, from all that was ever charged.
    fn available(&self, charges: &[(u64, u64)], now: u64) -> u64 {
        let (limit, window) = (self.limit, self.window);
        let in_window = |number: u64| -> u64 {
            let counted = charges.iter().filter(|(time, _)| time / window == number);
            counted.map(|(_, cost)| cost).sum()
        };
        let current = in_window(now / window);
        match self.kind {
            // A bucket of tokens, each in `window` parts, of which `limit` come back a microsecond.
            Kind::Gcra | Kind::TokenBucket => {
                let whole = u128::from(self.most() * window);
                let refilled = |level: u128, time: u64| {
                    whole.min(level + u128::from(time) * u128::from(limit))
                };
                let (mut level, mut last) = (whole, 0);
                for (time, cost) in charges {
                    level = refilled(level, time - last) - u128::from(cost * window);
                    last = *time;
                }
                (refilled(level, now - last) / u128::from(window)) as u64
            }
            Kind::Clock => limit - current,
            Kind::FirstRequest => {
                let (mut end, mut count) = (0, 0);
                for (time, cost) in charges {
                    if *time >= end {
                        (end, count) = (time + window, 0);
                    }
                    count += cost;
                }
                if now < end { limit - count } else { limit }
            }
            Kind::Weighted | Kind::Whole | Kind::Ignored => {
                let covered = match self.kind {
                    Kind::Weighted => window - now % window,
                    Kind::Whole => window,
                    _ => 0,
                };
                let used = in_window(now / window - 1) * covered + current * window;
                (limit * window).saturating_sub(used) / window
            }
        }
    }

    /// The first instant from which a request is admitted if nothing else comes: what is available only
    /// grows meanwhile.
    fn retry_at(&self, charges: &[(u64, u64)], now: u64) -> Option<u64> {
        (self.cost <= self.most()).then(|| {
            let (mut refused, mut admitted) = (now, now + 2 * self.window * self.most().max(1));
            assert!(self.available(charges, admitted) >= self.cost);
            while refused + 1 < admitted {
                let middle = refused + (admitted - refused) / 2;
                match self.available(charges, middle) >= self.cost {
                    true => admitted = middle,
                    false => refused = middle,
                }
            }
            admitted
        })
    }

    /// Decides, charges, and writes what `replay --decisions` has to say.
    fn decide(&self, charges: &mut Charges, now: u64) -> Value {
        let available = self.available(charges, now);
        if available >= self.cost {
            charges.push((now, self.cost));
            let remaining = self.available(charges, now);
            return json!({ "decision": "admit", "remaining": remaining });
        }
        let mut refused = json!({ "decision": "refuse", "remaining": available });
        if let Some(at) = self.retry_at(charges, now) {
            refused["retry_after_ms"] = number(at - now);
        }
        refused
    }

    /// As the configuration has it.
    fn written(&self) -> String {
        let (limit, window) = (self.limit, self.window / 1_000);
        let kind = match self.kind {
            Kind::Gcra => format!("gcra{}", self.written_burst()),
            Kind::TokenBucket => format!("token_bucket{}", self.written_burst()),
            Kind::Clock => "fixed_window, start: clock".to_owned(),
            Kind::FirstRequest => "fixed_window, start: first_request".to_owned(),
            Kind::Weighted => "sliding_window".to_owned(),
            Kind::Whole => "sliding_window, oldest: whole".to_owned(),
            Kind::Ignored => "sliding_window, oldest: ignored".to_owned(),
        };
        format!(
            "{{ quota: {limit}/{window}ms, cost: {}, algorithm: {kind} }}",
            self.cost
        )
    }

    fn written_burst(&self) -> String {
        match self.limit {
            0 => String::new(),
            _ => format!(", burst: {}", self.burst),
        }
    }
}

/// Milliseconds with their fraction, digit by digit.
fn number(micros: u64) -> Value {
    let text = format!("{}.{:03}", micros / 1_000, micros % 1_000);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    serde_json::from_str(text).expect("a number")
}

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    let windows = prop_oneof![
        1..=20_u64,
        Just(1_000),
        1..=5_000_u64,
        Just(60_000),
        Just(3_600_000)
    ];
    let one = |kind: Kind| {
        let limits = prop_oneof![1 => Just(0_u64), 2 => Just(1), 9 => 2..=12_u64];
        (limits, windows.clone(), 1..=12_u64, 1..=4_u64).prop_map(
            move |(limit, window, burst, cost)| {
                let window = window * 1_000;
                let policy = Policy {
                    kind,
                    limit,
                    window,
                    burst,
                    cost,
                };
                Policy {
                    cost: cost.min(policy.most()).max(1),
                    ..policy
                }
            },
        )
    };
    KINDS.map(one).to_vec()
}

/// Of each step: the gap to the one before in thousandths of the policy's window, whether that is rounded
/// to a millisecond, the policy, and the key.
fn steps() -> impl Strategy<Value = Vec<(u64, bool, usize, u8)>> {
    let gaps =
        prop_oneof![3 => Just(0_u64), 4 => 0..=200_u64, 2 => 0..=1_500_u64, 1 => Just(1_000)];
    prop::collection::vec((gaps, any::<bool>(), 0..KINDS.len(), 0..3_u8), 1..250)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn decisions_are_those_of_the_definitions(policies in policies(), steps in steps()) {
        let mut config = "routes:\n".to_owned();
        for (place, policy) in policies.iter().enumerate() {
            let policy = policy.written();
            writeln!(config, "  - {{ name: r{place}, match: {{ path: /{place} }}, upstream: echo, limits: [{policy}] }}").unwrap();
        }
        let (mut log, mut expected) = (String::new(), Vec::new());
        let mut charges = vec![[const { Vec::new() }; 3]; policies.len()];
        let mut now = 1_795_236_060_000_000;
        for (number, (gap, is_rounded, place, key)) in (1..).zip(steps) {
            now += gap * policies[place].window / 1_000;
            if is_rounded {
                now = now.next_multiple_of(1_000);
            }
            let mut decided = policies[place].decide(&mut charges[place][usize::from(key)], now);
            decided["line"] = json!(number);
            decided["policy"] = json!(format!("r{place}.0"));
            expected.push(decided);
            let (whole, below) = (now / 1_000, now % 1_000);
            writeln!(log, r#"{{"time":{whole}.{below:03},"client_ip":"2001:db8:0:{key}::1","method":"GET","path":"/{place}"}}"#).unwrap();
        }
        let decided = Replay::new(&config, &log).decisions(&[]);
        for (number, (decided, expected)) in decided.iter().zip(&expected).enumerate() {
            prop_assert_eq!(decided, expected, "step {} of\n{}\n{}", number, config, log);
        }
        prop_assert_eq!(decided.len(), expected.len());
    }
}
