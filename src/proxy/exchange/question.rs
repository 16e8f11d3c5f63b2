//! Questions of other proxies: they ask if they may serve a request, which is not forwarded here.

use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::logged::LoggedRequest;
use super::{Exchange, RequestContext};
use crate::http::body::RequestBody;
use crate::http::message::{Request, Response};
use crate::proxy::admission::Admission;
use crate::proxy::body::{ResponseBody, empty_response};
use crate::proxy::ruleset::{Limit, Route};
use crate::rules::Head;
use crate::store::ChargeId;

impl Exchange {
    /// Notes that a proxy asks about this request, which it serves itself. Finds its route; its line
    /// in the access log describes it.
    pub(in crate::proxy) fn set_question(
        &mut self,
        request: &Request<RequestBody>,
        head: &Head<'_>,
    ) {
        let log = self.context.ruleset.access_log();
        let logged = log.map(|log| LoggedRequest::new(request, log.parts()));
        self.context.logged = logged;
        self.context.question = Some(Box::new(head.method.clone()));
        self.find_route(head);
    }

    /// Another proxy may have asked; also before the route of its question was found.
    pub(super) fn may_be_question(&self) -> bool {
        let is_unrouted = self.place.is_none();
        self.context.is_question()
            || self.route().decides()
            || is_unrouted && self.context.ruleset.whole().has_questions
    }
}

impl RequestContext {
    /// A proxy asks if it may serve the request, which is not forwarded.
    pub(in crate::proxy) fn is_question(&self) -> bool {
        self.question.is_some()
    }
}

/// Turns `response` into the answer to a question that a limit refuses.
#[cold]
pub(in crate::proxy) fn refuse(
    admission: &Admission,
    limit: &Limit,
    id: ChargeId,
    route: &Route,
    context: &RequestContext,
    head: &Head<'_>,
    response: &mut Response<ResponseBody>,
) {
    // Refusals of gRPC have status 200, which would be a yes.
    let mut headers = head.headers.clone();
    headers.remove(CONTENT_TYPE);
    let head = Head {
        headers: &headers,
        ..*head
    };
    let styles = &context.ruleset.whole().styles;
    admission.refuse(limit, id, route, styles, &head, response);
    // A decoy would look like a yes.
    if limit.action(id).is_decoy() {
        *response = empty_response(StatusCode::TOO_MANY_REQUESTS);
    }
}
