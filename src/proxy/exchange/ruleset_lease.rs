//! The lease of an exchange on its ruleset: all of it until the response begins, then only the
//! parts that the end of a long response needs. A WebSocket outlives many rulesets, and would keep
//! each in memory.

use std::sync::Arc;

use crate::proxy::ruleset::{Route, Ruleset};
use crate::telemetry::access_log::AccessLog;

/// The ruleset of one exchange, unchanged by reloads.
#[derive(Debug)]
pub(in crate::proxy) struct RulesetLease(Extent);

#[derive(Debug)]
enum Extent {
    Whole(Arc<Ruleset>),
    /// The parts that count and log the end.
    End {
        route: Arc<Route>,
        access_log: Option<Arc<AccessLog>>,
    },
}

impl RulesetLease {
    pub(super) fn new(ruleset: Arc<Ruleset>) -> Self {
        RulesetLease(Extent::Whole(ruleset))
    }

    /// The whole ruleset.
    ///
    /// # Panics
    /// After [`RulesetLease::release`].
    pub(in crate::proxy) fn whole(&self) -> &Ruleset {
        match &self.0 {
            Extent::Whole(ruleset) => ruleset,
            Extent::End { .. } => panic!("nothing is decided once the response has begun"),
        }
    }

    /// The route at `place`, or the default route.
    pub(super) fn route(&self, place: Option<usize>) -> &Route {
        match &self.0 {
            Extent::Whole(ruleset) => ruleset.route(place),
            Extent::End { route, .. } => route,
        }
    }

    pub(super) fn access_log(&self) -> Option<&AccessLog> {
        match &self.0 {
            Extent::Whole(ruleset) => ruleset.access_log.as_deref(),
            Extent::End { access_log, .. } => access_log.as_deref(),
        }
    }

    /// Releases all but the parts that the end of an exchange on this route needs.
    pub(super) fn release(&mut self, place: Option<usize>) {
        if let Extent::Whole(ruleset) = &self.0 {
            self.0 = Extent::End {
                route: Arc::clone(ruleset.route(place)),
                access_log: ruleset.access_log.clone(),
            };
        }
    }
}
