//! Decisions of `sluicegate replay --decisions` beside plain models of the algorithms, written from
//! their definitions. A model keeps every charge, and counts all of them anew for each request.

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::replay::Replay;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Gcra,
    TokenBucket,
    Clock,
    FirstRequest,
    Weighted,
    Whole,
    Ignored,
    Staggered,
    Day,
    Month,
    Steps,
    Log,
    Parts,
    PartsWhole,
    PartsIgnored,
    Leaky,
}

const KINDS: [Kind; 16] = [
    Kind::Gcra,
    Kind::TokenBucket,
    Kind::Clock,
    Kind::FirstRequest,
    Kind::Weighted,
    Kind::Whole,
    Kind::Ignored,
    Kind::Staggered,
    Kind::Day,
    Kind::Month,
    Kind::Steps,
    Kind::Log,
    Kind::Parts,
    Kind::PartsWhole,
    Kind::PartsIgnored,
    Kind::Leaky,
];

/// The numbers of parts of windows.
const PARTS: u64 = 6;

/// Keys of a history.
const KEYS: u8 = 3;

/// A policy; times in microseconds.
#[derive(Clone, Debug)]
struct Policy {
    kind: Kind,
    limit: u64,
    window: u64,
    burst: u64,
    cost: u64,
}

/// The charges of one key: units and instants.
type Charges = Vec<(u64, u64)>;

const DAY: u64 = 86_400_000_000;

impl Policy {
    /// The most units that are ever available at once.
    fn most(&self) -> u64 {
        match self.kind {
            Kind::Steps => self.burst,
            _ if self.limit == 0 => 0,
            Kind::Gcra | Kind::TokenBucket => self.burst,
            Kind::Leaky => 1 + self.places(),
            _ => self.limit,
        }
    }

    /// The number of parts of the window.
    fn parts(&self) -> u64 {
        match self.kind {
            Kind::Parts | Kind::PartsWhole | Kind::PartsIgnored => PARTS,
            _ => 1,
        }
    }

    /// The most requests that wait: the places of a queue of `burst`, and at most as many as leave
    /// within a window.
    fn places(&self) -> u64 {
        self.burst.min(self.limit)
    }

    /// The number of requests of a burst without a delay.
    fn passing(&self) -> u64 {
        self.burst % 3
    }

    /// The delay of the last of `units` that enter the queue at `now`, in fractions of a
    /// microsecond; the limit is the denominator.
    fn wait(&self, charges: &[(u64, u64)], now: u64, units: u64) -> u64 {
        let mut last = None::<u64>;
        for (time, cost) in charges.iter().copied().chain([(now, units)]) {
            for _ in 0..cost {
                let time = time * self.limit;
                last = Some(last.map_or(time, |last| time.max(last + self.window)));
            }
        }
        last.map_or(0, |last| last.saturating_sub(now * self.limit))
    }

    /// The number of tokens that return at once.
    fn refill(&self) -> u64 {
        self.limit.max(1)
    }

    /// The day on which months begin.
    fn anchor(&self) -> u64 {
        19 + self.burst
    }

    /// The whole units available at `now`, by the definition, from all charges.
    fn available(&self, charges: &[(u64, u64)], now: u64) -> u64 {
        let counted = |counts: &dyn Fn(u64) -> bool| -> u64 {
            let counted = charges.iter().filter(|(time, _)| counts(*time));
            counted.map(|(_, cost)| cost).sum()
        };
        let (limit, window) = (self.limit, self.window);
        match self.kind {
            Kind::Gcra | Kind::TokenBucket => self.trickled(charges, now),
            Kind::Steps => self.refilled(charges, now),
            Kind::Leaky => {
                let fits =
                    |units: &u64| self.wait(charges, now, *units) <= self.places() * self.window;
                (1..=self.most()).take_while(fits).count() as u64
            }
            Kind::Clock | Kind::Staggered => limit - counted(&|time| time / window == now / window),
            Kind::FirstRequest => self.limit - self.in_window_of_its_own(charges, now),
            Kind::Day => limit - counted(&|time| Local::at(time).day == Local::at(now).day),
            Kind::Month => {
                let month = |time| Local::at(time).month_from(self.anchor());
                limit - counted(&|time| month(time) == month(now))
            }
            Kind::Log => limit - counted(&|time| time + window > now),
            Kind::Weighted
            | Kind::Whole
            | Kind::Ignored
            | Kind::Parts
            | Kind::PartsWhole
            | Kind::PartsIgnored => {
                let (parts, part) = (self.parts(), window / self.parts());
                let covered = match self.kind {
                    Kind::Weighted | Kind::Parts => part - now % part,
                    Kind::Whole | Kind::PartsWhole => part,
                    _ => 0,
                };
                let oldest = counted(&|time| time / part == now / part - parts);
                let others = counted(&|time| time / part > now / part - parts);
                (limit * part).saturating_sub(oldest * covered + others * part) / part
            }
        }
    }

