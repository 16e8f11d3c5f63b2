//! Retry policy: the failed attempts that are followed by another one, at another host or over a
//! new connection. Only here is it decided.

mod budget;

pub(super) use budget::RetryBudget;

use super::attempt::{Attempt, is_repeatable};
use super::error::UpstreamErrorKind;
use super::spec::{RetryCondition, RetrySpec};
use crate::http::body::RequestBody;
use crate::http::message::Request;
use crate::telemetry::metrics::RetryReason;

impl RetrySpec {
    /// The reason to send a request to another host after `attempt`; `None` if it must not be.
    pub(super) fn reason(
        &self,
        attempt: &Attempt,
        request: &Request<RequestBody>,
    ) -> Option<RetryReason> {
        if self.attempts == 0 || !attempt.may_retry(request) {
            return None;
        }
        let (reason, condition) = match &attempt.outcome {
            Ok(response) if !response.status().is_server_error() => return None,
            Ok(response) => (
                RetryReason::Status,
                RetryCondition::Status(response.status()),
            ),
            Err(error) => match &error.kind {
                kind if kind.is_of_connecting() => {
                    (RetryReason::ConnectFailure, RetryCondition::ConnectFailure)
                }
                UpstreamErrorKind::Stalled => return Some(RetryReason::Stalled),
                UpstreamErrorKind::ResponseTimeout(_) | UpstreamErrorKind::AttemptTimeout(_) => {
                    (RetryReason::Timeout, RetryCondition::Timeout)
                }
                _ if attempt.is_unprocessed => (RetryReason::Refused, RetryCondition::Refused),
                _ if error.failure().is_none() => return None,
                _ => (RetryReason::Reset, RetryCondition::Reset),
            },
        };
        self.retry_on.contains(&condition).then_some(reason)
    }

    /// Returns true if the body of `request` has to be kept, in case that it is sent again. Over
    /// HTTP/2 any request may be refused after a part of its body was sent.
    pub(super) fn keeps_body(&self, request: &Request<RequestBody>) -> bool {
        let may_be_refused = || self.is_http2 && self.retry_on.contains(&RetryCondition::Refused);
        self.attempts > 0
            && !request.body().is_empty()
            && (is_repeatable(request) || may_be_refused())
    }
}

/// Returns true if a request is sent again to the same host over a new connection, after `attempt`
/// over a kept one.
///
/// The host may close a kept connection just as the request is written. Other kept connections may
/// be closed as well.
pub(super) fn is_retried_on_new_connection(
    attempt: &Attempt,
    request: &Request<RequestBody>,
) -> bool {
    let is_closed = |kind: &UpstreamErrorKind| matches!(kind, UpstreamErrorKind::Closed(_));
    attempt.error().is_some_and(|error| is_closed(&error.kind)) && attempt.may_retry(request)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use http::Method;

    use super::*;
    use crate::upstream::UpstreamError;

    fn spec() -> RetrySpec {
        RetrySpec {
            attempts: 2,
            retry_on: vec![
                RetryCondition::ConnectFailure,
                RetryCondition::Refused,
                RetryCondition::Reset,
                RetryCondition::Timeout,
            ],
            budget: 20,
            min_per_second: 10,
            max_body: 1024,
            is_http2: false,
        }
    }

    fn request(method: Method) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::empty());
        *request.method_mut() = method;
        request
    }

    fn attempt(kind: UpstreamErrorKind, is_unprocessed: bool) -> Attempt {
        Attempt {
            is_unprocessed,
            ..Attempt::from(Err(UpstreamError::new(&"endpoint".into(), kind)))
        }
    }

    /// The decisions after an attempt: on a new connection, at another host.
    fn decisions(attempt: &Attempt, method: Method) -> (bool, Option<RetryReason>) {
        let request = request(method);
        (
            is_retried_on_new_connection(attempt, &request),
            spec().reason(attempt, &request),
        )
    }

    fn closed() -> UpstreamErrorKind {
        UpstreamErrorKind::Closed(io::ErrorKind::ConnectionReset.into())
    }

    #[test]
    fn a_request_is_never_processed_twice_unless_it_is_repeatable() {
        let late = UpstreamErrorKind::ResponseTimeout(Duration::from_secs(1));
        let over = UpstreamErrorKind::Deadline(Duration::from_secs(1));
        let refused = UpstreamErrorKind::Connect(io::ErrorKind::ConnectionRefused.into());
        for (attempt, repeatable, other) in [
            (
                attempt(refused, true),
                (false, Some(RetryReason::ConnectFailure)),
                (false, Some(RetryReason::ConnectFailure)),
            ),
            (
                attempt(closed(), true),
                (true, Some(RetryReason::Refused)),
                (true, Some(RetryReason::Refused)),
            ),
            (
                attempt(closed(), false),
                (true, Some(RetryReason::Reset)),
                (false, None),
            ),
            (
                attempt(late, false),
                (false, Some(RetryReason::Timeout)),
                (false, None),
            ),
            (attempt(over, false), (false, None), (false, None)),
        ] {
            assert_eq!(decisions(&attempt, Method::PUT), repeatable, "{attempt:?}");
            assert_eq!(decisions(&attempt, Method::POST), other, "{attempt:?}");
        }
    }

    #[test]
    fn only_failures_of_the_list_are_retried() {
        let (reset, request) = (attempt(closed(), false), request(Method::GET));
        let mut few = spec();
        few.retry_on = vec![RetryCondition::ConnectFailure];
        assert_eq!(few.reason(&reset, &request), None);
        let none = RetrySpec {
            attempts: 0,
            ..spec()
        };
        assert_eq!(none.reason(&reset, &request), None);
    }

    #[test]
    fn a_client_that_fails_is_not_retried() {
        let client = crate::http::body::RequestBodyError::Incomplete;
        let attempt = attempt(UpstreamErrorKind::RequestBody(client), false);
        assert_eq!(decisions(&attempt, Method::GET), (false, None));
    }
}
