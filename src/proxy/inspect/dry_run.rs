//! Decides on a request and charges its limits without serving it: the steps of
//! [`gateway`](crate::proxy::gateway) up to the response, in the same code.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use smallvec::SmallVec;

use crate::clock::Timestamp;
use crate::http::framing;
use crate::http::headers::Headers;
use crate::http::message::Request;
use crate::limiter::bucket::BucketView;
use crate::limiter::{Decision, Demand, Fingerprint};
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::settle::{ResponseEnd, ResponseHead, Settling};
use crate::proxy::admission::{self, Admission, AdmissionInputs, tag};
use crate::proxy::answers::error::Error;
use crate::proxy::inspect::{Checked, MatchedRequest, sender};
use crate::proxy::ruleset::{Limit, Policy, Route, Ruleset};
use crate::proxy::target::RequestTarget;
use crate::rules::{BodyEnd, Denial, Head, ResponseOrigin};
use crate::store::{Attribution, InUse, KeyChange, Store};
use crate::telemetry::metrics::LimitDecision;

/// Decision on one request.
#[derive(Debug)]
pub struct DryRun<'a> {
    /// The index of the matched route; `None` without one.
    pub place: Option<usize>,
    /// The head, as limits see it.
    pub head: Head<'a>,
    /// The policies that refuse because of a recorded ban.
    pub recorded_bans: SmallVec<[Arc<str>; 1]>,
    route: &'a Route,
    admission: Admission,
}

