//! The answers of a proxy as lines of text: what became of requests, problems, and tables of keys, policies
//! and upstreams, each with the worst first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use strum::VariantArray;

use crate::admin::keys::key_input::Key;
use crate::admin::policies::PolicyStatus;
use crate::admin::problem::{Problem, Severity};
use crate::admin::readiness::Connections;
use crate::admin::status::Status;
use crate::admin::top::{Top, TopItem};
use crate::admin::totals::RecentTraffic;
use crate::admin::upstreams::UpstreamStatus;
use crate::cli::table::{aligned, fit, width_of};
use crate::clock::{Timestamp, text};
use crate::rules::PartText;
use crate::telemetry::metrics::{LimitDecision, RequestOutcome};
use crate::visible;

/// The widest text of a key, in characters.
const MAX_TEXT: usize = 48;
/// The rows of problems, upstreams, keys and policies on 24 rows; larger screens have more in proportion.
const SHARES: [usize; 4] = [5, 3, 5, 3];
/// The rows beside those: one of figures, two of the bar, four heads, and the last one.
const FIXED: usize = 8;
/// The columns and rows of texts without a screen.
const PLAIN: (usize, usize) = (120, 10_000);
/// The heads of the tables. The columns from a number on are numbers.
const KEYS: (&str, usize) = (
    "KEY\tCLIENT\tPOLICY\tLIMITED\tFOR\tREQUESTS\tUNITS\tA SECOND",
    3,
);
const POLICIES: (&str, usize) = (
    "POLICY\tQUOTA\tMODE\tALL/S\tLIMITED/S\tBEYOND/S\tERROR/S",
    3,
);
const UPSTREAMS: (&str, usize) = ("UPSTREAM\tHEALTH\tALL/S\t5XX/S\tP50\tP99\tIN FLIGHT", 2);

/// The number of outcomes.
pub(super) const OUTCOMES: usize = RequestOutcome::VARIANTS.len();

/// The answers of the proxy to the questions of one moment.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) top: Top,
    pub(super) status: Status,
    pub(super) policies: Vec<PolicyStatus>,
    pub(super) upstreams: Vec<UpstreamStatus>,
    /// Requests in the window by outcome.
    pub(super) outcomes: [u64; OUTCOMES],
}

/// As text without a screen.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.lines(PLAIN.0, PLAIN.1) {
            writeln!(f, "{}", line.to_string().trim_end())?;
        }
        writeln!(f, "{}\n", self.about())
    }
}

