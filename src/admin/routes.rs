//! Routes: what they match, and which limits apply there.

use std::sync::Arc;

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::json::Json;
use super::state::AdminState;
use super::totals::{RecentTraffic, Traffic};
use crate::proxy::ruleset;

/// All routes.
#[derive(Serialize, JsonSchema)]
pub(super) struct RouteList {
    /// In the order of the configuration.
    routes: Vec<Route>,
    /// The policies of requests that no route takes.
    unmatched: Vec<Arc<str>>,
}

/// A route.
#[derive(Serialize, JsonSchema)]
struct Route {
    /// Its name.
    name: Arc<str>,
    /// Its conditions, for people.
    r#match: String,
    /// The upstream that gets its requests.
    upstream: Option<Arc<str>>,
    /// The policies of its limits, top-level ones first.
    limits: Vec<Arc<str>>,
    /// Its requests over the last 10 to 20 s. Null in the first 10 s after the start.
    recent: Option<RecentTraffic>,
}

pub(super) async fn list(State(state): State<AdminState>) -> Json<RouteList> {
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    let recent = |route: &ruleset::Route| {
        let traffic = Traffic::of_route(&route.metrics);
        state.history.since(now, |before, seconds| {
            traffic.rates_since(before.routes.get(&route.name), seconds)
        })
    };
    let routes = ruleset.routes.iter().zip(ruleset.router.routes());
    let routes = routes.map(|(route, matches)| Route {
        name: Arc::clone(&route.name),
        r#match: matches.to_string(),
        upstream: route.upstream().map(|one| Arc::clone(one.name())),
        limits: limits(route),
        recent: recent(route),
    });
    Json(RouteList {
        routes: routes.collect(),
        unmatched: limits(&ruleset.unmatched),
    })
}

fn limits(route: &ruleset::Route) -> Vec<Arc<str>> {
    let limits = route.limits.iter();
    limits.map(|limit| Arc::clone(&limit.policy.name)).collect()
}
