//! Settles the charges of an exchange by its response, as far as that says what the request cost.

use bytes::Bytes;
use http_body::Frame;

use super::Exchange;
use crate::http::message::Response;
use crate::proxy::admission::Admission;
use crate::proxy::admission::settle::{ResponseEnd, ResponseHead, Settling};
use crate::proxy::body::{BodyObserver, ResponseBody, ResponseBodyError};
use crate::rules::BodyEnd;
use crate::telemetry::metrics::RequestMetrics;

impl Exchange {
    /// Settles the charges whose cost the response head states. The answer to a question is not the
    /// response to its request, so that reserved charges stay.
    pub(super) fn settle_by_head(&mut self, response: &Response<ResponseBody>) {
        if self.context.is_question() {
            return;
        }
        let answered = ResponseHead {
            status: response.status(),
            author: self.author,
            headers: response.headers(),
            recorded: &[],
        };
        self.settle(|admission, settling| admission.settle_by_head(answered, settling));
    }

    /// Settles what a piece of the body states.
    #[inline]
    fn settle_by_piece(&mut self, data: &[u8]) {
        let ended = self.response_end(BodyEnd::Complete(None));
        self.settle(|admission, settling| admission.settle_by_piece(data, ended, settling));
    }

    /// Settles the remaining charges at the end of the body. Without a response, reserved charges
    /// stay.
    pub(super) fn settle_by_body(&mut self, body: BodyEnd<'_>) {
        let ended = self.response_end(body);
        self.settle(|admission, settling| admission.settle_by_body(ended, settling));
    }

    fn response_end<'b>(&self, body: BodyEnd<'b>) -> ResponseEnd<'b> {
        ResponseEnd {
            status: self.status.filter(|_| !self.context.is_question()),
            bytes: self.sent,
            body,
        }
    }

    fn settle(&mut self, by: impl FnOnce(&mut Admission, &mut Settling<'_>)) {
        if !self.admission.has_reserved_charges() {
            return;
        }
        let mut settling = Settling {
            now: self.context.now(),
            route: self.context.ruleset.route(self.place),
            stated: &mut self.stated,
        };
        by(&mut self.admission, &mut settling);
    }
}

impl BodyObserver for Exchange {
    fn sent(&mut self, frame: &mut Frame<Bytes>) {
        let Some(data) = frame.data_ref() else {
            if let (Some(changes), Some(trailers)) = (&self.route().response, frame.trailers_mut())
            {
                changes.remove(|name| _ = trailers.remove(name));
            }
            self.has_ended = true;
            return self.settle_by_body(BodyEnd::Complete(frame.trailers_ref()));
        };
        self.sent += data.len() as u64;
        self.settle_by_piece(data);
    }

    fn left_out(&mut self, data: &[u8]) {
        self.settle_by_piece(data);
    }

    fn ended(&mut self) {
        self.has_ended = true;
        self.settle_by_body(BodyEnd::Complete(None));
    }

    fn broken(&mut self, error: &ResponseBodyError) {
        self.error = Some(error.reason());
        tracing::debug!(
            error = error as &dyn std::error::Error,
            "response broken off"
        );
    }

    fn metrics(&self) -> &RequestMetrics {
        &self.context.client.gateway.metrics
    }
}