impl Report {
    /// The lines for a terminal with this width and height. Its last row stays free.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<Line<'static>> {
        let problems = self.status.problem_details.iter();
        let uptime = Duration::from_secs(self.status.uptime_s);
        let now = self.status.started_at.0.saturating_add(uptime);
        let problems: Vec<_> = problems.flat_map(|one| problem(one, now, width)).collect();
        let [keys, policies, upstreams] = [self.keys(), self.policies(), self.upstreams()];
        let wanted = [problems.len(), upstreams.len(), keys.len(), policies.len()];
        let rows = allot(height.saturating_sub(FIXED), wanted);
        let mut lines = self.figures(width);
        lines.extend(problems.into_iter().take(rows[0]));
        lines.extend(table(KEYS, keys, rows[2], width));
        lines.extend(table(POLICIES, policies, rows[3], width));
        lines.extend(table(UPSTREAMS, upstreams, rows[1], width));
        lines
    }

    /// The order of the keys, and the time over which they were counted.
    pub(super) fn about(&self) -> String {
        let (by, window): (&str, &str) = (self.top.by.into(), self.top.window.into());
        let counted = span(self.top.counted_s);
        format!("by {by}, last {window}, counted for {counted}")
    }

    /// Requests, a bar of their outcomes in the window, and the number of problems.
    fn figures(&self, width: usize) -> Vec<Line<'static>> {
        let (status, window) = (&self.status, <&str>::from(self.top.window));
        let Connections { open, max } = &status.connections;
        let [rate, failed, p50, p99] = recent(status.recent.as_ref());
        let requests = format!("{rate} requests/s, 5xx {failed}/s, p50 {p50}, p99 {p99}");
        let (mut bar, mut legend) = (vec![Span::from(format!("last {window} ["))], Vec::new());
        let cells = shares(self.outcomes, width.saturating_sub(bar[0].width() + 1));
        let all = self.outcomes.iter().sum::<u64>();
        for (place, outcome) in RequestOutcome::VARIANTS.iter().enumerate() {
            let (mark, color) = mark(*outcome);
            bar.push(mark.repeat(cells[place]).fg(color));
            if self.outcomes[place] > 0 {
                let percent = (self.outcomes[place] * 100 + all / 2) / all;
                let less = if percent == 0 { "<" } else { "" };
                let percent = percent.max(1);
                legend.push(format!("{mark}{} {less}{percent}%  ", outcome.as_str()).fg(color));
            }
        }
        bar.push("]".into());
        let problems = &status.problem_details;
        let is_critical = |one: &&Problem| one.severity == Severity::Critical;
        let problems = match (problems.len(), problems.iter().filter(is_critical).count()) {
            (0, _) => "no problems".green(),
            (all, critical) => format!("problems: {all}, critical: {critical}")
                .red()
                .bold(),
        };
        vec![
            format!("{requests}, {open} of {max} connections").into(),
            bar.into(),
            legend.into(),
            problems.into(),
        ]
    }

    /// The keys; those of a client, or else of an address, follow its first one.
    fn keys(&self) -> Vec<String> {
        let seconds = self.top.counted_s.max(0.001);
        let row = |item: &&TopItem| {
            let (key, counts) = (key(item), &item.counts);
            let owner = &item.owner;
            let client = [&owner.client, &owner.address].into_iter().flatten();
            let client = client
                .filter(|text| ***text != *key)
                .map(|text| visible::text(text));
            let (client, policy) = (client.collect::<Vec<_>>().join(", "), &item.policy);
            let [limited, requests, units] = [counts.limited, counts.requests, counts.units];
            let rate = [limited, requests, units][self.top.by as usize];
            let rate = known(rate.map(|count| decimal(count as f64 / seconds)));
            let [limited, requests, units] = [limited, requests, units].map(known);
            let key = visible::cut(&key, MAX_TEXT);
            let first = counts.first_s.map(f64::round).map(span);
            let refused_for = known(first);
            format!(
                "{key}\t{client}\t{policy}\t{limited}\t{refused_for}\t{requests}\t{units}\t{rate}"
            )
        };
        let mut items: Vec<_> = self.top.items.iter().collect();
        let places = items.iter().enumerate().rev();
        let first: HashMap<_, _> = places.map(|(place, item)| (who(item), place)).collect();
        items.sort_by_key(|item| first[who(item)]);
        items.iter().map(row).collect()
    }

    /// The policies, those that limit most first.
    fn policies(&self) -> Vec<String> {
        use LimitDecision::{Error, Limited, Overflowed, Routed, Shadowed, Tagged};
        let row = |policy: &&PolicyStatus| {
            let (name, quota, mode) = (&policy.name, &policy.quota, &policy.mode.current);
            let rate = |decisions: &[LimitDecision]| {
                let of = |one: &LimitDecision| Some(policy.recent?.0[*one as usize]);
                known(decisions.iter().map(of).sum::<Option<f64>>().map(decimal))
            };
            let all = rate(LimitDecision::VARIANTS);
            let (limited, error) = (rate(&[Limited]), rate(&[Error]));
            let beyond = rate(&[Overflowed, Routed, Shadowed, Tagged]);
            let percent = policy.mode.percent.map(|part| format!(" {part}%"));
            let percent = percent.unwrap_or_default();
            format!("{name}\t{quota}\t{mode}{percent}\t{all}\t{limited}\t{beyond}\t{error}")
        };
        let mut policies: Vec<_> = self.policies.iter().collect();
        policies.sort_by_key(|policy| {
            let rates = policy
                .recent
                .map(|recent| recent.0.map(|rate| (rate * 1_000.0) as u64));
            let rates = rates.unwrap_or_default();
            Reverse((
                rates[Limited as usize] + rates[Error as usize],
                rates[Shadowed as usize],
            ))
        });
        policies.iter().map(row).collect()
    }

    /// The upstreams, those with failing addresses first, then those that answer most with 5xx.
    fn upstreams(&self) -> Vec<String> {
        let row = |upstream: &UpstreamStatus| {
            let (name, endpoints) = (&upstream.name, &upstream.endpoints);
            let hosts = || endpoints.iter().flat_map(|endpoint| &endpoint.hosts);
            let work = hosts().filter(|host| host.state.works()).count();
            let all = hosts().count();
            let health = match endpoints.len() {
                0 => "built in".to_owned(),
                _ => format!("{work} of {all} work"),
            };
            let in_flight = hosts().map(|host| host.in_flight).sum::<usize>();
            let [rate, failed, p50, p99] = recent(upstream.recent.as_ref());
            let row = format!("{name}\t{health}\t{rate}\t{failed}\t{p50}\t{p99}\t{in_flight}");
            let recent = upstream.recent.as_ref();
            let failures = recent.map(|recent| recent.server_errors_per_s);
            let failures = (failures.unwrap_or_default() * 1_000.0) as u64;
            let order = (work == all && work >= endpoints.len(), Reverse(failures));
            (order, row)
        };
        let mut rows: Vec<_> = self.upstreams.iter().map(row).collect();
        rows.sort_by_key(|(order, _)| *order);
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

/// The heads of a table, and at most `most` of its rows.
fn table(
    (heads, numbers): (&'static str, usize),
    mut rows: Vec<String>,
    most: usize,
    width: usize,
) -> Vec<Line<'static>> {
    let all = rows.len();
    rows.truncate(most);
    let counted = heads.replacen('\t', &format!(" ({most} of {all})\t"), 1);
    let head = if all > most { counted } else { heads.into() };
    rows.insert(0, head);
    let cells = |row: &String| row.split('\t').map(visible::text).collect();
    let rows = rows.iter().map(cells).collect();
    let lines = aligned(rows, numbers..heads.len(), width);
    let mut lines: Vec<_> = lines.into_iter().map(Line::from).collect();
    lines[0].style = Style::new().reversed();
    lines
}

/// A problem in lines of this width, with what to do.
fn problem(problem: &Problem, now: Timestamp, width: usize) -> Vec<Line<'static>> {
    let (severity, sentence, remedy) = (problem.severity, &problem.text, &problem.remedy);
    let color = [Color::Red, Color::Yellow][severity as usize];
    let past = text::Span(now.since(problem.since.0));
    let text = format!("{severity} for {past}: {sentence} -> {remedy}");
    let lines = wrapped(&text, width).into_iter();
    lines.map(|line| line.fg(color).into()).collect()
}

