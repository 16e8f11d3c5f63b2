//! The lease of an exchange on its ruleset: all of it until the response begins, then only the
//! parts that the end of a long response needs. A WebSocket outlives many rulesets, and would keep
//! each in memory.

use std::sync::Arc;

use crate::proxy::ruleset::{Route, Ruleset};
use crate::telemetry::access_log::AccessLog;

/// The ruleset of one exchange, unchanged by reloads.
#[derive(Debug)]
pub(in crate::proxy) enum RulesetLease {
    Whole(Arc<Ruleset>),
    /// The parts that count and log the end.
    End {
        route: Arc<Route>,
        access_log: Option<Arc<AccessLog>>,
    },
}

impl RulesetLease {
    /// The whole ruleset.
    ///
    /// # Panics
    /// After [`RulesetLease::release`].
    pub(in crate::proxy) fn whole(&self) -> &Ruleset {
        match self {
            Self::Whole(ruleset) => ruleset,
            Self::End { .. } => panic!("nothing is decided once the response has begun"),
        }
    }

    /// The route at `place`, or the default route.
    pub(in crate::proxy) fn route(&self, place: Option<usize>) -> &Route {
        match self {
            Self::Whole(ruleset) => ruleset.route(place),
            Self::End { route, .. } => route,
        }
    }

    pub(super) fn access_log(&self) -> Option<&AccessLog> {
        match self {
            Self::Whole(ruleset) => ruleset.access_log.as_deref(),
            Self::End { access_log, .. } => access_log.as_deref(),
        }
    }

    /// Releases all but the parts that the end of an exchange on this route needs.
    pub(super) fn release(&mut self, place: Option<usize>) {
        if let Self::Whole(ruleset) = self {
            *self = Self::End {
                route: Arc::clone(ruleset.route(place)),
                access_log: ruleset.access_log.clone(),
            };
        }
    }
}
