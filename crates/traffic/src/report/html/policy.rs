//! A policy on the page: when it limited, whom, and how close clients came to it.

use std::time::Duration;

use readable::time::Span;

use super::super::{KeyReport, PolicyReport, client_count};
use super::chart::Bars;
use super::escape::{Text, count};
use super::table::table;
use super::{CountRange, ReplayPage, share, time};

impl ReplayPage<'_> {
    pub(super) fn policy(&self, place: usize, policy: &PolicyReport) -> String {
        let (name, rule) = (Text(&policy.policy), Text(&policy.rule));
        let is_limiting = policy.limited_clients > 0 && !policy.would_limit;
        let class = if is_limiting { "card refused" } else { "card" };
        let limited = client_count(policy.limited_clients);
        let (clients, verb) = (client_count(policy.clients), policy.verb());
        let longest = policy.longest.as_ref().map(|longest| {
            let limited = Span(Duration::from_micros(longest.limited_ms.0));
            let (key, from) = (Text(&longest.key), time(&longest.from));
            format!(
                "<p class=\"small\">The longest single wait was {limited} from {from}: <span class=\"key\">{key}</span></p>\n"
            )
        });
        let most = if policy.would_limit {
            "Would be limited most"
        } else {
            "Limited most"
        };
        format!(
            "<article class=\"{class}\" aria-labelledby=\"policy-{place}\"><div><h3 id=\"policy-{place}\">{name}</h3>\
             <p class=\"soft small\">{rule}</p></div>\n\
             <p><b>{limited}</b> of {clients} clients {verb}</p>\n{}{}{}{}</article>\n",
            self.policy_timeline(policy).unwrap_or_default(),
            longest.unwrap_or_default(),
            keys(most, &policy.most_limited),
            keys("Busiest", &policy.busiest),
        )
    }

    fn policy_timeline(&self, policy: &PolicyReport) -> Option<String> {
        let timeline = &self.report.timeline;
        let mut policies = timeline.policies.iter();
        let counted = policies.find(|one| one.policy == policy.policy)?;
        let label = format!("Requests that {} limits over time", policy.policy);
        let series = [
            ("limited", counted.limited.clone()),
            ("shadowed", counted.shadowed.clone()),
        ];
        let bars = Bars::new(&label, timeline, true, series);
        let legend = bars.legend();
        Some(format!("<p class=\"row legend small\">{legend}</p>{bars}"))
    }
}

fn keys(what: &str, keys: &[KeyReport]) -> String {
    if keys.is_empty() {
        return String::new();
    }
    let has_requests = keys.iter().any(|key| key.requests.is_some());
    let heads = ["Client", "Requests", "Of requests", "Share"];
    let heads = &heads[..if has_requests { 4 } else { 2 }];
    let rows = keys.iter().map(|key| {
        let exact = |of: CountRange| Some((key.count.exact()?, of.exact()?));
        let share = key
            .requests
            .and_then(exact)
            .map(|(count, of)| share(count, of));
        let mut row = vec![
            format!("<span class=\"key\">{}</span>", Text(&key.key)),
            range(key.count),
            key.requests.map(range).unwrap_or_default(),
            share.unwrap_or_default(),
        ];
        row.truncate(heads.len());
        row
    });
    let table = table(what, heads, 1, rows);
    format!("<div><h4>{what}</h4>{table}</div>\n")
}

/// A count, which may be a range.
fn range(counted: CountRange) -> String {
    match counted.exact() {
        Some(number) => count(number),
        None => format!("{} to {}", count(counted.least), count(counted.most)),
    }
}
