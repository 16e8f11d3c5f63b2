//! Text of an explanation: a line for each fact, which starts with its kind.

use std::fmt;

use super::{Answer, Explanation, LimitOutcome, LimitTrace, Trace};
use crate::clock::Timestamp;
use crate::clock::text::{Span, Wait};
use crate::limiter::Outcome;
use crate::proxy::admission::mode::Enforcement;
use crate::proxy::answers::error::Error;
use crate::proxy::inspect::key_state::KeyState;
use crate::store::{Home, OnStoreError};

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "request   {} {}", self.method, self.url)?;
        writeln!(f, "client    {}", self.client_ip)?;
        if let Ok(trace) = &self.trace {
            trace.write(self.now, f)?;
        }
        writeln!(f, "answer    {}", self.answer_text())
    }
}

impl Explanation<'_> {
    /// The answer to the request.
    fn answer_text(&self) -> String {
        match self.answer() {
            Answer::Refused(limit) => {
                let (verb, policy) = (limit.action().name(), limit.name());
                match limit.status() {
                    Some(status) => format!("{verb} by {policy}: {status}"),
                    None => format!("{verb} by {policy}"),
                }
            }
            Answer::Allowed { destination } => format!("allowed, and {destination}"),
            Answer::Delayed { destination, until } => {
                let when = match until {
                    Some(until) => format!("after {}", Span(until.since(self.now))),
                    None => "once others have ended".to_owned(),
                };
                format!("delayed, and {destination} {when}")
            }
            // The line of the route says why.
            Answer::Own(error) if self.trace.is_ok() && !matches!(error, Error::Denied(_)) => {
                error.status().to_string()
            }
            Answer::Own(error) => format!("{}: {}", error.status(), error.explanation()),
        }
    }
}

impl Trace<'_> {
    fn write(&self, now: Timestamp, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(method) = &self.question {
            writeln!(f, "decides   {method} {}", self.path)?;
        }
        writeln!(f, "host      {}", self.host)?;
        writeln!(f, "path      {}", self.path)?;
        for (route, mismatch) in &self.mismatches {
            writeln!(f, "not       {route}: {mismatch}")?;
        }
        if self.mismatches_omitted > 0 {
            writeln!(f, "not       {} more routes", self.mismatches_omitted)?;
        }
        match &self.route {
            Some(route) => writeln!(f, "route     {route}")?,
            None => writeln!(f, "route     none takes it")?,
        }
        if let Some(path) = &self.forwarded_path {
            writeln!(f, "forwards  {path}")?;
        }
        if let Some(token) = &self.token {
            writeln!(f, "token     {token}")?;
        }
        for step in &self.limits {
            step.write(now, f)?;
        }
        let tags = |step: &&LimitTrace<'_>| step.refuses() && step.is_tag();
        for step in self.limits.iter().filter(tags) {
            writeln!(f, "tag       {}", step.name())?;
        }
        Ok(())
    }
}