    /// A bucket of tokens in units of 1/`window`; `limit` of these return each microsecond.
    fn trickled(&self, charges: &[(u64, u64)], now: u64) -> u64 {
        let whole = u128::from(self.most() * self.window);
        let refilled =
            |level: u128, time: u64| whole.min(level + u128::from(time) * u128::from(self.limit));
        let (mut level, mut last) = (whole, 0);
        for (time, cost) in charges {
            level = refilled(level, time - last) - u128::from(cost * self.window);
            last = *time;
        }
        (refilled(level, now - last) / u128::from(self.window)) as u64
    }

    /// A bucket of tokens that is refilled in steps once it is no longer full.
    fn refilled(&self, charges: &[(u64, u64)], now: u64) -> u64 {
        let (mut tokens, mut next) = (self.burst, 0);
        let asked = charges.iter().copied().chain([(now, 0)]);
        for (time, cost) in asked {
            while tokens < self.burst && next <= time {
                tokens = self.burst.min(tokens + self.refill());
                next += self.window;
            }
            if tokens == self.burst {
                next = time + self.window;
            }
            tokens -= cost;
        }
        tokens
    }

    /// The count of a window that began with the first of its requests.
    fn in_window_of_its_own(&self, charges: &[(u64, u64)], now: u64) -> u64 {
        let (mut end, mut count) = (0, 0);
        for (time, cost) in charges {
            if *time >= end {
                (end, count) = (time + self.window, 0);
            }
            count += cost;
        }
        if now < end { count } else { 0 }
    }

    /// The first instant from which a request is admitted if no other comes: the available units
    /// only grow meanwhile.
    fn retry_at(&self, charges: &[(u64, u64)], now: u64) -> Option<u64> {
        (self.cost <= self.most()).then(|| {
            let (mut refused, mut admitted) = (now, now + 2 * self.window * self.most().max(1));
            assert!(self.available(charges, admitted) >= self.cost);
            while refused + 1 < admitted {
                let middle = refused + (admitted - refused) / 2;
                if self.available(charges, middle) >= self.cost {
                    admitted = middle
                } else {
                    refused = middle
                }
            }
            admitted
        })
    }

    /// Decides, charges, and writes the line of `replay --decisions`.
    fn decide(&self, charges: &mut Charges, now: u64) -> Value {
        let available = self.available(charges, now);
        if available >= self.cost && self.most() > 0 {
            let wait = self.wait(charges, now, self.cost);
            charges.push((now, self.cost));
            let remaining = self.available(charges, now);
            let wait = wait.saturating_sub(self.passing() * self.window);
            return match self.kind {
                Kind::Leaky if wait > 0 => {
                    let delay = number(wait.div_ceil(self.limit));
                    json!({ "decision": "delayed", "remaining": remaining, "delay_ms": delay })
                }
                _ => json!({ "decision": "allowed", "remaining": remaining }),
            };
        }
        let mut refused = json!({ "decision": "limited", "remaining": available });
        if let Some(at) = self.retry_at(charges, now) {
            refused["retry_after_ms"] = number(at - now);
        }
        refused
    }

