//! Retry policy: the failed attempts that are followed by another one, at another host or over a
//! new connection. Only here is it decided.

mod budget;

pub(super) use budget::RetryBudget;

use super::attempt::{Attempt, AttemptFailure, is_repeatable};
use super::error::UpstreamErrorKind;
use super::spec::{RetryCondition, RetrySpec};
use crate::http::body::RequestBody;
use crate::http::message::Request;
use crate::telemetry::metrics::RetryReason;

impl RetrySpec {
    /// The reason to send a request to another host after `attempt`; `None` if it must not be.
    pub(super) fn reason(&self, attempt: &Attempt) -> Option<RetryReason> {
        if !attempt.may_retry || self.attempts == 0 {
            return None;
        }
        let (reason, condition) = match &attempt.outcome {
            Ok(response) if !response.status().is_server_error() => return None,
            Ok(response) => (
                RetryReason::Status,
                RetryCondition::Status(response.status()),
            ),
            Err((failure, error)) => match failure {
                AttemptFailure::Refused => {
                    (RetryReason::ConnectFailure, RetryCondition::ConnectFailure)
                }
                AttemptFailure::Unsent | AttemptFailure::Unprocessed => {
                    (RetryReason::Refused, RetryCondition::Refused)
                }
                AttemptFailure::Broken if error.reason().is_none() => return None,
                AttemptFailure::Broken => (RetryReason::Reset, RetryCondition::Reset),
                AttemptFailure::TimedOut => (RetryReason::Timeout, RetryCondition::Timeout),
                AttemptFailure::Stalled => return Some(RetryReason::Stalled),
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
pub(super) fn is_retried_on_new_connection(attempt: &Attempt) -> bool {
    let is_closed = |kind: &UpstreamErrorKind| matches!(kind, UpstreamErrorKind::Closed(_));
    attempt.may_retry && attempt.error().is_some_and(|error| is_closed(&error.kind))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

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

    fn attempt(failure: AttemptFailure, kind: UpstreamErrorKind, may_retry: bool) -> Attempt {
        let error = UpstreamError::new(&"endpoint".into(), kind);
        Attempt::failed(failure, error, may_retry, None)
    }

    /// The decisions after an attempt: on a new connection, at another host.
    fn decisions(
        failure: AttemptFailure,
        kind: UpstreamErrorKind,
        may_retry: bool,
    ) -> (bool, Option<RetryReason>) {
        let attempt = attempt(failure, kind, may_retry);
        (
            is_retried_on_new_connection(&attempt),
            spec().reason(&attempt),
        )
    }

    fn closed() -> UpstreamErrorKind {
        UpstreamErrorKind::Closed(io::ErrorKind::ConnectionReset.into())
    }

    #[test]
    fn a_request_is_never_processed_twice_unless_it_is_repeatable() {
        let late = || UpstreamErrorKind::ResponseTimeout(Duration::from_secs(1));
        let refused = UpstreamErrorKind::Connect(io::ErrorKind::ConnectionRefused.into());
        assert_eq!(
            decisions(AttemptFailure::Refused, refused, true),
            (false, Some(RetryReason::ConnectFailure))
        );
        assert_eq!(
            decisions(AttemptFailure::Unsent, closed(), true),
            (true, Some(RetryReason::Refused))
        );
        assert_eq!(
            decisions(AttemptFailure::Broken, closed(), true),
            (true, Some(RetryReason::Reset))
        );
        assert_eq!(
            decisions(AttemptFailure::TimedOut, late(), true),
            (false, Some(RetryReason::Timeout))
        );
        assert_eq!(
            decisions(AttemptFailure::Broken, closed(), false),
            (false, None)
        );
        assert_eq!(
            decisions(AttemptFailure::TimedOut, late(), false),
            (false, None)
        );
    }

    #[test]
    fn only_failures_of_the_list_are_retried() {
        let reset = attempt(AttemptFailure::Broken, closed(), true);
        let mut few = spec();
        few.retry_on = vec![RetryCondition::ConnectFailure];
        assert_eq!(few.reason(&reset), None);
        let none = RetrySpec {
            attempts: 0,
            ..spec()
        };
        assert_eq!(none.reason(&reset), None);
    }

    #[test]
    fn a_client_that_fails_is_not_retried() {
        let client = crate::http::body::RequestBodyError::Incomplete;
        let kind = UpstreamErrorKind::RequestBody(client);
        assert_eq!(decisions(AttemptFailure::Broken, kind, true), (false, None));
    }
}
