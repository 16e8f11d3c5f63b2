//! Text of an explanation: a line for each fact, which starts with its kind.

use std::fmt::{Display, Write};

use readable::money::amount;

use super::limit::Reason;
use super::report::LimitReport;
use super::{Explanation, LimitTrace};
use crate::clock::Timestamp;
use crate::clock::text::{Span, Wait};
use crate::limiter::Outcome;
use crate::proxy::admission::mode::Enforcement;
use crate::proxy::answers::limit_headers::QuotaUnit;
use crate::proxy::inspect::key_state::KeyState;
use crate::store::Home;
use crate::telemetry::metrics::LimitDecision;

/// The lines of a text.
#[derive(Default)]
struct Lines(String);

impl Lines {
    /// Adds a line for each fact of this kind.
    fn add(&mut self, kind: &str, facts: impl IntoIterator<Item: Display>) {
        for fact in facts {
            let _ = writeln!(self.0, "{kind:<9} {fact}");
        }
    }
}

impl Explanation<'_> {
    /// The text, with this answer in its last line.
    pub(super) fn text(&self, answer: &str) -> String {
        let (report, mut lines) = (&self.report, Lines::default());
        let (method, url) = (&report.request.method, &report.request.url);
        lines.add("request", [format!("{method} {url}")]);
        lines.add("client", [report.client_ip]);
        if let Ok(trace) = &self.trace {
            let path = report.path.as_deref().unwrap_or_default();
            let question = trace.question.as_ref();
            lines.add("decides", question.map(|method| format!("{method} {path}")));
            lines.add("host", &report.host);
            lines.add("path", [path]);
            let not_matched = report.not_matched.iter();
            let not_matched = not_matched.map(|one| format!("{}: {}", one.route, one.reason));
            lines.add("not", not_matched);
            let omitted = report.not_matched_omitted;
            lines.add(
                "not",
                (omitted > 0).then(|| format!("{omitted} more routes")),
            );
            lines.add(
                "route",
                [report.route.as_deref().unwrap_or("none takes it")],
            );
            lines.add("forwards", &report.forwarded_path);
            lines.add("token", &report.token);
            lines.add("client", &report.client);
            for limit in &trace.limits {
                limit.write(self.now, &mut lines);
            }
            let tags = trace.limits.iter();
            let tags = tags.filter(|limit| limit.word == LimitDecision::Tagged);
            lines.add("tag", tags.map(LimitTrace::name));
        }
        lines.add("answer", [answer]);
        lines.0
    }
}

impl LimitTrace<'_> {
    fn write(&self, now: Timestamp, lines: &mut Lines) {
        let report = &self.report;
        let LimitReport {
            policy,
            algorithm,
            quota,
            bucket,
            ..
        } = report;
        lines.add("limit", [format!("{policy} ({algorithm}, {quota})")]);
        lines.add("  key", &report.key);
        lines.add("  store", self.store());
        lines.add("  error", &report.store_error);
        lines.add("  quota", &report.stated_quota);
        lines.add("  zone", &report.time_zone);
        let is_shadowed = self.enforcement == Enforcement::Shadowed;
        lines.add(
            "  mode",
            is_shadowed.then_some("shadow: it refuses nothing"),
        );
        let is_lowered = *bucket > 1;
        lines.add(
            "  bucket",
            is_lowered.then(|| format!("{bucket}, at a lower priority")),
        );
        lines.add(
            "  cost",
            match (report.cost, report.cost_is_settled) {
                (1, false) => None,
                (cost, false) => Some(self.units(cost)),
                (cost, true) => Some(format!(
                    "{}, until the response settles it",
                    self.units(cost)
                )),
            },
        );
        for soft in &self.limit.policy.soft_limits {
            let (verb, name) = (soft.refusal.0.name(), &soft.name);
            let above = self.units(soft.above);
            lines.add("  soft", [format!("above {above} used: {verb} by {name}")]);
        }
        lines.add("  queue", report.queue.as_ref().map(|queue| {
            let (places, longest) = (queue.places, Span(queue.max_wait_ms.into()));
            format!("where none is left it waits in line, one of {places} at most, for {longest} at most")
        }));
        if let Some(state) = &report.state {
            write_state(state, lines);
        }
        lines.add("  says", [self.says(now)]);
    }

    fn store(&self) -> Option<String> {
        match self.quota().buckets.home {
            Home::Memory => None,
            Home::Redis(_) => Some("redis".to_owned()),
            Home::Synchronised(interval) => {
                let interval = Span(interval);
                Some(format!(
                    "memory, synchronised through redis every {interval}"
                ))
            }
        }
    }

    /// A number of units of its quota.
    fn units(&self, number: impl Into<u64>) -> String {
        amount(
            number.into(),
            self.quota().advertised.unit == QuotaUnit::Usd,
        )
    }

    fn says(&self, now: Timestamp) -> String {
        let word = self.word.as_str();
        let decision = match &self.outcome {
            Ok(decision) => decision,
            Err(reason) if reason.applies() && !matches!(reason, Reason::Exempt) => {
                return format!("{word}: {reason}");
            }
            Err(reason) => return reason.to_string(),
        };
        let (left, reset) = (self.units(decision.remaining), decision.reset);
        match decision.outcome {
            Outcome::Admit if self.returns_units() => {
                format!("{word}: {left} left while it is served")
            }
            Outcome::Admit if reset > now => {
                let wait = Wait { now, until: reset };
                format!("{word}: {left} left, full again in {wait}")
            }
            Outcome::Admit => format!("{word}: {left} left, full"),
            Outcome::Delay { until } => {
                format!("{word}: for {}, {left} left", Span(until.since(now)))
            }
            Outcome::Refuse {
                retry_at: Some(until),
            } => format!("{word}: allowed again in {}", Wait { now, until }),
            Outcome::Refuse { retry_at: None } => format!("{word}: it can never be allowed"),
        }
    }
}

/// Writes what the key has used, and what operators and penalties did to it.
fn write_state(state: &KeyState, lines: &mut Lines) {
    let units = |number: u64| amount(number, state.unit == "usd");
    let (id, used, limit) = (&state.key_id, units(state.used), units(state.limit));
    let unused = if state.stored { "" } else { "; unused" };
    lines.add(
        "  state",
        [format!("{id} has used {used} of {limit}{unused}")],
    );
    lines.add(
        "  quota",
        state.override_for.as_ref().map(|_| "by an override"),
    );
    lines.add("  debt", (state.debt > 0).then(|| units(state.debt)));
    lines.add(
        "  granted",
        state.granted.as_ref().map(|granted| {
            let (left, of) = (granted.units.into(), granted.of_units.into());
            format!(
                "{} of {} units, until {}",
                units(left),
                units(of),
                granted.until
            )
        }),
    );
    lines.add(
        "  banned",
        state.ban.as_ref().map(|ban| match &*ban.reason {
            "" => format!("until {}", ban.until),
            reason => format!("until {}: {reason}", ban.until),
        }),
    );
}