    /// The policy in YAML.
    fn written(&self) -> String {
        let (limit, window) = (self.limit, self.window / 1_000);
        let amount = match self.kind {
            Kind::Day => format!("quota: {limit}/1d"),
            Kind::Month => format!("quota: {limit}/1mo"),
            Kind::Steps => format!(
                "capacity: {}, refill: {} per {window}ms",
                self.burst,
                self.refill()
            ),
            _ => format!("quota: {limit}/{window}ms"),
        };
        let kind = match self.kind {
            Kind::Gcra => format!("gcra{}", self.written_burst()),
            Kind::TokenBucket => format!("token_bucket{}", self.written_burst()),
            Kind::Steps => "token_bucket".to_owned(),
            Kind::Clock => "fixed_window, start: clock".to_owned(),
            Kind::FirstRequest => "fixed_window, start: first_request".to_owned(),
            Kind::Staggered => "fixed_window, start: staggered".to_owned(),
            Kind::Day => "fixed_window, time_zone: Europe/Berlin".to_owned(),
            Kind::Month => format!(
                "fixed_window, time_zone: Europe/Berlin, anchor: {}",
                self.anchor()
            ),
            Kind::Log => "sliding_log".to_owned(),
            Kind::Weighted => "sliding_window".to_owned(),
            Kind::Whole => "sliding_window, oldest: whole".to_owned(),
            Kind::Ignored => "sliding_window, oldest: ignored".to_owned(),
            Kind::Parts => format!("sliding_window, precision: {PARTS}"),
            Kind::PartsWhole => format!("sliding_window, precision: {PARTS}, oldest: whole"),
            Kind::PartsIgnored => format!("sliding_window, precision: {PARTS}, oldest: ignored"),
            Kind::Leaky => format!(
                "leaky_bucket, queue: {}, max_wait: {window}ms, delay_after: {}",
                self.burst,
                self.passing()
            ),
        };
        format!("{{ {amount}, cost: {}, algorithm: {kind} }}", self.cost)
    }

    fn written_burst(&self) -> String {
        match self.limit {
            0 => String::new(),
            _ => format!(", burst: {}", self.burst),
        }
    }
}

/// A day in Berlin: an hour ahead of UTC, and two from the last Sunday of March, 01:00 UTC, to that
/// of October.
struct Local {
    /// Days since the epoch.
    day: u64,
}

impl Local {
    fn at(time: u64) -> Self {
        let hours = time / 3_600_000_000;
        let year = Self { day: hours / 24 }.date().0;
        let change = |month: u64| {
            let last = Self::first_of(year, month + 1) - 1;
            // The epoch was a Thursday: days 3, 10, 17 .. were Sundays.
            (last - (last + 4) % 7) * 24 + 1
        };
        let summer = change(3) <= hours && hours < change(10);
        let ahead = 1 + u64::from(summer);
        Self {
            day: (hours + ahead) / 24,
        }
    }

    /// Whole months since the epoch that begin on the day `anchor`, or on their last day.
    fn month_from(&self, anchor: u64) -> u64 {
        let (year, month, day) = self.date();
        let length = Self::first_of(year, month + 1) - Self::first_of(year, month);
        12 * year + month - u64::from(day < anchor.min(length))
    }

    /// Year, month and day, each by counting.
    fn date(&self) -> (u64, u64, u64) {
        let year = (1970..).find(|year| Self::first_of(year + 1, 1) > self.day);
        let year = year.expect("a year");
        let month = (1..=12).find(|month| Self::first_of(year, month + 1) > self.day);
        let month = month.expect("a month");
        (year, month, 1 + self.day - Self::first_of(year, month))
    }

