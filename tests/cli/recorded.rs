//! Decisions of `sluicegate replay --decisions` beside those of other rate limiters, recorded by
//! `tests/recorded/record`. tests/recorded/README.md says how each of them is defined, and where
//! definitions differ. governor, a crate, needs no recording.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use governor::clock::{Clock as _, FakeRelativeClock};
use governor::middleware::StateInformationMiddleware;
use governor::{Quota, RateLimiter};
use proptest::prelude::*;
use serde_json::Value;

use crate::support::replay::Replay;

/// Arrivals and decisions under one policy.
struct Section {
    /// The file and the line, for messages.
    name: String,
    policy: String,
    steps: Vec<Step>,
}

/// One arrival and its decision; times are in microseconds.
struct Step {
    time: u64,
    key: String,
    units: u64,
    verdict: String,
    remaining: Option<u64>,
    wait: Option<u64>,
}

impl Section {
    /// Reads the sections of a recording: a JSON line, then a line `gap key units verdict remaining
    /// wait` for each step.
    fn read(file: &str, text: &str) -> Vec<Self> {
        let mut sections = Vec::<Self>::new();
        for line in text.lines() {
            if line.starts_with('{') {
                let header: Value = serde_json::from_str(line).expect("a header");
                let policy = header["policy"].as_str().expect("a policy");
                sections.push(Self {
                    name: format!("{file}, section {}", sections.len()),
                    policy: policy.to_owned(),
                    steps: Vec::new(),
                });
                continue;
            }
            let steps = &mut sections.last_mut().expect("a header first").steps;
            let last = steps.last().map_or(0, |step| step.time);
            steps.push(Step::read(line, last));
        }
        sections
    }

    /// The policy in YAML.
    fn route(&self, place: usize) -> String {
        let Self { policy, .. } = self;
        let key = "key: query:key, cost: { header: x-units, max: 1000 }";
        format!(
            "  - {{ name: r{place}, match: {{ path: /{place} }}, upstream: echo, limits: [{{ {key}, {policy} }}] }}\n"
        )
    }

    fn log(&self, place: usize) -> String {
        let mut log = String::new();
        for Step {
            time, key, units, ..
        } in &self.steps
        {
            let (whole, below) = (time / 1_000, time % 1_000);
            writeln!(
                log,
                r#"{{"time":{whole}.{below:03},"client_ip":"192.0.2.1","method":"GET","path":"/{place}?key={key}","headers":{{"x-units":"{units}"}}}}"#
            )
            .expect("text");
        }
        log
    }

    /// Compares all decisions.
    fn compare(&self, decided: &[Value]) {
        assert_eq!(decided.len(), self.steps.len(), "{}", self.name);
        for (number, (step, decided)) in self.steps.iter().zip(decided).enumerate() {
            assert!(
                step.agrees(decided),
                "step {number} of {} under {{ {} }}:\nrecorded {} {:?} {:?}\ndecided  {decided}",
                self.name,
                self.policy,
                step.verdict,
                step.remaining,
                step.wait,
            );
        }
    }
}

impl Step {
    fn read(line: &str, last: u64) -> Self {
        let parts: Vec<&str> = line.split(' ').collect();
        let [gap, key, units, verdict, remaining, wait] = parts[..] else {
            panic!("a step has six parts: {line}");
        };
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let told = |text: &str| (text != "-").then(|| number(text));
        Self {
            time: last + number(gap),
            key: key.to_owned(),
            units: number(units),
            verdict: decision_word(verdict).to_owned(),
            remaining: told(remaining),
            wait: told(wait),
        }
    }

    /// True if the other limiter made this decision.
    fn agrees(&self, decided: &Value) -> bool {
        let wait = match self.verdict.as_str() {
            "delayed" => micros(&decided["delay_ms"]),
            _ => micros(&decided["retry_after_ms"]),
        };
        decided["decision"] == self.verdict
            && self
                .remaining
                .is_none_or(|left| decided["remaining"] == left)
            && self.wait.is_none_or(|told| wait == Some(told))
    }
}

