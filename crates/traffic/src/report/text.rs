//! The report for people.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use readable::time::Span;

use super::{
    CountRange, KeyReport, LinesReport, PolicyReport, ReplayReport, RouteReport, client_count,
};

impl Display for ReplayReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_span(f)?;
        let counts = &self.counts;
        let positive = |count: u64| Some(count).filter(|count| *count > 0);
        for (count, what) in [
            (Some(counts.allowed), "allowed"),
            (positive(counts.delayed), "delayed"),
            (Some(counts.limited), "limited"),
            (
                positive(self.shadowed),
                "would be limited, by policies in shadow",
            ),
            (Some(counts.unlimited), "no limit applied"),
        ] {
            if let Some(count) = count {
                writeln!(f, "{count:>12}  {what}")?;
            }
        }
        for (reason, count) in &self.answered {
            writeln!(f, "{count:>12}  answered before any limit: {reason}")?;
        }
        self.write_warnings(f)?;
        self.routes.iter().try_for_each(|route| route.fmt(f))?;
        self.policies.iter().try_for_each(|policy| policy.fmt(f))?;
        self.write_remarks(f)
    }
}

impl ReplayReport {
    /// Writes the number of requests, and their times.
    pub(crate) fn write_span(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests", self.requests)?;
        match (&self.from, &self.until) {
            (Some(from), Some(until)) => writeln!(f, " from {from} to {until}"),
            _ => writeln!(f),
        }?;
        self.scope
            .iter()
            .try_for_each(|scope| writeln!(f, "{scope}"))
    }

    /// The data that the log lacks, the lines that were not replayed, and the lines that deserve
    /// attention, if any.
    pub fn remarks(&self) -> impl Display + '_ {
        fmt::from_fn(|f| {
            self.write_warnings(f)?;
            self.write_remarks(f)
        })
    }

    fn write_warnings(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.warnings.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nthe log lacks what limits depend on:")?;
        for warning in &self.warnings {
            let policy = warning.policy.as_ref();
            let policy = policy.map_or_else(String::new, |policy| format!("policy {policy}: "));
            let option = warning.option.as_ref();
            let option = option.map(|option| format!("; sluicegate logs it with `{option}`"));
            let option = option.unwrap_or_default();
            writeln!(f, "  {policy}{}{option}", warning.message)?;
        }
        Ok(())
    }

    fn write_remarks(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.not_replayed.is_empty() {
            let policies = self.not_replayed.join(", ");
            writeln!(
                f,
                "\nnot replayed, since a log does not say when requests end: {policies}"
            )?;
        }
        if !self.recorded_bans.is_empty() {
            writeln!(
                f,
                "\nrefused as in the log, which has a ban, by policies without a penalty:"
            )?;
        }
        for ban in &self.recorded_bans {
            writeln!(f, "{:>12}  policy {}", ban.requests, ban.policy)?;
        }
        self.out_of_order.write("out of order", f)?;
        self.unparsable.write("unparsable", f)
    }
}

impl LinesReport {
    pub(crate) fn write(&self, what: &str, f: &mut Formatter<'_>) -> fmt::Result {
        if self.count == 0 {
            return Ok(());
        }
        writeln!(f, "\n{what} lines: {}", self.count)?;
        for told in &self.first {
            writeln!(f, "  line {}: {}", told.line, told.reason)?;
        }
        match self.count - self.first.len() as u64 {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

impl Display for RouteReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.route {
            Some(route) => write!(f, "\nroute {route}: ")?,
            None => write!(f, "\nno route takes: ")?,
        }
        writeln!(f, "{} requests, {} limited", self.requests, self.limited)?;
        if self.limits.is_empty() {
            return Ok(());
        }
        writeln!(f, "     allowed     limited     delayed  by policy")?;
        for limit in &self.limits {
            let (allowed, limited, delayed) = (limit.allowed, limit.limited, limit.delayed);
            let policy = &limit.policy;
            write!(f, "{allowed:>12}{limited:>12}{delayed:>12}  {policy}")?;
            for (count, what) in [
                (limit.overflowed, "overflowed"),
                (limit.tagged, "tagged"),
                (limit.routed, "routed"),
                (limit.shadowed, "shadowed"),
            ] {
                if count > 0 {
                    write!(f, ", {count} {what}")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Display for PolicyReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\npolicy {} ({})", self.policy, self.rule)?;
        let (limited, clients) = (
            client_count(self.limited_clients),
            client_count(self.clients),
        );
        let verb = self.verb();
        writeln!(f, "  {verb}: {limited} of {clients} clients")?;
        if self.evictions > 0 {
            writeln!(
                f,
                "  forgot {} buckets because the table was full",
                self.evictions
            )?;
        }
        if let Some(longest) = &self.longest {
            let limited = Span(Duration::from_micros(longest.limited_ms.0));
            let (key, from) = (&longest.key, &longest.from);
            writeln!(
                f,
                "  longest single wait: {limited} from {from}, {key} (waits are not added up)"
            )?;
        }
        keys(&format!("{verb} most"), &self.most_limited, f)?;
        keys("busiest", &self.busiest, f)
    }
}

fn keys(what: &str, keys: &[KeyReport], f: &mut Formatter<'_>) -> fmt::Result {
    if keys.is_empty() {
        return Ok(());
    }
    writeln!(f, "  {what}:")?;
    for KeyReport {
        key,
        count,
        requests,
    } in keys
    {
        let of_all = |all: &CountRange| match (count.exact(), all.exact()) {
            (Some(count), Some(all)) if all > 0 => {
                let share = count as f64 / all as f64 * 100.0;
                format!(" ({share:.1}% of {all} requests)")
            }
            _ => format!(" (of {all} requests)"),
        };
        let of_all = requests.as_ref().map_or_else(String::new, of_all);
        writeln!(f, "{:>12}  {key}{of_all}", count.to_string())?;
    }
    Ok(())
}

impl Display for CountRange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.exact() {
            Some(count) => write!(f, "{count}"),
            None => write!(f, "{}-{}", self.least, self.most),
        }
    }
}