    /// The first day of a month; the thirteenth month is the next January.
    fn first_of(year: u64, month: u64) -> u64 {
        let leaps = |year: u64| year / 4 - year / 100 + year / 400;
        let is_leap = leaps(year) > leaps(year - 1);
        let february = 28 + u64::from(is_leap);
        let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let years = 365 * (year - 1970) + leaps(year - 1) - leaps(1969);
        years + lengths[..month as usize - 1].iter().sum::<u64>()
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
                let window = match kind {
                    Kind::Day => DAY,
                    Kind::Month => 31 * DAY,
                    Kind::Parts | Kind::PartsWhole | Kind::PartsIgnored => window * 1_000 * PARTS,
                    _ => window * 1_000,
                };
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

/// A step: the gap in thousandths of the policy's window, whether it is rounded to a millisecond,
/// the policy, and the key.
fn steps() -> impl Strategy<Value = Vec<(u64, bool, usize, u8)>> {
    let gaps =
        prop_oneof![3 => Just(0_u64), 4 => 0..=200_u64, 2 => 0..=1_500_u64, 1 => Just(1_000)];
    prop::collection::vec((gaps, any::<bool>(), 0..KINDS.len(), 0..KEYS), 1..400)
}

const START: u64 = 1_795_236_060_000_000;

/// A line of the log.
fn request(place: usize, key: u8, now: u64) -> String {
    let (whole, below) = (now / 1_000, now % 1_000);
    format!(
        r#"{{"time":{whole}.{below:03},"client_ip":"2001:db8:0:{key}::1","method":"GET","path":"/{place}"}}"#
    ) + "\n"
}

fn configuration(policies: &[Policy]) -> String {
    let mut config = "routes:\n".to_owned();
    for (place, policy) in policies.iter().enumerate() {
        let policy = policy.written();
        writeln!(config, "  - {{ name: r{place}, match: {{ path: /{place} }}, upstream: echo, limits: [{policy}] }}").unwrap();
    }
    config
}

/// The lead of each key's clock that makes its windows end at whole multiples. A first refusal
/// tells it for staggered windows, which every replay staggers alike.
fn ahead(config: &str, place: usize, policy: &Policy) -> [u64; KEYS as usize] {
    if !matches!(policy.kind, Kind::Staggered) || policy.most() == 0 {
        return [0; KEYS as usize];
    }
    std::array::from_fn(|key| {
        let requests = 1 + policy.most() / policy.cost;
        let log = request(place, key as u8, START).repeat(requests as usize);
        let decided = Replay::new(config, &log).decisions(&[]);
        let wait = decided.last().expect("decisions")["retry_after_ms"].to_string();
        let (whole, below) = wait.split_once('.').unwrap_or((&wait, ""));
        let micros: u64 = format!("{whole}{below:0<3}").parse().expect("milliseconds");
        assert!((1..=policy.window).contains(&micros));
        (policy.window - (START + micros) % policy.window) % policy.window
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn decisions_equal_those_of_the_models(policies in policies(), steps in steps()) {
        let config = configuration(&policies);
        let ahead: Vec<_> = policies
            .iter()
            .enumerate()
            .map(|(place, policy)| ahead(&config, place, policy))
            .collect();
        let (mut log, mut expected) = (String::new(), Vec::new());
        let mut charges = vec![[const { Vec::new() }; KEYS as usize]; policies.len()];
        let mut now = START;
        for (number, (gap, is_rounded, place, key)) in (1..).zip(steps) {
            now += gap * policies[place].window / 1_000;
            if is_rounded {
                now = now.next_multiple_of(1_000);
            }
            let by_its_clock = now + ahead[place][usize::from(key)];
            let mut decided = policies[place].decide(&mut charges[place][usize::from(key)], by_its_clock);
            decided["line"] = json!(number);
            decided["policy"] = json!(format!("r{place}#0"));
            expected.push(decided);
            log.push_str(&request(place, key, now));
        }
        let decided = Replay::new(&config, &log).decisions(&[]);
        for (number, (decided, expected)) in decided.iter().zip(&expected).enumerate() {
            prop_assert_eq!(decided, expected, "step {} of\n{}\n{}", number, config, log);
        }
        prop_assert_eq!(decided.len(), expected.len());
    }
}

/// The calendar facts that the models rely on.
#[test]
fn the_models_use_the_days_of_berlin() {
    let date = |time: u64| Local::at(time * 1_000_000).date();
    assert_eq!(date(0), (1970, 1, 1));
    assert_eq!(date(1_795_215_599), (2026, 11, 20));
    assert_eq!(date(1_795_215_600), (2026, 11, 21));
    // The 29th of a February, and the nights after clocks are set forward and back.
    assert_eq!(date(1_835_391_600), (2028, 2, 29));
    assert_eq!(date(1_837_979_999), (2028, 3, 29));
    assert_eq!(date(1_837_980_000), (2028, 3, 30));
    assert_eq!(date(1_856_473_199), (2028, 10, 29));
    assert_eq!(date(1_856_473_200), (2028, 10, 30));
    let month = |day| Local { day }.month_from(31);
    let leap_day = Local::first_of(2028, 3) - 1;
    assert_eq!(month(leap_day - 1) + 1, month(leap_day));
    assert_eq!(month(leap_day), month(leap_day + 30));
}
