//! The report as one page that needs nothing else: no script, no request, no other file. It shows the
//! numbers of the report, and keys as the text does. Whatever the log, its size is bounded.

mod chart;
mod escape;
mod policy;
mod table;

use std::fmt::{self, Display, Formatter};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use readable::time::Span;

use super::{CountRange, ReplayReport};
use crate::comparison::Comparison;
use chart::Bars;
use escape::{Text, count};
use table::left_out;

/// The styles of this page alone.
const STYLE: &str = include_str!("html/page.css");
/// The most policies with a section, and routes and policies in a table.
const MAX_SECTIONS: usize = 40;
const MAX_ROWS: usize = 200;

/// A page about a replay.
#[derive(Debug)]
pub struct ReplayPage<'a> {
    /// The report; the later one of a comparison.
    pub report: &'a ReplayReport,
    /// The comparison, if there are two configurations.
    pub comparison: Option<&'a Comparison>,
    /// The log, as the user named it.
    pub log: &'a str,
    /// The configuration.
    pub config: &'a str,
    /// The configuration that it is compared with.
    pub against: Option<&'a str>,
    /// The program that decided, with its version.
    pub program: &'a str,
    /// Styles of colours, type and tables.
    pub style: &'a str,
}

impl Display for ReplayPage<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let style = [self.style, STYLE].concat();
        let hash = STANDARD.encode(digest(&SHA256, style.as_bytes()));
        let title = Text(&format!("Replay of {}", self.log)).to_string();
        write!(
            f,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{hash}'; \
             img-src data:; base-uri 'none'; form-action 'none'\">\n\
             <title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{style}</style>\n</head>\n<body class=\"report\">\n\
             {}<main>\n{}{}{}{}{}{}</main>\n</body>\n</html>\n",
            self.header(),
            self.figures(),
            self.timeline(),
            self.routes(),
            self.comparison
                .map_or_else(String::new, |one| self.changes(one)),
            self.policies(),
            self.origin()
        )
    }
}

impl ReplayPage<'_> {
    fn header(&self) -> String {
        let report = self.report;
        let (log, requests) = (Text(self.log), count(report.requests));
        let span = report.from.as_ref().zip(report.until.as_ref());
        let span = span.map(|(from, until)| format!(", from {} to {}", time(from), time(until)));
        let scope = report.scope.as_ref();
        let scope = scope.map(|scope| format!("; {}", Text(scope)));
        let (span, scope) = (span.unwrap_or_default(), scope.unwrap_or_default());
        format!(
            "<header><h1>Replay of {log}</h1>\n<p class=\"soft\">{requests} requests{span}{scope}</p></header>\n"
        )
    }

    fn figures(&self) -> String {
        let (report, counts) = (self.report, &self.report.counts);
        let figures = [
            ("Requests", report.requests, ""),
            ("Allowed", counts.allowed, "allowed"),
            ("Limited", counts.limited, "limited"),
            ("Delayed", counts.delayed, "delayed"),
            ("Would be limited", report.shadowed, "shadowed"),
            ("No limit applied", counts.unlimited, "unlimited"),
            (
                "Answered before any limit",
                report.answered.values().sum(),
                "answered",
            ),
        ];
        let figures = figures.into_iter().enumerate();
        // The first three are always there.
        let figures = figures.filter(|(place, (_, number, _))| *place < 3 || *number > 0);
        let figures = figures.map(|(_, (name, number, class))| {
            let mark = match class {
                "" | "answered" => String::new(),
                class => format!("<span class=\"mark {class}\"></span>"),
            };
            let note = match class {
                "shadowed" => "by policies in shadow".to_owned(),
                "" => String::new(),
                _ => share(number, report.requests),
            };
            let number = count(number);
            format!(
                "<div class=\"figure\"><dt>{mark}{name}</dt><dd class=\"value\">{number}</dd>\
                 <dd class=\"small soft\">{note}</dd></div>"
            )
        });
        let figures = figures.collect::<String>();
        format!("<dl class=\"figures\">{figures}</dl>\n")
    }

    fn timeline(&self) -> String {
        let timeline = &self.report.timeline;
        if timeline.parts.is_empty() {
            return String::new();
        }
        let step = Span(std::time::Duration::from_micros(timeline.step_ms.0));
        let values = |of: fn(&super::OutcomeCounts) -> u64| timeline.parts.iter().map(of).collect();
        let series = [
            ("allowed", values(|part| part.allowed)),
            ("unlimited", values(|part| part.unlimited)),
            ("delayed", values(|part| part.delayed)),
            ("limited", values(|part| part.limited)),
        ];
        let bars = Bars::new("Requests over time", timeline, false, series);
        format!(
            "<section><h2>Over time</h2>\n<p class=\"row legend small\">{}<span>each bar is {step}, times are in UTC</span></p>\n\
             {bars}{}</section>\n",
            bars.legend(),
            bars.numbers_table()
        )
    }

    fn policies(&self) -> String {
        let policies = &self.report.policies;
        if policies.is_empty() {
            return String::new();
        }
        let shown = policies.iter().take(MAX_SECTIONS).enumerate();
        let cards = shown.map(|(place, policy)| self.policy(place, policy));
        let cards = cards.collect::<String>();
        let more = left_out(policies.len(), MAX_SECTIONS, "policies");
        format!(
            "<section><h2>Policies</h2>\n<div class=\"cards\">\n{cards}</div>{more}</section>\n"
        )
    }

    /// The files, and what makes the numbers doubtful.
    fn origin(&self) -> String {
        let facts = [
            ("Log", Some(self.log)),
            ("Configuration", Some(self.config)),
            ("Compared with", self.against),
            ("Program", Some(self.program)),
        ];
        let facts = facts.into_iter().filter_map(|(name, value)| {
            let value = Text(value?);
            Some(format!("<dt>{name}</dt><dd>{value}</dd>"))
        });
        let remarks = self.report.remarks().to_string();
        let remarks = match remarks.trim_start() {
            "" => String::new(),
            remarks => format!(
                "<pre class=\"text\" tabindex=\"0\" role=\"region\" aria-label=\"Remarks\">{}</pre>\n",
                Text(remarks)
            ),
        };
        let answered = self.report.answered.iter().map(|(reason, number)| {
            let (number, reason) = (count(*number), Text(reason));
            format!("<p>{number} requests were answered before any limit: {reason}</p>\n")
        });
        format!(
            "<section><h2>Sources</h2>\n<dl class=\"facts\">{}</dl>\n\
             <p class=\"soft small\">Buckets began full, and times are those of the log. Keys can be API keys, \
             cookies or addresses: anyone who has this page can act as these clients.</p>\n{remarks}{}</section>\n",
            facts.collect::<String>(),
            answered.collect::<String>()
        )
    }
}

/// A time with its machine-readable form.
fn time(rfc_3339: &str) -> String {
    let people = rfc_3339.replacen('T', " ", 1).replace('Z', " UTC");
    format!(
        "<time datetime=\"{}\">{}</time>",
        Text(rfc_3339),
        Text(&people)
    )
}

fn share(number: u64, of: u64) -> String {
    match of {
        0 => String::new(),
        of => format!("{:.1} %", number as f64 / of as f64 * 100.0),
    }
}
