//! Retry policy: the failed attempts that are followed by another one.

use super::UpstreamErrorKind;
use super::attempt::{Attempt, AttemptOutcome};
use crate::http::body::RequestBody;
use crate::http::message::Request;

/// Returns true if an endpoint may receive `request` twice: it is idempotent (RFC 9110 section
/// 9.2.2), and has no body that would have to be sent again.
pub(super) fn is_repeatable(request: &Request<RequestBody>) -> bool {
    request.method().is_idempotent() && request.body().is_empty()
}

/// Returns true if a request is sent again to the same endpoint over a new connection, after
/// `attempt` over a kept one.
///
/// The endpoint may close a kept connection just as the request is written. Other kept connections
/// may be closed as well.
pub(super) fn is_retried_on_new_connection(attempt: &Attempt) -> bool {
    let is_closed = |kind: &UpstreamErrorKind| matches!(kind, UpstreamErrorKind::Closed(_));
    attempt.may_retry && attempt.error().is_some_and(|error| is_closed(&error.kind))
}

/// Returns true if a request is sent to another endpoint after `attempt`, in which the endpoint has
/// received nothing of it.
pub(super) fn is_retried_elsewhere(attempt: &Attempt) -> bool {
    matches!(
        attempt.outcome,
        AttemptOutcome::Refused(_) | AttemptOutcome::Unsent(_)
    )
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;
    use crate::upstream::UpstreamError;

    /// The decisions after an attempt: on a new connection, at another endpoint.
    fn decisions(
        outcome: fn(UpstreamError) -> AttemptOutcome,
        kind: UpstreamErrorKind,
        may_retry: bool,
    ) -> (bool, bool) {
        let attempt = Attempt {
            outcome: outcome(UpstreamError::new(&"endpoint".into(), kind)),
            may_retry,
        };
        (
            is_retried_on_new_connection(&attempt),
            is_retried_elsewhere(&attempt),
        )
    }

    #[test]
    fn a_request_is_never_processed_twice_unless_it_is_repeatable() {
        let closed = || UpstreamErrorKind::Closed(io::ErrorKind::ConnectionReset.into());
        let late = || UpstreamErrorKind::ResponseTimeout(Duration::from_secs(1));
        let refused = UpstreamErrorKind::Connect(io::ErrorKind::ConnectionRefused.into());
        assert_eq!(
            decisions(AttemptOutcome::Refused, refused, true),
            (false, true)
        );
        assert_eq!(
            decisions(AttemptOutcome::Unsent, closed(), true),
            (true, true)
        );
        assert_eq!(
            decisions(AttemptOutcome::Broken, closed(), true),
            (true, false)
        );
        assert_eq!(
            decisions(AttemptOutcome::Broken, closed(), false),
            (false, false)
        );
        for may_retry in [true, false] {
            let decisions = decisions(AttemptOutcome::TimedOut, late(), may_retry);
            assert_eq!(decisions, (false, false));
        }
    }
}
