//! A policy on the page: when it limited, whom, and how close clients came to it.

use std::fmt::{self, Formatter};
use std::time::Duration;

use super::super::{KeyReport, PolicyReport, client_count};
use super::chart::Bars;
use super::escape::{Text, count};
use super::table::write_table;
use super::{CountRange, ReplayPage, share, time};
use readable::time::Span;

impl ReplayPage<'_> {
    pub(super) fn write_policy(
        &self,
        place: usize,
        policy: &PolicyReport,
        f: &mut Formatter<'_>,
    ) -> fmt::Result {
        let name = Text(&policy.policy);
        let is_limiting = policy.limited_clients > 0 && !policy.would_limit;
        let class = if is_limiting { "card refused" } else { "card" };
        writeln!(
            f,
            "<article class=\"{class}\" aria-labelledby=\"policy-{place}\"><div><h3 id=\"policy-{place}\">{name}</h3>\
             <p class=\"soft small\">{}</p></div>",
            Text(&policy.rule)
        )?;
        let (limited, clients) = (
            client_count(policy.limited_clients),
            client_count(policy.clients),
        );
        let verb = policy.verb();
        writeln!(f, "<p><b>{limited}</b> of {clients} clients {verb}</p>")?;
        self.write_policy_timeline(policy, f)?;
        if let Some(longest) = &policy.longest {
            let limited = Span(Duration::from_micros(longest.limited_ms.0));
            let (key, from) = (Text(&longest.key), time(&longest.from));
            writeln!(
                f,
                "<p class=\"small\">The longest single wait was {limited} from {from}: <span class=\"key\">{key}</span></p>"
            )?;
        }
        let most = if policy.would_limit {
            "Would be limited most"
        } else {
            "Limited most"
        };
        write_keys(most, &policy.most_limited, f)?;
        write_keys("Busiest", &policy.busiest, f)?;
        f.write_str("</article>\n")
    }

    fn write_policy_timeline(&self, policy: &PolicyReport, f: &mut Formatter<'_>) -> fmt::Result {
        let timeline = &self.report.timeline;
        let counted = timeline
            .policies
            .iter()
            .find(|one| one.policy == policy.policy);
        let Some(counted) = counted else {
            return Ok(());
        };
        let label = format!("Requests that {} limits over time", policy.policy);
        let series = [
            ("limited", counted.limited.clone()),
            ("shadowed", counted.shadowed.clone()),
        ];
        let bars = Bars::new(&label, timeline, true, series);
        let legend = bars.legend();
        write!(f, "<p class=\"legend small\">{legend}</p>{bars}")
    }
}

fn write_keys(what: &str, keys: &[KeyReport], f: &mut Formatter<'_>) -> fmt::Result {
    if keys.is_empty() {
        return Ok(());
    }
    let has_requests = keys.iter().any(|key| key.requests.is_some());
    let heads: &[&str] = if has_requests {
        &["Client", "Requests", "Of requests", "Share"]
    } else {
        &["Client", "Requests"]
    };
    let rows = keys.iter().map(|key| {
        let exact = key
            .requests
            .and_then(|of| Some((key.count.exact()?, of.exact()?)));
        let mut row = vec![
            format!("<span class=\"key\">{}</span>", Text(&key.key)),
            range(key.count),
            key.requests.map(range).unwrap_or_default(),
            exact
                .map(|(count, of)| share(count, of))
                .unwrap_or_default(),
        ];
        row.truncate(heads.len());
        row
    });
    write!(f, "<div><h4>{what}</h4>")?;
    write_table(f, what, heads, 1, rows)?;
    f.write_str("</div>\n")
}

/// A count, which may be a range.
fn range(counted: CountRange) -> String {
    match counted.exact() {
        Some(number) => count(number),
        None => format!("{} to {}", count(counted.least), count(counted.most)),
    }
}