/// A time, of seconds.
fn span(seconds: f64) -> text::Span {
    text::Span(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Rates of requests and of 5xx, and the median and the 99th percentile of times.
fn recent(recent: Option<&RecentTraffic>) -> [String; 4] {
    let time = |ms: Option<f64>| Some(span(ms? / 1_000.0).to_string());
    let texts = recent.map(|one| {
        let [all, failed] = [one.requests_per_s, one.server_errors_per_s].map(decimal);
        let [p50, p99] = [one.latency.p50_ms, one.latency.p99_ms].map(time);
        [Some(all), Some(failed), p50, p99]
    });
    texts.unwrap_or_default().map(known)
}

fn decimal(number: f64) -> String {
    format!("{number:.1}")
}

fn known(number: Option<impl ToString>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// The rows of each section. Each leaves what it does not need to those after it.
fn allot(mut room: usize, wanted: [usize; 4]) -> [usize; 4] {
    std::array::from_fn(|place| {
        let share = room * SHARES[place] / SHARES[place..].iter().sum::<usize>();
        let rows = wanted[place].min(share);
        room -= rows;
        rows
    })
}

/// The cells of a bar for each outcome.
fn shares(counts: [u64; OUTCOMES], width: usize) -> [usize; OUTCOMES] {
    let all = counts.iter().sum::<u64>().max(1) as f64;
    let (mut sum, mut end) = (0, 0);
    counts.map(|count| {
        sum += count;
        let begin = std::mem::replace(&mut end, (sum as f64 / all * width as f64).round() as usize);
        end - begin
    })
}

/// An outcome in the bar. Without colours the characters differ.
const fn mark(outcome: RequestOutcome) -> (&'static str, Color) {
    match outcome {
        RequestOutcome::Passed => ("=", Color::Green),
        RequestOutcome::Beyond => ("~", Color::Cyan),
        RequestOutcome::Denied => ("-", Color::Blue),
        RequestOutcome::Limited => ("#", Color::Yellow),
        RequestOutcome::Undecided => ("?", Color::Magenta),
        RequestOutcome::Failed => ("!", Color::Red),
    }
}

/// The words of a text in lines of this width; those after the first are indented. A longer word is cut.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::<String>::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(last) if width_of(last) + width_of(word) < width => *last += &format!(" {word}"),
            Some(_) => lines.push(fit(&format!("  {word}"), width)),
            None => lines.push(fit(word, width)),
        }
    }
    lines
}

/// The client of a key: its name, or else its address, or else the name of the key.
fn who(item: &TopItem) -> &str {
    let known = item.owner.client.as_ref().or(item.owner.address.as_ref());
    known.map_or(&item.key_id, |known| known)
}

/// The text of a key, or its name.
fn key(item: &TopItem) -> String {
    let part = |part: &PartText| match part {
        PartText::Value(text) => visible::key(text),
        PartText::Missing(()) => "(missing)".to_owned(),
        PartText::StandIn(parts) => {
            let texts = parts.iter();
            let texts = texts
                .map(|(name, value)| format!("{}={}", visible::text(name), visible::key(value)));
            texts.collect::<Vec<_>>().join(" ")
        }
    };
    match &item.owner.key {
        None | Some(Key::None | Key::Client { .. } | Key::Any { .. }) => item.key_id.clone(),
        Some(Key::One(text)) => visible::key(text),
        Some(Key::Parts(parts)) if parts.is_empty() => "every client".to_owned(),
        Some(Key::Parts(parts)) => parts.iter().map(part).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
pub(super) mod tests;