impl LimitTrace<'_> {
    fn write(&self, now: Timestamp, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (algorithm, quota) = (self.quota().algorithm().kind(), &self.quota().text);
        let policy = &self.limit.policy.name;
        writeln!(f, "limit     {policy} ({algorithm}, {quota})")?;
        for part in &self.key {
            writeln!(f, "  key     {part}")?;
        }
        match self.quota().buckets.home {
            Home::Memory => {}
            Home::Redis(_) => writeln!(f, "  store   redis")?,
            Home::Synchronised(interval) => {
                let interval = Span(interval);
                writeln!(
                    f,
                    "  store   memory, synchronised through redis every {interval}"
                )?;
            }
        }
        if let Some(error) = &self.store_error {
            writeln!(f, "  error   {error}")?;
        }
        if let Some(stated) = &self.stated {
            writeln!(f, "  quota   {stated}")?;
        }
        if let Some(zone) = &self.zone {
            writeln!(f, "  zone    {zone}")?;
        }
        if self.enforcement == Enforcement::Shadowed {
            writeln!(f, "  mode    shadow: it refuses nothing")?;
        }
        if self.id.tier > 0 {
            writeln!(f, "  bucket  {}, at a lower priority", self.id.tier + 1)?;
        }
        match (self.cost, self.limit.spec.settlement.is_some()) {
            (1, false) => {}
            (cost, false) => writeln!(f, "  cost    {cost}")?,
            (cost, true) => writeln!(f, "  cost    {cost}, until the response settles it")?,
        }
        for soft in &self.limit.policy.soft_limits {
            let (above, action) = (soft.above, soft.refusal.0.name());
            writeln!(f, "  soft    above {above} used: {action} by {}", soft.name)?;
        }
        if let Some((places, longest)) = self.queue_bounds() {
            write!(f, "  queue   where none is left it waits in line, ")?;
            let longest = Span(longest);
            writeln!(f, "one of {places} at most, for {longest} at most")?;
        }
        if let Some(state) = &self.state {
            write_state(state, f)?;
        }
        self.write_decision(now, f)
    }

    fn write_decision(&self, now: Timestamp, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.as_str();
        match &self.outcome {
            LimitOutcome::Undecided(OnStoreError::Refuse) => {
                writeln!(
                    f,
                    "  says    {word}: the request is refused without the store"
                )
            }
            LimitOutcome::Undecided(_) => {
                writeln!(
                    f,
                    "  says    {word}: the request is admitted without the store"
                )
            }
            LimitOutcome::Queued(_) => {
                writeln!(
                    f,
                    "  says    {word}: it waits in line until others have ended"
                )
            }
            LimitOutcome::NotAsked => {
                writeln!(f, "  says    not asked: another limit refuses")
            }
            LimitOutcome::Disabled => writeln!(f, "  says    does not apply: disabled"),
            LimitOutcome::NotApplicable => {
                writeln!(f, "  says    does not apply: `when` is not met")
            }
            LimitOutcome::Exempt => writeln!(f, "  says    does not apply: exempt"),
            LimitOutcome::Skipped => writeln!(f, "  says    does not apply without its key"),
            LimitOutcome::MissingKey => writeln!(f, "  says    {word}: the key is missing"),
            LimitOutcome::SeveralKeys => {
                writeln!(f, "  says    {word}: the key has different values")
            }
            LimitOutcome::InvalidCost => {
                writeln!(f, "  says    {word}: the cost isn't a whole number")
            }
            LimitOutcome::Decided(decision) => match decision.outcome {
                Outcome::Admit if self.returns_units() => {
                    let left = decision.remaining;
                    writeln!(f, "  says    {word}: {left} left while it is served")
                }
                Outcome::Admit => {
                    let (until, left) = (decision.reset, decision.remaining);
                    write!(f, "  says    {word}: {left} left, full")?;
                    if until > now {
                        write!(f, " again in {}", Wait { now, until })?;
                    }
                    writeln!(f)
                }
                Outcome::Delay { until } => {
                    let (wait, left) = (Span(until.since(now)), decision.remaining);
                    writeln!(f, "  says    {word}: for {wait}, {left} left")
                }
                Outcome::Refuse {
                    retry_at: Some(until),
                } => {
                    let wait = Wait { now, until };
                    writeln!(f, "  says    {word}: allowed again in {wait}")
                }
                Outcome::Refuse { retry_at: None } => {
                    writeln!(f, "  says    {word}: it can never be allowed")
                }
            },
        }
    }
}

/// Writes what the key has used, and what operators and penalties did to it.
fn write_state(state: &KeyState, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let KeyState {
        key_id,
        used,
        limit,
        stored,
        ..
    } = state;
    let unused = if *stored { "" } else { "; unused" };
    writeln!(f, "  state   {key_id} has used {used} of {limit}{unused}")?;
    if state.override_for.is_some() {
        writeln!(f, "  quota   by an override")?;
    }
    if state.debt > 0 {
        writeln!(f, "  debt    {}", state.debt)?;
    }
    if let Some(granted) = &state.granted {
        let (left, of, until) = (granted.units, granted.of_units, &granted.until);
        writeln!(f, "  granted {left} of {of} units, until {until}")?;
    }
    if let Some(ban) = &state.ban {
        let (until, reason) = (&ban.until, &ban.reason);
        if reason.is_empty() {
            writeln!(f, "  banned  until {until}")?
        } else {
            writeln!(f, "  banned  until {until}: {reason}")?
        }
    }
    Ok(())
}
