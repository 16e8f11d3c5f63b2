//! Explanations with the live state of keys: their buckets in memory and in Redis, bans, and units
//! that operators have granted. Nothing is charged.

use std::net::IpAddr;

use super::report::LimitReport;
use super::{Explanation, ExplanationReport, begin};
use crate::clock::Timestamp;
use crate::http::message::Request;
use crate::proxy::ruleset::Ruleset;
use crate::store::Caller;

/// The place of a value that stays secret.
const MASK: &str = "***";

/// Begins to explain the decision of a running ruleset on `request` from the peer at `from`.
pub fn explain_live(
    ruleset: &Ruleset,
    request: Request<()>,
    from: IpAddr,
    now: Timestamp,
) -> Explanation<'_> {
    begin(ruleset, &ruleset.store, request, from, now)
}

impl Explanation<'_> {
    /// Asks Redis, and reads the state of the keys, one after the other, each call within the client's
    /// deadline. Secrets of the request are masked: values of fields, cookies, parameters and
    /// claims.
    pub async fn conclude(mut self) -> ExplanationReport {
        let now = self.now;
        if let Ok(trace) = &mut self.trace {
            if let (Some(pending), Some(redis)) =
                (trace.peeked.pending.take(), self.ruleset.store.redis())
            {
                let caller = Caller {
                    worker: redis.operator_worker(),
                    client: None,
                };
                let (limits, result) = (&trace.rules.limits, &mut trace.admission.result);
                trace.is_undecided = pending.decide(caller, limits, result).await.is_err();
            }
            for limit in &mut trace.limits {
                if let Some((key, probe)) = &limit.key {
                    let facts = key.facts(*probe, now).await;
                    limit.report.state = facts.ok().map(|facts| facts.state(key));
                }
            }
        }
        self.mask_secrets();
        self.report()
    }

    /// Masks the query of the URL, and the values of key parts that only the client has to know.
    fn mask_secrets(&mut self) {
        let url = &mut self.report.request.url;
        if let Some(query) = url.find('?') {
            url.replace_range(query + 1.., MASK);
        }
        for limit in self.trace.iter_mut().flat_map(|trace| &mut trace.limits) {
            let LimitReport { key, state, .. } = &mut limit.report;
            let exception = state.as_mut().and_then(|state| state.override_for.as_mut());
            let exception = exception.filter(|_| key.iter().any(|part| part.is_secret));
            let secrets = key.iter_mut().filter(|part| part.is_secret);
            let secrets = secrets.filter_map(|part| part.value.as_mut());
            for secret in secrets.chain(exception) {
                MASK.clone_into(secret);
            }
        }
    }
}