/// The word of `replay --decisions` for a verdict of a recording.
fn decision_word(verdict: &str) -> &'static str {
    match verdict {
        "admit" => "allowed",
        "delay" => "delayed",
        "refuse" => "limited",
        other => panic!("no verdict: {other}"),
    }
}

/// Milliseconds with their fraction, digit by digit.
fn micros(number: &Value) -> Option<u64> {
    let text = number.as_number()?.to_string();
    let (whole, below) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}{below:0<3}").parse().ok()
}

fn recordings() -> BTreeMap<String, Vec<Section>> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let files = fs::read_dir(directory).expect("recordings");
    let paths = files.map(|file| file.expect("a file").path());
    let texts = paths.filter(|path| path.extension().is_some_and(|ending| ending == "txt"));
    texts
        .map(|path| {
            let name = path
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            let text = fs::read_to_string(&path).expect("text");
            let sections = Section::read(&name, &text);
            (name, sections)
        })
        .collect()
}

#[test]
fn decisions_equal_those_of_other_implementations() {
    let recordings = recordings();
    assert!(recordings.len() >= 19, "{:?}", recordings.keys());
    for sections in recordings.values() {
        let mut config = "routes:\n".to_owned();
        for (place, section) in sections.iter().enumerate() {
            config += &section.route(place);
        }
        for (place, section) in sections.iter().enumerate() {
            section.compare(&Replay::new(&config, section.log(place)).decisions(&[]));
        }
    }
}

const START: u64 = 1_795_236_060_000_000;

/// The decisions of governor on arrivals: microseconds since the one before, and units.
fn by_governor(interval: u64, burst: NonZeroU32, arrivals: &[(u64, u32)]) -> Section {
    let quota = Quota::with_period(Duration::from_micros(interval)).expect("a period");
    let clock = FakeRelativeClock::default();
    let limiter = RateLimiter::direct_with_clock(quota.allow_burst(burst), clock.clone())
        .with_middleware::<StateInformationMiddleware>();
    let mut time = START;
    let mut step = |&(gap, units): &(u64, u32)| {
        time += gap;
        clock.advance(Duration::from_micros(gap));
        let asked = NonZeroU32::new(units).expect("units");
        let decided = limiter.check_n(asked).expect("no more than the burst");
        let (verdict, remaining, wait) = match decided {
            Ok(left) => (
                "allowed",
                Some(left.remaining_burst_capacity().into()),
                None,
            ),
            Err(until) => {
                let wait = until.wait_time_from(clock.now()).as_micros();
                ("limited", None, u64::try_from(wait).ok())
            }
        };
        Step {
            time,
            key: "a".to_owned(),
            units: units.into(),
            verdict: verdict.to_owned(),
            remaining,
            wait,
        }
    };
    Section {
        name: "governor".to_owned(),
        policy: format!("quota: 1/{interval}us, burst: {burst}"),
        steps: arrivals.iter().map(&mut step).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn decisions_equal_those_of_governor(
        interval in prop_oneof![Just(1_000_u64), 1..=5_000_000_u64],
        burst in 1..=20_u32,
        // Gaps in sixteenths of the interval, whole intervals among them, and whether they are rounded to a millisecond.
        steps in prop::collection::vec((prop_oneof![Just(0_u64), Just(16), 0..=16_u64, 0..=400_u64], any::<bool>(), 1..=20_u32), 1..300),
    ) {
        let arrivals: Vec<_> = steps
            .into_iter()
            .map(|(parts, is_rounded, units)| {
                let gap = parts * interval / 16;
                (if is_rounded { gap.next_multiple_of(1_000) } else { gap }, units.min(burst))
            })
            .collect();
        let section = by_governor(interval, NonZeroU32::new(burst).expect("a burst"), &arrivals);
        let config = format!("routes:\n{}", section.route(0));
        section.compare(&Replay::new(&config, section.log(0)).decisions(&[]));
    }
}
