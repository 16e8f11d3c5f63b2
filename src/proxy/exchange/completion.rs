//! Completes responses, and ends exchanges.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{Method, StatusCode, header};
use http_body::Body;

use super::{Exchange, RequestContext};
use crate::http::message::Response;
use crate::net::drain::DrainStage;
use crate::proxy::answers::error::Error;
use crate::proxy::body::{BodyObserver, ResponseBody};
use crate::proxy::debug_trail::DebugItem;
use crate::rules::{BodyEnd, ResponseOrigin};

/// The logged status if the client leaves before the response; nginx has the same number.
static CLIENT_CLOSED_REQUEST: LazyLock<StatusCode> =
    LazyLock::new(|| StatusCode::from_u16(499).expect("a number from 100 to 999"));

/// The logged status of a request without a response; nginx has the same number.
static NO_RESPONSE: LazyLock<StatusCode> =
    LazyLock::new(|| StatusCode::from_u16(444).expect("a number from 100 to 999"));

/// True for a response by which a limiter refuses: 429, or 503 that says when to retry.
fn is_refusal(response: &Response<ResponseBody>) -> bool {
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::SERVICE_UNAVAILABLE => response.headers().get(header::RETRY_AFTER).is_some(),
        _ => false,
    }
}

/// Frames a response to a request with this method.
fn frame(method: &Method, response: &mut Response<ResponseBody>) {
    let head_only = method == Method::HEAD;
    let length = response.body().size_hint().exact();
    if let Some(length) = length.filter(|length| head_only && *length > 0) {
        let headers = response.headers_mut();
        headers.insert_missing(header::CONTENT_LENGTH, length);
    }
    // A 204 has no length (RFC 9110 section 8.6).
    if response.status() == StatusCode::NO_CONTENT {
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    // HTTP/1 would leave the body out by itself; HTTP/2 would send it against its rules.
    if head_only {
        *response.body_mut() = ResponseBody::own(Bytes::new());
    }
}

/// A response with more bytes, or of unknown length, may take long: its exchange releases the
/// ruleset.
const LONG: u64 = 1024 * 1024;

impl Exchange {
    /// Ends the exchange without a response.
    pub(in crate::proxy) fn end_without_response(mut self: Box<Self>) {
        self.status = Some(*NO_RESPONSE);
        self.has_ended = true;
    }

    /// Completes `response`, and lets the exchange end with its body.
    pub(in crate::proxy) fn complete(mut self: Box<Self>, response: &mut Response<ResponseBody>) {
        self.status = Some(response.status());
        self.settle_by_head(response);
        self.write_fields(response);
        frame(&self.context.method, response);
        if response.body().is_end_stream() {
            self.ended();
        }
        let length = response.body().size_hint().exact();
        if length.is_none_or(|length| length > LONG) {
            self.context.ruleset.release(self.place);
        }
        response.body_mut().observe(self);
    }

    /// Writes the fields that limits and the route add to a response.
    fn write_fields(&mut self, response: &mut Response<ResponseBody>) {
        if let Some(admission) = self.admission() {
            let styles = &self.context.ruleset.whole().styles;
            let is_upstreams = self.upstream.is_some() && self.author == ResponseOrigin::Upstream;
            let refuses = is_upstreams && is_refusal(response);
            admission.write_headers(self.route(), styles, refuses, response.headers_mut());
        }
        if let Some(prepared) = self.changes.take()
            && let Some(changes) = &self.route().response
        {
            let styles = &self.context.ruleset.whole().styles;
            changes.write(*prepared, styles, response.headers_mut());
        }
        if let (Some(debug), Some(trail)) = (&self.context.ruleset.whole().debug, &self.trail) {
            debug.write(self.debug_item(), trail, response.headers_mut());
        }
    }

    /// The request in the debug header:
    /// `request;route="search";decision=limited;policy="per-key";ms=0.412`
    fn debug_item(&self) -> DebugItem {
        let route = self.route();
        let mut item = DebugItem::new("request");
        item.text("route", &route.name);
        if let Some(admission) = self.admission() {
            let logged = admission.logged(route);
            item.token("decision", logged.word.as_str());
            if let Some(policy) = logged.name {
                item.text("policy", policy);
            }
        }
        if let Some(error) = self.error {
            item.text("error", error);
        }
        if let Some((upstream, endpoint)) = self.sent_to() {
            item.text("upstream", upstream);
            item.text("endpoint", endpoint);
        }
        item.milliseconds("ms", self.elapsed());
        if let Some(time) = self.upstream {
            item.milliseconds("upstream-ms", time);
        }
        item
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Whatever broke then did so because its connection was cut.
        let drain = &self.context.client.connection.drain;
        if !self.has_ended && drain.has_reached(DrainStage::Cut) {
            self.error = Some(Error::DrainDeadline.reason());
        }
        self.settle_by_body(BodyEnd::BrokenOff);
        let status = self.status.unwrap_or(*CLIENT_CLOSED_REQUEST);
        let elapsed = self.elapsed();
        let RequestContext { client, method, .. } = &self.context;
        if let Some(share) = self.share.get() {
            client.gateway.upstream_shares.leave(share);
        }
        client.gateway.metrics.record(method, status);
        let is_own_error = self.error.is_some() && self.author != ResponseOrigin::Upstream;
        let outcome = self.admission.outcome(status, is_own_error);
        self.route().metrics.record(status, outcome, elapsed);
        if let (Some(log), Some(logged)) = (self.context.ruleset.access_log(), &self.context.logged)
        {
            self.log(log, logged, status, elapsed);
        }
        if let Some(trace) = &self.context.trace {
            self.record_spans(trace, status, elapsed);
        }
    }
}
