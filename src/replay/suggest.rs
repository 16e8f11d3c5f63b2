//! Finds the route and the key of each request of a log, for which [`traffic`] proposes limits.

use std::collections::HashSet;
use std::io::Read;

use traffic::{
    KnownRoute, LogEntry, LogReader, NoLimit, Options, ReadError, Suggestion, Survey,
    SurveyedRequest, Wishes,
};

use super::simulation::{SECRET, build_all, key_name};
use crate::config::{self, Loaded, Report};
use crate::proxy::Ruleset;
use crate::proxy::inspect::dry_run::route;
use crate::proxy::ruleset::RulesetSpec;
use crate::rules::{Descriptor, Head, Key, KeyPart};

/// Why nothing was proposed.
#[derive(Debug)]
pub enum SuggestError {
    /// The key isn't valid.
    Key(Report),
    /// The configuration isn't valid.
    Config(Report),
    /// The log can't be read.
    Log(ReadError),
}

/// Proposes limits for a log: for the routes of `config` that have none, or for routes that the log
/// suggests.
///
/// # Errors
/// See [`SuggestError`]. Lines that can't be read aren't an error: the result names them.
pub fn suggest(
    wishes: Wishes,
    config: Option<&Loaded>,
    options: &Options,
    log: impl Read,
) -> Result<Suggestion, SuggestError> {
    let rules = config.map(config::compile_rules).transpose();
    let rules = rules.map_err(SuggestError::Config)?;
    let (key, key_rules) = compile_key(&wishes.key, rules.as_ref()).map_err(SuggestError::Key)?;
    let ruleset = build_all(rules.unwrap_or(key_rules));
    let mut survey = Survey::new(config.map(|config| known_routes(&ruleset, config)));
    for line in LogReader::new(options, log) {
        let line = line.map_err(SuggestError::Log)?;
        match line.entry {
            Ok(entry) => count(&mut survey, line.number, &entry, &ruleset, &key),
            Err(reason) => survey.note_unparsable(line.number, &reason),
        }
    }
    let policies = config.map_or(&[][..], |_| &ruleset.policies);
    let names = policies.iter().map(|policy| policy.name.to_string());
    Ok(survey.suggest(wishes, HashSet::from_iter(names)))
}

/// The routes of a configuration.
fn known_routes(ruleset: &Ruleset, config: &Loaded) -> Vec<KnownRoute> {
    let routes = ruleset.routes.iter().enumerate();
    let routes = routes.map(|(place, route)| KnownRoute {
        name: route.name.to_string(),
        requests_for: String::new(),
        no_limit: if config.has_own_limits(place) {
            Some(NoLimit::Limited)
        } else {
            config.is_answered(place).then_some(NoLimit::Answered)
        },
    });
    routes.collect()
}

fn count(survey: &mut Survey, line: u64, entry: &LogEntry, ruleset: &Ruleset, key: &Descriptor) {
    let time = entry.time;
    let counted = entry.head.as_ref().map_err(|reason| *reason);
    let counted = counted.and_then(|logged| {
        let routed = route(ruleset, &logged.request, entry.peer, time, |route, head| {
            let request = SurveyedRequest {
                time,
                path: head.path,
                route,
                key: match key.fingerprint(&SECRET, head) {
                    Key::Bucket(fingerprint) => Some(fingerprint),
                    _ => None,
                },
                lacks_key: lacks_part(key, head),
            };
            survey.count(line, &request, || key_name(key, head));
        });
        routed.map_err(|error| error.detail())
    });
    if let Err(reason) = counted {
        survey.count_answered(line, time, reason);
    }
}

fn lacks_part(key: &Descriptor, head: &Head<'_>) -> bool {
    let mut parts = key.parts.iter();
    parts.any(|part| part.is_from_fields() && part.is_missing(head))
}

/// The key that a configuration has with `text`, and the rules of one that has nothing else.
fn compile_key(
    text: &str,
    rules: Option<&RulesetSpec>,
) -> Result<(Descriptor, RulesetSpec), Report> {
    let mut configuration = serde_json::json!({
        "routes": [{ "upstream": "echo", "limits": [{ "key": text, "quota": "1/1s" }] }],
    });
    if let Some(rules) = rules {
        configuration["client_ip"]["ipv6_prefix"] = rules.client_ip.ipv6_prefix.into();
    }
    let loaded = config::parse("--key", configuration.to_string(), &|_| None)?;
    let mut rules = config::compile_rules(&loaded)?;
    let descriptor = rules.routes[0].limits.remove(0).descriptor;
    let is_of_route = |part: &KeyPart| matches!(part, KeyPart::Route(_) | KeyPart::Segment { .. });
    if descriptor.parts.iter().any(is_of_route) {
        let message = "suggest finds keys in requests, and this one depends on the route";
        return Err(Report::of_file("--key", message.to_owned(), None));
    }
    Ok((descriptor, rules))
}

#[cfg(test)]
mod tests;
