//! Attempts at requests to a host: over a kept session, or new ones.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio::time::{Sleep, sleep_until};

use super::{Ejection, Host, HostEvidence, InFlight};
use crate::upstream::attempt::{Attempt, OutboundRequest};
use crate::upstream::error::{UpstreamError, UpstreamErrorKind};
use crate::upstream::retry::is_retried_on_new_connection;

/// The most new connections on which a request is refused, while the host answers others.
const MAX_REFUSALS: u32 = 8;

impl Host {
    /// Sends a request, and waits for the head of the response, or until the time for the attempt is
    /// over or the host, if it `may_stall`, does. Counts it.
    pub(in crate::upstream) async fn send(
        self: &Arc<Self>,
        in_flight: InFlight,
        outbound: &mut OutboundRequest<'_>,
        may_stall: bool,
    ) -> Attempt {
        self.metrics.requests.increment();
        let mut waiting = self.health.counts.begin();
        let (worker, may_move) = (outbound.worker, may_stall && outbound.may_be_moved());
        let limit = outbound.limit();
        let mut limit = limit.map(|(at, kind)| (Box::pin(sleep_until(at)), kind));
        let is_owed = outbound.is_owed;
        is_owed.set(false);
        let mut sending = pin!(self.attempt(in_flight, outbound));
        let mut attempt = tokio::select! {
            biased;
            attempt = poll_fn(|cx| {
                let polled = sending.as_mut().poll(cx);
                waiting.set_owed(is_owed.get());
                polled
            }) => attempt,
            () = self.health.stalled(worker), if may_move => {
                self.ended(UpstreamErrorKind::Stalled)
            }
            () = elapsed(&mut limit) => {
                self.ended(limit.expect("a time has elapsed").1)
            }
        };
        attempt.is_owed = is_owed.get();
        waiting.end(attempt.evidence(), attempt.error().is_none());
        attempt
    }

    /// Counts an attempt that has failed, and logs when the host begins to fail, is ejected, or
    /// answers again.
    pub(in crate::upstream) fn report(&self, attempt: &Attempt, ejection: Option<Ejection>) {
        match (attempt.error(), ejection) {
            (Some(error), ejection) => self.report_failure(error, ejection),
            (None, Some(ejection)) => self.report_ejection(ejection),
            (None, None) if attempt.evidence() == HostEvidence::Good => self.report_answer(),
            (None, None) => {}
        }
    }

    fn ended(&self, kind: UpstreamErrorKind) -> Attempt {
        Attempt::from(Err(UpstreamError::new(&self.metrics.endpoint, kind)))
    }

    /// Sends a request over a kept session, or else over a new one.
    async fn attempt(
        self: &Arc<Self>,
        mut in_flight: InFlight,
        outbound: &mut OutboundRequest<'_>,
    ) -> Attempt {
        if let Some(session) = self.checkout(outbound) {
            let mut attempt = session.send(in_flight, outbound).await;
            if !is_retried_on_new_connection(&attempt, outbound.request) || !outbound.restore() {
                return attempt;
            }
            match attempt.in_flight.take() {
                Some(still) => in_flight = still,
                None => return attempt,
            }
        }
        // Boxed: most requests go over a kept session.
        Box::pin(self.attempt_on_new_sessions(in_flight, outbound)).await
    }

    /// Sends a request over a new session; again over others if they end before the host takes it.
    async fn attempt_on_new_sessions(
        self: &Arc<Self>,
        in_flight: InFlight,
        outbound: &mut OutboundRequest<'_>,
    ) -> Attempt {
        let mut heads = self.health.counts.heads();
        let mut attempt = self.attempt_anew(in_flight, outbound).await;
        // A connection that others share may end before the host takes the request, and so may the
        // next one, of a host that takes few requests on each.
        for round in 0..MAX_REFUSALS {
            let is_answering = self.health.counts.heads() != heads;
            // A connection of HTTP/2 has ended, and the request was not processed.
            let is_refused = attempt.is_unprocessed
                && self.speaks_http2()
                && is_retried_on_new_connection(&attempt, outbound.request);
            if !is_refused || !(round == 0 || is_answering) || !outbound.restore() {
                break;
            }
            let Some(in_flight) = attempt.in_flight.take() else {
                break;
            };
            heads = self.health.counts.heads();
            attempt = self.attempt_anew(in_flight, outbound).await;
        }
        attempt
    }

    /// Sends a request over a new session.
    async fn attempt_anew(
        self: &Arc<Self>,
        in_flight: InFlight,
        outbound: &mut OutboundRequest<'_>,
    ) -> Attempt {
        // Boxed: every request's future would have room for a handshake.
        match Box::pin(self.open(outbound)).await {
            Ok(session) => session.send(in_flight, outbound).await,
            Err(kind) => Attempt {
                is_unprocessed: true,
                ..Attempt::failed(kind, in_flight)
            },
        }
    }
}

/// Waits for the end of `limit`, if there is one.
async fn elapsed(limit: &mut Option<(Pin<Box<Sleep>>, UpstreamErrorKind)>) {
    match limit {
        Some((sleep, _)) => sleep.as_mut().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Host {
        /// Counts an attempt with this evidence, as [`send`](Self::send) does.
        pub(in crate::upstream) fn count(&self, evidence: HostEvidence) {
            let has_head = evidence == HostEvidence::Good;
            self.health.counts.begin().end(evidence, has_head);
        }
    }
}
