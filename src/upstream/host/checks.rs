//! Health checks of a host.

use std::sync::Arc;

use http::uri::Authority;
use tokio::time::Instant;

use super::Host;
use crate::upstream::health::check;
use crate::upstream::spec::HealthSpec;

impl Host {
    /// Begins a check, as a task of the current runtime, if one is due.
    pub(in crate::upstream) fn begin_check(
        self: &Arc<Self>,
        spec: &Arc<HealthSpec>,
        authority: &Authority,
        now: Instant,
    ) {
        if self.health.begin_check(spec.every, now) {
            let (host, spec) = (Arc::clone(self), Arc::clone(spec));
            let authority = authority.clone();
            tokio::spawn(async move {
                let failure = check(&host.connector, &spec, &authority).await.err();
                let is_known = !failure.as_ref().is_some_and(|failure| failure.is_local());
                let result = is_known.then_some(failure.is_none());
                if host.health.end_check(result, &spec, Instant::now()) {
                    host.report_health(failure.as_ref());
                }
            });
        }
    }
}
