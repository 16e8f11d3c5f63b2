//! What is decided about a request, and charged, without serving it: the steps of
//! [`gateway`](crate::proxy::gateway) up to the answer, in the same code.

use std::cell::OnceCell;
use std::net::IpAddr;

use http::StatusCode;

use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::http::message::Request;
use crate::limiter::Decision;
use crate::proxy::admission::settle::{ResponseEnd, ResponseHead, Settling};
use crate::proxy::admission::tag::{self, TagDecisions};
use crate::proxy::admission::{self, Admission};
use crate::proxy::answers::error::Error;
use crate::proxy::request::MatchedRequest;
use crate::proxy::ruleset::{Limit, Route, Ruleset};
use crate::proxy::target::RequestTarget;
use crate::rules::{BodyEnd, Head, ResponseOrigin};

/// What was decided about one request.
#[derive(Debug)]
pub struct DryRun<'a> {
    /// The place of the route that takes it; `None` where none does.
    pub place: Option<usize>,
    /// The request, as rules see it.
    pub head: Head<'a>,
    route: &'a Route,
    admission: Admission,
    tagged: TagDecisions,
}

/// What is known of the response to a request, which came from the upstream.
#[derive(Clone, Copy, Debug)]
pub struct RecordedResponse<'a> {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub headers: &'a Headers,
    /// The bytes of its body, where they are known.
    pub bytes: Option<u64>,
    /// Costs that it is known to have stated, by policy.
    pub costs: &'a [(String, u32)],
}

/// Decides at `now` about `request` from `peer`, charges its limits, and shows `to` what
/// came of it. What the response settles is settled at the same instant.
///
/// # Errors
/// What the proxy would answer by itself, before any limit; nothing is charged then.
pub fn dry_run<T>(
    snapshot: &Ruleset,
    request: &Request<()>,
    peer: IpAddr,
    now: Timestamp,
    response: Option<RecordedResponse<'_>>,
    to: impl FnOnce(DryRun<'_>) -> T,
) -> Result<T, Error> {
    let client_ip = snapshot.client_ip.resolve(peer, request.headers());
    let target = RequestTarget::of(request)?;
    let checked = OnceCell::new();
    let matched = MatchedRequest::new(snapshot, target.head(request, client_ip), now, &checked);
    let (route, head) = (matched.route, matched.head());
    let mut admission = admission::admit(route, &snapshot.secret, &head, now)?;
    let mut tagged = match admission.is_refused() {
        true => TagDecisions::default(),
        false => tag::decide_tags(route, &snapshot.secret, &head, now, Vec::new()),
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
        tagged.settle_by_head(answered, &mut settling);
        if let Some(bytes) = response.bytes {
            (ended.status, ended.bytes) = (Some(response.status), bytes);
        }
    }
    admission.settle_by_body(ended, &mut settling);
    tagged.settle_by_body(ended, &mut settling);
    Ok(to(DryRun {
        place: matched.route_index,
        head,
        route,
        admission,
        tagged,
    }))
}

impl DryRun<'_> {
    /// Whether a limit refuses the request.
    pub fn is_refused(&self) -> bool {
        self.admission.is_refused()
    }

    /// Whether no limit applied, not even one that only watches or tags.
    pub fn is_unlimited(&self) -> bool {
        let applied = self.deciding().is_some() || self.decisions().next().is_some();
        !applied && !self.tagged.applied && !self.admission.is_shadowed
    }

    /// The limit that decides, if any applies.
    pub fn deciding(&self) -> Option<&Limit> {
        self.admission.deciding(self.route)
    }

    /// What it says; `None` where it refuses for want of a key.
    pub fn decision(&self) -> Option<&Decision> {
        self.admission.decision()
    }

    /// The limit for which the request has to wait longest, if it has to wait, with what it says.
    pub fn delaying(&self) -> Option<(&Limit, &Decision)> {
        self.admission.delaying(self.route)
    }

    /// The limits that admit the request at a lower priority.
    pub fn lowering(&self) -> impl Iterator<Item = &Limit> {
        self.admission.lowered(self.route).map(|(limit, _)| limit)
    }

    /// The limits that would have refused or delayed the request if they did not only watch.
    pub fn shadowing(&self) -> impl Iterator<Item = &Limit> {
        self.admission.shadowing(self.route)
    }

    /// Every limit that applies, with what it says; none where one refuses for want of a key.
    pub fn decisions(&self) -> impl Iterator<Item = (&Limit, &Decision)> {
        self.admission.decisions(self.route)
    }
}
