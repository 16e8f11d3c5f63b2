//! The access rules of a route.

use std::sync::Arc;

use crate::rules::{Access, Denial, Head};
use crate::telemetry::metrics::access_denied;
use crate::telemetry::registry::{Counter, Registry};

/// The access rules of a route: the top-level ones and its own.
#[derive(Debug)]
pub struct RouteAccess {
    /// All of these have to let a request pass.
    pub rules: Vec<Arc<Access>>,
    /// Requests that were denied.
    pub denied: Counter,
}

impl RouteAccess {
    /// Makes the access rules of the route with this name; `None` if there are none.
    pub fn new(registry: &Registry, route: &str, rules: Vec<Arc<Access>>) -> Option<Self> {
        if rules.is_empty() {
            return None;
        }
        Some(Self {
            rules,
            denied: access_denied(registry, route),
        })
    }

    /// The reason if the rules deny a request.
    pub fn denial(&self, head: &Head<'_>) -> Option<Denial> {
        self.rules.iter().find_map(|access| access.denial(head))
    }
}
