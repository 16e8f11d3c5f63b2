//! What an exchange holds of the ruleset that it began under: all of it until its response begins, then as much as a long
//! response needs at its end. A WebSocket outlives many rulesets, and would keep each in memory.

use std::sync::Arc;

use crate::proxy::ruleset::{Route, Ruleset};
use crate::telemetry::access_log::AccessLog;

/// The ruleset of one exchange, whatever is loaded meanwhile.
#[derive(Debug)]
pub(in crate::proxy) struct RulesetLease(Extent);

#[derive(Debug)]
enum Extent {
    Whole(Arc<Ruleset>),
    /// What counts and logs the end.
    End {
        route: Arc<Route>,
        access_log: Option<Arc<AccessLog>>,
    },
}

impl RulesetLease {
    pub(super) fn new(snapshot: Arc<Ruleset>) -> Self {
        RulesetLease(Extent::Whole(snapshot))
    }

    /// All of it.
    ///
    /// # Panics
    /// After [`Ruleset::release`].
    pub(in crate::proxy) fn whole(&self) -> &Ruleset {
        match &self.0 {
            Extent::Whole(snapshot) => snapshot,
            Extent::End { .. } => panic!("nothing is decided once the response has begun"),
        }
    }

    /// The route at this place, or what a request meets that no route takes.
    pub(super) fn route(&self, place: Option<usize>) -> &Route {
        match &self.0 {
            Extent::Whole(snapshot) => snapshot.route(place),
            Extent::End { route, .. } => route,
        }
    }

    pub(super) fn access_log(&self) -> Option<&AccessLog> {
        match &self.0 {
            Extent::Whole(snapshot) => snapshot.access_log.as_deref(),
            Extent::End { access_log, .. } => access_log.as_deref(),
        }
    }

    /// Lets go of all but what the end of an exchange on this route needs.
    pub(super) fn release(&mut self, place: Option<usize>) {
        if let Extent::Whole(snapshot) = &self.0 {
            self.0 = Extent::End {
                route: Arc::clone(snapshot.route(place)),
                access_log: snapshot.access_log.clone(),
            };
        }
    }
}
