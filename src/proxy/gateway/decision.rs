//! The decision of the limits on a request, and what it means for the request.

use std::sync::Arc;

use http::StatusCode;

use crate::http::message::Response;
use crate::proxy::admission::acquired_permits::AcquiredPermits;
use crate::proxy::admission::delay::Delay;
use crate::proxy::admission::early::Early;
use crate::proxy::admission::permit_queue::Pending;
use crate::proxy::admission::{Admission, AdmissionInputs, tag};
use crate::proxy::answers::action::{Action, TarpitSlot};
use crate::proxy::answers::error::Error;
use crate::proxy::body::ResponseBody;
use crate::proxy::debug_trail;
use crate::proxy::exchange::{Exchange, RequestContext, question};
use crate::proxy::ruleset::Route;
use crate::rules::{Denial, Head};
use crate::store::Undecided;

/// The outcome of admission: what happens to the request next.
pub(super) enum Disposition {
    /// Forward it, after a delay if a limit asks for one.
    Forward(Option<Box<Delay>>),
    /// A limit refuses it: the response is ready.
    Respond,
    /// A limit refuses it after a while.
    Tarpit(TarpitSlot),
    /// A limit answers it after a while as an upstream would, once its body is there.
    Decoy(TarpitSlot),
    /// A limit closes its connection or stream without a response.
    Drop,
    /// Nothing is decided before this has come.
    Wait(Pending),
    /// Nothing is decided before its body has come.
    Read,
    /// It is denied, unless a limit refuses it once this has come.
    Deny(Box<(Denial, Pending)>),
}

/// The result of a wait.
pub(super) enum ResumeWith {
    /// The head of a request with a body that is still to be read.
    Head,
    /// The decision of the store on such a request.
    Peek(Result<(), Undecided>),
    /// Permits; none for a request that has not waited.
    Permits(AcquiredPermits),
    /// The decision of the store.
    Decision(Result<(), Undecided>),
}

/// Admits the request by all limits of its route, at one instant, and counts its token.
///
/// Not async: its future would have room for everything that is looked at here.
pub(super) fn admit(
    exchange: &mut Exchange,
    head: &Head<'_>,
    response: &mut Response<ResponseBody>,
    resumed: ResumeWith,
) -> Result<Disposition, Error> {
    let decided = decide(exchange, head, response, None, resumed);
    exchange.context.count_identity();
    decided
}

/// Denies a request, unless one of the limits that it meets refuses it first, so that guesses are
/// limited.
///
/// # Errors
/// The denial.
#[cold]
pub(super) fn deny(
    exchange: &mut Exchange,
    head: &Head<'_>,
    response: &mut Response<ResponseBody>,
    denial: Denial,
    resumed: ResumeWith,
) -> Result<Disposition, Error> {
    let decided = decide(exchange, head, response, Some(denial.status), resumed);
    exchange.context.count_identity();
    match decided? {
        Disposition::Wait(pending) => Ok(Disposition::Deny(Box::new((denial, pending)))),
        Disposition::Forward(_) => {
            if let Some(access) = &exchange.route().access {
                access.denied.increment();
            }
            Err(Error::Denied(denial))
        }
        refused => Ok(refused),
    }
}

/// Decides about a request, which access rules have `denied` with a status.
fn decide(
    exchange: &mut Exchange,
    head: &Head<'_>,
    response: &mut Response<ResponseBody>,
    denied: Option<StatusCode>,
    resumed: ResumeWith,
) -> Result<Disposition, Error> {
    let (context, admission) = (&exchange.context, &mut exchange.admission);
    let (ruleset, route) = (
        context.ruleset.whole(),
        context.ruleset.route(exchange.place),
    );
    let token = context.token(route, head.headers);
    let head = head.with_token(token.as_ref()).with_body(context.body());
    let head = head.with_client(context.known_client());
    if let Some(clients) = &ruleset.clients {
        admission.client_label = clients.label(&head);
    }
    let mut inputs = AdmissionInputs::new(&ruleset.store, route, &head, exchange.forwarded);
    // A denied request waits for nothing.
    inputs.may_wait &= denied.is_none();
    let pending = match (resumed, denied) {
        (ResumeWith::Head, _) => match inputs.refuse_by_head(admission)? {
            Early::Refused => None,
            Early::Open => return Ok(Disposition::Read),
            Early::Pending(pending) => Some(Pending::Peek(pending)),
        },
        (ResumeWith::Peek(decided), _) => {
            if !admission.conclude_early(decided, &inputs) {
                return Ok(Disposition::Read);
            }
            None
        }
        (ResumeWith::Permits(permits), None) => inputs.admit(permits, admission)?,
        (ResumeWith::Permits(_), Some(status)) => inputs.admit_denied(status, admission)?,
        (ResumeWith::Decision(decided), _) => admission
            .conclude_pending(decided, &inputs)
            .map_err(|Undecided| Error::Undecided)?,
    };
    if let Some(pending) = pending {
        let limit = match &pending {
            Pending::Permit(waiter) => Some(waiter.limit(route)),
            Pending::Units(waiter) => Some(waiter.limit(route)),
            Pending::Store(_) | Pending::Others(_) | Pending::Peek(_) => None,
        };
        if let Some(limit) = limit {
            exchange.line = Some(Arc::clone(&limit.policy.name));
        }
        return Ok(Disposition::Wait(pending));
    }
    let client = &context.client;
    let activity = &client.gateway.activity;
    activity.record(client.connection.worker, &inputs, admission);
    exchange.key_texts = context.key_texts(admission, route, &head);
    if let Some(trace) = &context.trace {
        trace.note_client(&head);
    }
    let refused = refuse(admission, route, context, &head, response);
    let disposition = refused.unwrap_or_else(|| {
        if denied.is_some() {
            return Disposition::Forward(None);
        }
        let delay = Delay::enter(admission, route, context.clock());
        tag::charge_tags(&inputs, admission);
        Disposition::Forward(delay)
    });
    if let Some(trail) = &mut exchange.trail {
        *trail = debug_trail::decisions(&inputs, admission);
    }
    exchange.is_decided = true;
    Ok(disposition)
}

/// The disposition of a request that a limit refuses; `None` if none does.
fn refuse(
    admission: &Admission,
    route: &Route,
    context: &RequestContext,
    head: &Head<'_>,
    response: &mut Response<ResponseBody>,
) -> Option<Disposition> {
    let (limit, id) = admission.refusing(route)?;
    let action = limit.action(id);
    if context.is_question() {
        question::refuse(admission, limit, id, route, context, head, response);
        return Some(Disposition::Respond);
    }
    let held = match action {
        Action::Drop => return Some(Disposition::Drop),
        Action::Tarpit(tarpit) => tarpit.acquire().map(Disposition::Tarpit),
        Action::Decoy(tarpit) => {
            let learned = route.learned_responses.as_ref();
            let time = learned.map(|learned| learned.response_time(head.method));
            let elapsed = context.now().since(context.started);
            let slot = time.and_then(|time| tarpit.acquire_for(time.saturating_sub(elapsed)));
            slot.map(Disposition::Decoy)
        }
        Action::Reject | Action::Tag(_) | Action::Route(_) | Action::Wait(_) => None,
    };
    if held.is_some() {
        return held;
    }
    let styles = &context.ruleset.whole().styles;
    admission.refuse(limit, id, route, styles, head, response);
    Some(Disposition::Respond)
}