/// Recorded effects on a request, which the ruleset cannot know.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded<'a> {
    /// The response of the upstream.
    pub response: Option<RecordedResponse<'a>>,
    /// The policies whose granted units paid.
    pub granted: &'a [String],
    /// The policy that banned the key, and for how much longer.
    pub banned: Option<(&'a str, Duration)>,
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
/// Recorded grants pay what the quota refuses. A recorded ban refuses the request unless its policy
/// has a penalty, which bans by itself.
///
/// # Errors
/// An error that the proxy answers before any limit; nothing is charged.
pub fn dry_run<T>(
    ruleset: &Ruleset,
    request: &Request<()>,
    peer: IpAddr,
    now: Timestamp,
    recorded: Recorded<'_>,
    inspect: impl FnOnce(DryRun<'_>) -> T,
) -> Result<T, Error> {
    match_request(ruleset, request, peer, now, |matched, denial| {
        decide(matched, denial, now, recorded).map(inspect)
    })
}

/// Finds the route of `request` from `peer` at `now`, and passes its index and the head as limits see
/// it to `inspect`. Nothing is charged.
///
/// # Errors
/// An error that the proxy answers before any limit.
pub fn route<T>(
    ruleset: &Ruleset,
    request: &Request<()>,
    peer: IpAddr,
    now: Timestamp,
    inspect: impl FnOnce(Option<usize>, &Head<'_>) -> T,
) -> Result<T, Error> {
    match_request(
        ruleset,
        request,
        peer,
        now,
        |matched, denial| match denial {
            Some(denial) => Err(Error::Denied(denial)),
            None => Ok(inspect(matched.route_index, &matched.head())),
        },
    )
}

fn match_request<T>(
    ruleset: &Ruleset,
    request: &Request<()>,
    peer: IpAddr,
    now: Timestamp,
    then: impl FnOnce(&MatchedRequest<'_>, Option<Denial>) -> Result<T, Error>,
) -> Result<T, Error> {
    framing::check_head(request)?;
    let target = RequestTarget::of(request, ruleset.encoded_slashes)?;
    let checked = Checked::default();
    let sender = sender(ruleset, request, peer);
    let matched = MatchedRequest::new(ruleset, target.head(request, sender), now, &checked);
    target.check_route(matched.route)?;
    let access = matched.route.access.as_ref();
    let denial = access.and_then(|access| access.denial(&matched.head()));
    then(&matched, denial)
}

fn decide<'a>(
    matched: &'a MatchedRequest<'_>,
    denial: Option<Denial>,
    now: Timestamp,
    recorded: Recorded<'_>,
) -> Result<DryRun<'a>, Error> {
    let (route, head) = (matched.route, matched.head());
    let inputs = AdmissionInputs {
        // A request that would wait for units counts as refused: who comes meanwhile is not known yet.
        may_wait: false,
        ..AdmissionInputs::new(&Store::Memory, route, &head, now)
    };
    let steered = steer(&inputs, recorded);
    let mut admission = Admission::default();
    match &denial {
        Some(denial) => drop(inputs.admit_denied(denial.status, &mut admission)?),
        None => admission::admit_in_memory(&inputs, &mut admission)?,
    }
    if denial.is_none() && !admission.is_refused() {
        tag::charge_tags(&inputs, &mut admission);
    }
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
    if let Some(denial) = denial.filter(|_| !admission.is_refused()) {
        let answered = ResponseHead {
            status: denial.status,
            author: ResponseOrigin::Access,
            headers: &Headers::new(),
            recorded: &[],
        };
        admission.settle_by_head(answered, &mut settling);
        return Err(Error::Denied(denial));
    }
    if let Some(response) = recorded.response {
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
    Ok(DryRun {
        place: matched.route_index,
        head,
        recorded_bans: release(&steered, now),
        route,
        admission,
    })
}

/// A change of a key that a request charges.
type SteeredKey<'a> = (&'a Policy, Fingerprint, KeyChange);

/// Steers the keys of a request as recorded.
fn steer<'a>(
    inputs: &AdmissionInputs<'a>,
    recorded: Recorded<'_>,
) -> SmallVec<[SteeredKey<'a>; 1]> {
    let (mut changes, now) = (SmallVec::new(), inputs.now);
    if recorded.granted.is_empty() && recorded.banned.is_none() {
        return changes;
    }
    for limit in inputs.route.limits_for(inputs.head) {
        let policy = &*limit.policy;
        let Applicability::Bucket(key, _) = limit.evaluate(inputs.head) else {
            continue;
        };
        let is_granted = recorded.granted.iter().any(|name| **name == *policy.name);
        if is_granted && let Ok(units) = limit.spec.cost.of(inputs.head) {
            let until = now.saturating_add(Duration::from_secs(1));
            changes.push((policy, key, KeyChange::Grant { units, until }));
        }
        let ban = recorded.banned.filter(|(name, _)| **name == *policy.name);
        if let Some((_, length)) = ban.filter(|_| policy.penalties.is_none()) {
            let until = now.saturating_add(length.max(Duration::from_micros(1)));
            changes.push((policy, key, KeyChange::Ban { until }));
        }
    }
    changes.iter().for_each(|change| make(*change, now));
    changes
}

/// Ends grants and bans. Returns the policies that banned.
fn release(changes: &[SteeredKey<'_>], now: Timestamp) -> SmallVec<[Arc<str>; 1]> {
    let mut banned = SmallVec::new();
    for (policy, key, change) in changes {
        let end = match *change {
            KeyChange::Grant { until, .. } => KeyChange::Grant { units: 0, until },
            _ => KeyChange::Unban,
        };
        make((policy, *key, end), now);
        if end == KeyChange::Unban {
            banned.push(Arc::clone(&policy.name));
        }
    }
    banned
}

fn make((policy, key, change): SteeredKey<'_>, now: Timestamp) {
    let by = Attribution::default();
    // There is room: no other key is steered.
    let _ = policy.steering.keys().change(key, change, &by, now);
}

impl DryRun<'_> {
    /// A limit refuses the request.
    pub fn is_refused(&self) -> bool {
        self.admission.is_refused()
    }

    /// No limit applies, not even one in shadow or one that tags.
    pub fn is_unlimited(&self) -> bool {
        let mut records = self.admission.records.iter();
        records.all(|record| record.word == LimitDecision::Exempt)
    }

    /// The name of the policy or the soft limit that decides, if any applies.
    pub fn deciding(&self) -> Option<&Arc<str>> {
        let (deciding, id) = self.admission.deciding_charge(self.route)?;
        Some(deciding.name(id))
    }

    /// The decision; `None` if a limit refuses because the key is missing.
    pub fn decision(&self) -> Option<&Decision> {
        self.admission.decision()
    }

    /// The limit with the longest delay, and its decision, if a limit delays the request.
    pub fn delaying(&self) -> Option<(&Limit, &Decision)> {
        let (delaying, decision) = self.admission.delaying()?;
        Some((self.route.limit(delaying.limit), decision))
    }

    /// The limits that admit the request at a lower priority.
    pub fn lowering(&self) -> impl Iterator<Item = &Limit> {
        self.admission.lowered(self.route).map(|(limit, _)| limit)
    }

    /// The limits in shadow that would have refused or delayed the request.
    pub fn shadowing(&self) -> impl Iterator<Item = &Limit> {
        let decided = self.admission.decided();
        let shadowing = decided.filter(|(record, ..)| record.word == LimitDecision::Shadowed);
        shadowing.map(|(record, ..)| self.route.limit(record.limit))
    }

    /// The limits that apply, with the keys of their buckets and their decisions; none if one
    /// refuses because the key is missing.
    pub fn decisions(&self) -> impl Iterator<Item = (&Limit, Fingerprint, &Decision)> {
        let decided = self.admission.decided();
        decided.map(|(record, charge, decision)| {
            (self.route.limit(record.limit), charge.key, decision)
        })
    }

    /// What each limit that applies did to the request, in a word; also those without a bucket.
    pub fn words(&self) -> impl Iterator<Item = (&Limit, LimitDecision)> {
        let records = self.admission.records.iter();
        records.map(|record| (self.route.limit(record.limit), record.word))
    }

    /// The decision for the access log.
    pub fn logged(&self) -> LimitDecision {
        self.admission.logged(self.route).word
    }

    /// The buckets of the limits that apply, after the decision: those of the keys, not of further
    /// overflow tiers.
    pub fn views(&self, now: Timestamp) -> impl Iterator<Item = BucketView> {
        let limits = self.route.limits_for(&self.head).iter();
        limits.filter_map(move |limit| {
            let Applicability::Bucket(key, place) = limit.evaluate(&self.head) else {
                return None;
            };
            let quota = limit.quota(place);
            let window_end = quota.window_end(&self.head, now);
            Some(
                quota
                    .buckets
                    .charge(key, Demand::default(), window_end)
                    .view(now),
            )
        })
    }

    /// The units in use, which the request returns when they are dropped.
    pub fn into_units_in_use(mut self) -> Vec<InUse> {
        self.admission.result.take_in_use()
    }
}
