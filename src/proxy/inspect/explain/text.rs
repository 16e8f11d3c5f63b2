//! Text of an explanation: a line for each fact, which starts with its kind.

use std::fmt;

use super::{Explanation, LimitOutcome, LimitTrace, Trace};
use crate::clock::Timestamp;
use crate::limiter::Outcome;
use crate::proxy::admission::mode::Enforcement;
use crate::store::HomeSpec;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "request   {}", self.request)?;
        writeln!(f, "client    {}", self.client_ip)?;
        match &self.trace {
            Ok(trace) => trace.fmt(f),
            Err(error) => {
                let (status, detail) = (error.status(), error.detail());
                writeln!(f, "answer    {status}: {detail}")
            }
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "host      {}", self.host)?;
        writeln!(f, "path      {}", self.path)?;
        for (route, mismatch) in &self.mismatches {
            writeln!(f, "not       {route}: {mismatch}")?;
        }
        match &self.route {
            Some(route) => writeln!(f, "route     {route}")?,
            None => writeln!(f, "route     none takes it")?,
        }
        if let Some(token) = &self.token {
            writeln!(f, "token     {token}")?;
        }
        for step in &self.limits {
            step.write(self.now, f)?;
        }
        let refused = |step: &&LimitTrace| step.refuses() && !step.is_tag;
        for step in self
            .limits
            .iter()
            .filter(|step| step.refuses() && step.is_tag)
        {
            writeln!(f, "tag       {}", step.policy)?;
        }
        // New buckets refuse forever or not at all: the first refusing limit answers, unless
        // another lacks its key or cost.
        let mut refused = self.limits.iter().filter(refused);
        let first = refused.clone().next();
        let speaker = refused.find(|step| !step.is_decided()).or(first);
        match (speaker, &self.upstream) {
            (Some(step), _) => {
                write!(f, "answer    {} by {}", step.action, step.policy)?;
                match step.status {
                    Some(status) => writeln!(f, ": {status}"),
                    None => writeln!(f),
                }
            }
            (None, Some(upstream)) => {
                let waits = self.limits.iter().filter_map(LimitTrace::delayed_until);
                match waits.max() {
                    None => writeln!(f, "answer    allowed, and forwarded to {upstream}"),
                    Some(until) => {
                        let wait = until.since(self.now);
                        writeln!(
                            f,
                            "answer    delayed, and forwarded to {upstream} after {wait:?}"
                        )
                    }
                }
            }
            (None, None) => writeln!(f, "answer    404 Not Found"),
        }
    }
}

impl LimitTrace {
    fn write(&self, now: Timestamp, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "limit     {} ({})", self.policy, self.algorithm)?;
        for part in &self.key {
            writeln!(f, "  key     {part}")?;
        }
        match self.home {
            HomeSpec::Memory => {}
            HomeSpec::Redis(_) => writeln!(f, "  store   redis")?,
            HomeSpec::Synchronised(interval) => {
                writeln!(
                    f,
                    "  store   memory, synchronised through redis every {interval:?}"
                )?;
            }
        }
        if let Some(zone) = &self.zone {
            writeln!(f, "  zone    {zone}")?;
        }
        if self.enforcement == Enforcement::Shadowed {
            writeln!(f, "  mode    shadow: it refuses nothing")?;
        }
        if self.overflows > 0 {
            writeln!(f, "  bucket  {}, at a lower priority", self.overflows + 1)?;
        }
        match (self.cost, self.settles) {
            (1, false) => {}
            (cost, false) => writeln!(f, "  cost    {cost}")?,
            (cost, true) => writeln!(f, "  cost    {cost}, until the response settles it")?,
        }
        if let Some((places, longest)) = self.queue_bounds() {
            write!(f, "  queue   where none is left it waits in line, ")?;
            writeln!(f, "one of {places} at most, for {longest:?} at most")?;
        }
        let word = self.decision().as_str();
        match &self.outcome {
            LimitOutcome::NotApplicable => {
                writeln!(f, "  says    does not apply: `when` is not met")
            }
            LimitOutcome::Exempt => writeln!(f, "  says    does not apply: exempt"),
            LimitOutcome::Skipped => writeln!(f, "  says    does not apply without its key"),
            LimitOutcome::MissingKey => writeln!(f, "  says    {word}: the key is missing"),
            LimitOutcome::InvalidCost => {
                writeln!(f, "  says    {word}: the cost is no whole number")
            }
            LimitOutcome::Decided(decision) => match decision.outcome {
                Outcome::Admit if self.returns_units => {
                    let left = decision.remaining;
                    writeln!(f, "  says    {word}: {left} left while it is served")
                }
                Outcome::Admit => {
                    let reset = decision.reset.since(now);
                    writeln!(
                        f,
                        "  says    {word}: {} left, whole again in {reset:?}",
                        decision.remaining
                    )
                }
                Outcome::Delay { until } => {
                    let (wait, left) = (until.since(now), decision.remaining);
                    writeln!(f, "  says    {word}: for {wait:?}, {left} left")
                }
                Outcome::Refuse { retry_at: Some(at) } => {
                    let wait = at.since(now);
                    writeln!(f, "  says    {word}: allowed again in {wait:?}")
                }
                Outcome::Refuse { retry_at: None } => {
                    writeln!(f, "  says    {word}: it can never be allowed")
                }
            },
        }
    }
}
