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
             <title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{style}</style>\n</head>\n<body class=\"report\">\n"
        )?;
        self.write_header(f)?;
        f.write_str("<main>\n")?;
        self.write_figures(f)?;
        self.write_timeline(f)?;
        self.write_routes(f)?;
        if let Some(comparison) = self.comparison {
            self.write_comparison(comparison, f)?;
        }
        self.write_policies(f)?;
        self.write_origin(f)?;
        f.write_str("</main>\n</body>\n</html>\n")
    }
}

impl ReplayPage<'_> {
    fn write_header(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let report = self.report;
        writeln!(f, "<header><h1>Replay of {}</h1>", Text(self.log))?;
        write!(f, "<p class=\"soft\">{} requests", count(report.requests))?;
        if let (Some(from), Some(until)) = (&report.from, &report.until) {
            let (from, until) = (time(from), time(until));
            write!(f, ", from {from} to {until}")?;
        }
        if let Some(scope) = &report.scope {
            write!(f, "; {}", Text(scope))?;
        }
        writeln!(f, "</p></header>")
    }

    fn write_figures(&self, f: &mut Formatter<'_>) -> fmt::Result {
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
        f.write_str("<dl class=\"figures\">")?;
        for (place, (name, number, class)) in figures.into_iter().enumerate() {
            // The first three are always there.
            if place > 2 && number == 0 {
                continue;
            }
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
            write!(
                f,
                "<div class=\"figure\"><dt>{mark}{name}</dt><dd class=\"value\">{number}</dd>\
                 <dd class=\"small soft\">{note}</dd></div>"
            )?;
        }
        f.write_str("</dl>\n")
    }

    fn write_timeline(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let timeline = &self.report.timeline;
        if timeline.parts.is_empty() {
            return Ok(());
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
        write!(
            f,
            "<section><h2>Over time</h2>\n<p class=\"legend small\">{}<span>each bar is {step}, times are in UTC</span></p>\n\
             {bars}{}</section>\n",
            bars.legend(),
            chart::NumbersTable(&bars)
        )
    }

    fn write_policies(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let policies = &self.report.policies;
        if policies.is_empty() {
            return Ok(());
        }
        f.write_str("<section><h2>Policies</h2>\n<div class=\"cards\">\n")?;
        let shown = policies.iter().take(MAX_SECTIONS);
        for (place, policy) in shown.enumerate() {
            self.write_policy(place, policy, f)?;
        }
        f.write_str("</div>")?;
        left_out(policies.len(), MAX_SECTIONS, "policies", f)?;
        f.write_str("</section>\n")
    }

    /// The files, and what makes the numbers doubtful.
    fn write_origin(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("<section><h2>Sources</h2>\n<dl class=\"facts\">")?;
        let facts = [
            ("Log", Some(self.log)),
            ("Configuration", Some(self.config)),
            ("Compared with", self.against),
            ("Program", Some(self.program)),
        ];
        for (name, value) in facts {
            if let Some(value) = value {
                write!(f, "<dt>{name}</dt><dd>{}</dd>", Text(value))?;
            }
        }
        f.write_str("</dl>\n<p class=\"soft small\">Buckets began full, and times are those of the log. Keys can be API keys, \
             cookies or addresses: anyone who has this page can act as these clients.</p>\n")?;
        let remarks = self.report.remarks().to_string();
        if !remarks.is_empty() {
            let remarks = Text(remarks.trim_start());
            writeln!(
                f,
                "<pre class=\"text\" tabindex=\"0\" role=\"region\" aria-label=\"Remarks\">{remarks}</pre>"
            )?;
        }
        for (reason, number) in &self.report.answered {
            let number = count(*number);
            writeln!(
                f,
                "<p>{number} requests were answered before any limit: {}</p>",
                Text(reason)
            )?;
        }
        f.write_str("</section>\n")
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
