//! Retry policy: the failed attempts that are followed by another one, at another host or over a
//! new connection. Only here is it decided.

mod budget;

pub(super) use budget::RetryBudget;

use super::attempt::{Attempt, AttemptOutcome};
use super::error::UpstreamErrorKind;
use super::spec::RetrySpec;
use crate::http::body::RequestBody;
use crate::http::message::Request;
use crate::telemetry::metrics::RetryReason;

impl RetrySpec {
    /// The reason to send a request to another host after `attempt`; `None` if it must not be.
    pub(super) fn reason(&self, attempt: &Attempt) -> Option<RetryReason> {
        let on = &self.retry_on;
        let (reason, is_wanted) = match &attempt.outcome {
            _ if !attempt.may_retry || self.attempts == 0 => return None,
            AttemptOutcome::Refused(_) => (RetryReason::ConnectFailure, on.connect_failure),
            AttemptOutcome::Unsent(_) | AttemptOutcome::Unprocessed(_) => {
                (RetryReason::Refused, on.refused)
            }
            AttemptOutcome::Broken(error) => {
                (RetryReason::Reset, on.reset && error.reason().is_some())
            }
            AttemptOutcome::TimedOut(_) => (RetryReason::Timeout, on.timeout),
            AttemptOutcome::Stalled(_) => (RetryReason::Stalled, true),
            AttemptOutcome::Response(response) => {
                let is_wanted = on.statuses.contains(&response.status());
                (RetryReason::Status, is_wanted)
            }
        };
        is_wanted.then_some(reason)
    }

    /// Returns true if the body of `request` has to be kept, in case that it is sent again. Over
    /// HTTP/2 any request may be refused after a part of its body was sent.
    pub(super) fn keeps_body(&self, request: &Request<RequestBody>) -> bool {
        let may_be_sent_again = is_repeatable(request) || (self.is_http2 && self.retry_on.refused);
        self.attempts > 0 && may_be_sent_again && !request.body().is_empty()
    }
}

/// Returns true if a host may process `request` twice: it is idempotent (RFC 9110 section 9.2.2).
pub(super) fn is_repeatable(request: &Request<RequestBody>) -> bool {
    request.method().is_idempotent()
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
    use crate::upstream::{RetryConditions, UpstreamError};

    fn spec() -> RetrySpec {
        RetrySpec {
            attempts: 2,
            retry_on: RetryConditions {
                connect_failure: true,
                refused: true,
                reset: true,
                timeout: true,
                statuses: Vec::new(),
            },
            budget: 20,
            min_per_second: 10,
            max_body: 1024,
            is_http2: false,
        }
    }

    fn attempt(
        outcome: fn(UpstreamError) -> AttemptOutcome,
        kind: UpstreamErrorKind,
        may_retry: bool,
    ) -> Attempt {
        let error = UpstreamError::new(&"endpoint".into(), kind);
        Attempt::new(outcome(error), may_retry, None)
    }

    /// The decisions after an attempt: on a new connection, at another host.
    fn decisions(
        outcome: fn(UpstreamError) -> AttemptOutcome,
        kind: UpstreamErrorKind,
        may_retry: bool,
    ) -> (bool, Option<RetryReason>) {
        let attempt = attempt(outcome, kind, may_retry);
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
            decisions(AttemptOutcome::Refused, refused, true),
            (false, Some(RetryReason::ConnectFailure))
        );
        assert_eq!(
            decisions(AttemptOutcome::Unsent, closed(), true),
            (true, Some(RetryReason::Refused))
        );
        assert_eq!(
            decisions(AttemptOutcome::Broken, closed(), true),
            (true, Some(RetryReason::Reset))
        );
        assert_eq!(
            decisions(AttemptOutcome::TimedOut, late(), true),
            (false, Some(RetryReason::Timeout))
        );
        assert_eq!(
            decisions(AttemptOutcome::Broken, closed(), false),
            (false, None)
        );
        assert_eq!(
            decisions(AttemptOutcome::TimedOut, late(), false),
            (false, None)
        );
    }

    #[test]
    fn only_failures_of_the_list_are_retried() {
        let reset = attempt(AttemptOutcome::Broken, closed(), true);
        let mut few = spec();
        few.retry_on = RetryConditions {
            connect_failure: true,
            ..RetryConditions::default()
        };
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
        assert_eq!(decisions(AttemptOutcome::Broken, kind, true), (false, None));
    }
}
