//! The proposal for people.

use std::fmt::{self, Display, Formatter};

use super::super::quota::Distribution;
use super::{KeySuggestion, RouteSuggestion, Suggestion, clients_text};

/// How many letters fit a line of a narrow terminal.
const WIDTH: usize = 79;

impl Display for Suggestion {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests", self.requests)?;
        if let (Some(from), Some(until)) = (&self.from, &self.until) {
            write!(f, " from {from} to {until}")?;
        }
        writeln!(f, ", by {}", self.key)?;
        for remark in &self.remarks {
            writeln!(f, "{}", wrapped(&format!("note: {remark}"), "  "))?;
        }
        if self.unrouted > 0 {
            writeln!(f, "{:>12}  matched no route", self.unrouted)?;
        }
        for (reason, count) in &self.answered {
            writeln!(f, "{count:>12}  answered before any limit: {reason}")?;
        }
        for route in &self.routes {
            self.write_route(route, f)?;
        }
        self.out_of_order.write("out of order", f)?;
        self.unparsable.write("unparsable", f)
    }
}

impl Suggestion {
    fn write_route(&self, route: &RouteSuggestion, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\nroute {}", route.name)?;
        if !route.requests_for.is_empty() {
            write!(f, " ({})", route.requests_for)?;
        }
        let (requests, clients) = (route.requests, clients_text(route.limit.clients));
        writeln!(f, ": {requests} requests, {clients}")?;
        if let Some(reason) = route.no_limit {
            return writeln!(f, "  no limit proposed: {}", reason.sentence(route));
        }
        let Some(proposal) = &route.limit.proposal else {
            return Ok(());
        };
        let limit = &route.limit;
        self.write_peaks(limit, f)?;
        writeln!(
            f,
            "  proposed: quota: {}, burst: {}",
            proposal.quota, proposal.burst
        )?;
        writeln!(f, "    {}", proposal.reason(self.margin))?;
        writeln!(f, "    {}", proposal.burst_reason(self.margin))?;
        self.write_doubts(route, f)?;
        limit.write_limited(requests, f)
    }

    fn write_peaks(&self, limit: &KeySuggestion, f: &mut Formatter<'_>) -> fmt::Result {
        let percentile = format!("{}%", self.margin.percentile);
        writeln!(
            f,
            "  busiest        50%       90%{percentile:>10}   busiest client"
        )?;
        let rows = [
            ("second", Some(&limit.per_second)),
            ("minute", Some(&limit.per_minute)),
            ("hour", limit.per_hour.as_ref()),
        ];
        for (window, row) in rows {
            if let Some(Distribution {
                half,
                p90,
                chosen,
                most,
            }) = row
            {
                writeln!(f, "  {window:<8}{half:>10}{p90:>10}{chosen:>10}{most:>17}")?;
            }
        }
        Ok(())
    }

    /// Why the percentile may be a bad one.
    fn write_doubts(&self, route: &RouteSuggestion, f: &mut Formatter<'_>) -> fmt::Result {
        let clients = route.limit.clients;
        let percentile = self.margin.percentile;
        if (1.0 - percentile / 100.0) * (clients as f64) < 1.0 && percentile < 100.0 {
            return writeln!(
                f,
                "  note: with {clients} clients, {percentile}% means the busiest"
            );
        }
        Ok(())
    }
}

impl KeySuggestion {
    fn write_limited(&self, requests: u64, f: &mut Formatter<'_>) -> fmt::Result {
        let (limited, of, clients) = (self.limited, self.limited_clients, self.clients);
        let share = limited as f64 / requests.max(1) as f64 * 100.0;
        writeln!(
            f,
            "  would have limited {of} of {clients} clients, {limited} of {requests} requests ({share:.2}%)"
        )?;
        for key in &self.most_limited {
            let share = key.limited as f64 / key.requests.max(1) as f64 * 100.0;
            writeln!(
                f,
                "{:>12}  {} ({share:.1}% of {} requests)",
                key.limited, key.key, key.requests
            )?;
        }
        Ok(())
    }
}

/// A text in lines that fit; those after the first begin with `indent`.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut width = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            lines.push('\n');
            lines.push_str(indent);
            width = indent.len();
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
    }
    lines
}
