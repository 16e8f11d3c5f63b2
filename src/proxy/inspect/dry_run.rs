//! Decides on a request and charges its limits without serving it: the steps of
//! [`gateway`](crate::proxy::gateway) up to the response, in the same code.

use std::cell::OnceCell;
use std::net::IpAddr;

use http::StatusCode;

use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::http::message::Request;
use crate::limiter::{BucketView, Decision, Secret};
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::settle::{ResponseEnd, ResponseHead, Settling};
use crate::proxy::admission::tag::{self, TagDecisions};
use crate::proxy::admission::{self, Admission, AdmissionInputs};
use crate::proxy::answers::error::Error;
use crate::proxy::request::MatchedRequest;
use crate::proxy::ruleset::{Limit, Route, Ruleset};
use crate::proxy::target::RequestTarget;
use crate::rules::{BodyEnd, Head, ResponseOrigin};
use crate::store::{InUse, Store};
use crate::telemetry::metrics::LimitDecision;

/// Decision on one request.
#[derive(Debug)]
pub struct DryRun<'a> {
    /// The index of the matched route; `None` without one.
    pub place: Option<usize>,
    /// The head, as limits see it.
    pub head: Head<'a>,
    route: &'a Route,
    admission: Admission,
    tagged: TagDecisions,
}

/// Recorded response of the upstream.
#[derive(Clone, Copy, Debug)]
pub struct RecordedResponse<'a> {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: &'a Headers,
    /// The length of the body in bytes, if known.
    pub bytes: Option<u64>,
    /// Recorded costs, by policy.
    pub costs: &'a [(String, u32)],
}

/// Decides at `now` on `request` from `peer`, charges its limits, and passes the decision to
/// `inspect`. The response settles its costs at the same instant.
///
/// # Errors
/// An error that the proxy answers before any limit; nothing is charged.
pub fn dry_run<T>(
    ruleset: &Ruleset,
    request: &Request<()>,
    peer: IpAddr,
    now: Timestamp,
    response: Option<RecordedResponse<'_>>,
    inspect: impl FnOnce(DryRun<'_>) -> T,
) -> Result<T, Error> {
    let client_ip = ruleset.client_ip.resolve(peer.into(), request.headers());
    let target = RequestTarget::of(request)?;
    let checked = OnceCell::new();
    let matched = MatchedRequest::new(ruleset, target.head(request, client_ip), now, &checked);
    let (route, head) = (matched.route, matched.head());
    let inputs = AdmissionInputs {
        route,
        secret: &ruleset.secret,
        head: &head,
        store: &Store::Memory,
        now,
    };
    let mut admission = Admission::default();
    admission::admit_in_memory(&inputs, &mut admission)?;
    let tagged = match admission.is_refused() {
        true => TagDecisions::default(),
        false => tag::decide_tags(&inputs, &mut admission),
    };
    let mut settling = Settling {
        route,
        now,
        stated: &mut Vec::new(),
    };
    let mut ended = ResponseEnd {
        status: None,
        bytes: 0,
        body: BodyEnd::Complete(None),
    };
    if let Some(response) = response {
        let answered = ResponseHead {
            status: response.status,
            author: ResponseOrigin::Upstream,
            headers: response.headers,
            recorded: response.costs,
        };
        admission.settle_by_head(answered, &mut settling);
        if let Some(bytes) = response.bytes {
            (ended.status, ended.bytes) = (Some(response.status), bytes);
        }
    }
    admission.settle_by_body(ended, &mut settling);
    Ok(inspect(DryRun {
        place: matched.route_index,
        head,
        route,
        admission,
        tagged,
    }))
}

impl DryRun<'_> {
    /// A limit refuses the request.
    pub fn is_refused(&self) -> bool {
        self.admission.is_refused()
    }

    /// No limit applies, not even one in shadow or one that tags.
    pub fn is_unlimited(&self) -> bool {
        let applied = self.deciding().is_some() || self.decisions().next().is_some();
        !applied && !self.tagged.applied && !self.admission.is_shadowed
    }

    /// The limit that decides, if any applies.
    pub fn deciding(&self) -> Option<&Limit> {
        self.admission.deciding(self.route)
    }

    /// The decision; `None` if a limit refuses because the key is missing.
    pub fn decision(&self) -> Option<&Decision> {
        self.admission.decision()
    }

    /// The limit with the longest delay, and its decision, if a limit delays the request.
    pub fn delaying(&self) -> Option<(&Limit, &Decision)> {
        self.admission.delaying(self.route)
    }

    /// The limits that admit the request at a lower priority.
    pub fn lowering(&self) -> impl Iterator<Item = &Limit> {
        self.admission.lowered(self.route).map(|(limit, _)| limit)
    }

    /// The limits in shadow that would have refused or delayed the request.
    pub fn shadowing(&self) -> impl Iterator<Item = &Limit> {
        self.admission.shadowing(self.route)
    }

    /// The limits that apply, and their decisions; none if one refuses because the key is missing.
    pub fn decisions(&self) -> impl Iterator<Item = (&Limit, &Decision)> {
        self.admission.decisions(self.route)
    }

    /// The decision for the access log.
    pub fn logged(&self) -> LimitDecision {
        self.admission.logged(self.route).word
    }

    /// The buckets of the limits that apply, after the decision: those of the keys, not of further
    /// overflow tiers.
    pub fn views(&self, secret: &Secret, now: Timestamp) -> impl Iterator<Item = BucketView> {
        let limits = self.route.limits_for(&self.head).iter();
        limits.filter_map(move |limit| {
            let Applicability::Bucket(key, place) = limit.evaluate(secret, &self.head) else {
                return None;
            };
            let policy = limit.quota(place);
            let window_end = policy.window_end(&self.head, now);
            Some(policy.buckets.view(key, window_end, now))
        })
    }

    /// The units in use, which the request returns when they are dropped.
    pub fn into_units_in_use(self) -> Vec<InUse> {
        self.admission.result.in_use
    }
}
