//! Proposes limits for the requests of a log: for each route a quota that nearly all clients would
//! never have met, and what it would have done.
//!
//! `survey` reads the log, and `grouping` sorts its requests; `paths` finds routes where no
//! configuration has them; `peaks` and `quota` make a number; `yaml` writes the configuration;
//! `trial` runs it over the same requests, with the proxy's own buckets; `report` has the result.

mod grouping;
mod keys;
mod paths;
mod peaks;
mod quota;
mod report;
mod survey;
mod trial;
mod yaml;

use std::io::Read;

pub use keys::DEFAULT_KEY;
pub use quota::{Margin, Wishes};
pub use report::Suggestion;

use super::{Options, ReplayError};
use crate::config::{self, Loaded, Report};
use grouping::ByRoute;
use keys::KeyKind;
use quota::{MIN_KEYS, MIN_REQUESTS};
use report::{KeySuggestion, NoLimit, RouteSuggestion};
use survey::Survey;

/// Why nothing was proposed.
#[derive(Debug)]
pub enum SuggestError {
    /// The key is none.
    Key(Report),
    /// The configuration cannot be used.
    Config(Report),
    /// The log cannot be read.
    Log(ReplayError),
}

/// A route, however it was found.
struct KnownRoute {
    name: String,
    requests_for: String,
    /// The `match` of a found route.
    matches: Option<String>,
    no_limit: Option<NoLimit>,
}

/// Proposes limits for a log: for the routes of `config` that have none, or for routes that the log
/// suggests.
///
/// # Errors
/// See [`SuggestError`]. Lines that cannot be read are no error: the result names them.
pub fn suggest(
    wishes: &Wishes,
    config: Option<&Loaded>,
    options: &Options,
    log: impl Read,
) -> Result<Suggestion, SuggestError> {
    let rules = config.map(config::compile_rules).transpose();
    let rules = rules.map_err(SuggestError::Config)?;
    let empty = yaml::compile("routes: [{ upstream: echo }]").map_err(SuggestError::Config)?;
    let prefix = rules.as_ref().unwrap_or(&empty).client_ip.ipv6_prefix;
    let key = KeyKind::new(&wishes.key, prefix).map_err(SuggestError::Key)?;
    let survey = Survey::new(rules, empty, key);
    let survey = survey.read(options, log).map_err(SuggestError::Log)?;
    let (known, by_route) = routes_of(&survey, config);
    let mut suggestion = Suggestion::new(&survey, wishes, by_route.unrouted);
    for (place, route) in known.into_iter().enumerate() {
        let suggested = route.suggest(&survey, by_route.of(place), wishes.margin);
        suggestion.routes.push(suggested);
    }
    suggestion.yaml = yaml::write(&mut suggestion, config);
    let tried = trial::run(&mut suggestion, &survey, &by_route);
    tried.map_err(SuggestError::Config)?;
    Ok(suggestion)
}

/// The routes, and their requests.
fn routes_of(survey: &Survey, config: Option<&Loaded>) -> (Vec<KnownRoute>, ByRoute) {
    let places = &survey.requests.places;
    let (Some(paths), None) = (&survey.paths, config) else {
        let routes = survey.ruleset.routes.iter().enumerate();
        let routes = routes.map(|(place, route)| KnownRoute {
            name: route.name.to_string(),
            requests_for: String::new(),
            matches: None,
            no_limit: config.and_then(|config| NoLimit::of_configured(config, place)),
        });
        let routes: Vec<_> = routes.collect();
        let by_route = ByRoute::new(places.iter().copied(), routes.len());
        return (routes, by_route);
    };
    let mut counts = vec![0; paths.len()];
    for place in places {
        counts[*place as usize] += 1;
    }
    let (found, route_of) = paths.routes(&counts);
    let of_request = places.iter().map(|place| route_of[*place as usize] as u32);
    let by_route = ByRoute::new(of_request, found.len());
    let routes = found.into_iter().map(|route| KnownRoute {
        requests_for: route.describe(),
        matches: route.matches(),
        no_limit: None,
        name: route.name,
    });
    (routes.collect(), by_route)
}

impl KnownRoute {
    /// What these requests of the route suggest.
    fn suggest(self, survey: &Survey, requests: &[u32], margin: Margin) -> RouteSuggestion {
        let has_hour = survey.has_hour();
        let times = survey.requests.by_keys(requests);
        let is_little = requests.len() < MIN_REQUESTS || times.len() < MIN_KEYS;
        let no_limit = self.no_limit.or(is_little.then_some(NoLimit::LittleData));
        let mut limit = KeySuggestion::new(&times, margin, has_hour);
        if no_limit.is_some() {
            limit.proposal = None;
        }
        RouteSuggestion {
            requests: requests.len() as u64,
            policy: None,
            name: self.name,
            requests_for: self.requests_for,
            matches: self.matches,
            no_limit,
            limit,
        }
    }
}

#[cfg(test)]
mod tests;
