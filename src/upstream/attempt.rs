//! One attempt at a request, and its outcome.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use h2::Reason;
use http::StatusCode;
use tokio::time::Instant;

use super::error::{UpstreamError, UpstreamErrorKind};
use super::host::{HostEvidence, InFlight};
use super::session::UpstreamBody;
use super::spec::ClusterSpec;
use crate::http::body::{ReplayedBody, RequestBody};
use crate::http::connection::ClientConnection;
use crate::http::informational::InformationalQueue;
use crate::http::message::{Request, Response};
use crate::net::dial::Dscp;

/// A request to be sent, with the context that an upstream needs.
///
/// Passed by one reference: a field that a future owns enlarges every future around it.
#[derive(Debug)]
pub struct OutboundRequest<'a> {
    /// The settings of the cluster that sends it.
    pub spec: &'a ClusterSpec,
    /// The request, whose body is taken.
    pub request: &'a mut Request<RequestBody>,
    /// The queue for informational responses.
    pub informational: Option<&'a InformationalQueue>,
    /// The client's connection, which the PROXY protocol names.
    pub client: &'a ClientConnection,
    /// The index of the worker, whose connections it uses.
    pub worker: usize,
    /// The DSCP of its packets. Requests with one use connections of that code point only.
    pub dscp: Option<Dscp>,
    /// The hash of the key by which the cluster chooses a host, under [`BALANCE_SECRET`].
    ///
    /// [`BALANCE_SECRET`]: super::BALANCE_SECRET
    pub key: Option<u64>,
    /// The index of the endpoint that was tried last.
    pub endpoint: &'a Cell<Option<usize>>,
    /// How many hosts were tried.
    pub attempts: &'a Cell<u32>,
    /// How long it has waited for a slot, if it had to.
    pub pending: &'a Cell<Option<Duration>>,
    /// The end of the time for the whole request, and how much that was.
    pub deadline: Option<(Instant, Duration)>,
    /// The means to send the body again.
    pub replay: BodyReplay,
    /// The attempt waits for a part of the request that the client has not sent.
    pub is_owed: &'a Cell<bool>,
}

/// The connection that a request needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionWish {
    /// The index of the worker.
    pub worker: usize,
    /// The code point of its packets.
    pub dscp: Option<Dscp>,
    /// The time to open one.
    pub limit: Duration,
}

/// The means to send the body of a request again.
#[derive(Debug, Default)]
pub enum BodyReplay {
    /// The body is sent once.
    #[default]
    Once,
    /// There is no body.
    Empty,
    /// The beginning of the body is kept while it is sent.
    Kept(ReplayedBody),
}

impl OutboundRequest<'_> {
    /// Begins the time for the whole request, and keeps its body as far as retries need it.
    pub(super) fn prepare(&mut self) {
        if let Some(time) = self.spec.timeouts.request {
            let deadline = (Instant::now() + time, time);
            let earlier = self.deadline.filter(|(at, _)| *at < deadline.0);
            self.deadline = Some(earlier.unwrap_or(deadline));
        }
        let is_tunnel = self.request.body().is_tunnel();
        if !is_tunnel && self.request.body().is_empty() {
            self.replay = BodyReplay::Empty;
        } else if self.spec.retries.keeps_body(self.request) {
            let body = std::mem::replace(self.request.body_mut(), RequestBody::empty());
            let (kept, first) = ReplayedBody::new(body, self.spec.retries.max_body);
            *self.request.body_mut() = first;
            self.replay = BodyReplay::Kept(kept);
        }
    }

    /// The connection that it needs.
    pub(super) fn connection(&self) -> ConnectionWish {
        ConnectionWish {
            worker: self.worker,
            dscp: self.dscp,
            limit: self.spec.timeouts.connect,
        }
    }

    /// Returns true if the request may be given up while it is processed, and sent elsewhere.
    pub(super) fn may_be_moved(&self) -> bool {
        let is_replayed = !matches!(self.replay, BodyReplay::Once);
        self.spec.retries.attempts > 0 && is_replayed && is_repeatable(self.request)
    }

    /// The end of the time for an attempt that begins now, and the error then.
    pub(super) fn limit(&self) -> Option<(Instant, UpstreamErrorKind)> {
        let attempt = self.spec.timeouts.attempt.map(|time| {
            let error = UpstreamErrorKind::AttemptTimeout(time);
            (Instant::now() + time, error)
        });
        let late = |(at, time)| (at, UpstreamErrorKind::Deadline(time));
        let deadline = self.deadline.map(late);
        match (attempt, deadline) {
            (Some(attempt), Some(deadline)) if deadline.0 <= attempt.0 => Some(deadline),
            (attempt, deadline) => attempt.or(deadline),
        }
    }

    /// Makes the request whole after an attempt. Returns false if its body cannot be sent again.
    pub(super) fn restore(&mut self) -> bool {
        let body = self.request.body_mut();
        match &self.replay {
            BodyReplay::Empty => true,
            // A session returns a body, or a tunnel, of which it has sent nothing.
            _ if !body.is_empty() || body.is_tunnel() => true,
            BodyReplay::Once => false,
            BodyReplay::Kept(kept) => match kept.take_again() {
                Some(again) => {
                    *body = again;
                    true
                }
                None => false,
            },
        }
    }
}

/// Returns true if a host may process `request` twice: it is idempotent (RFC 9110 section 9.2.2).
pub(super) fn is_repeatable(request: &Request<RequestBody>) -> bool {
    request.method().is_idempotent()
}

/// An attempt that has ended.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The head of a response, or why there is none.
    pub outcome: Result<Response<UpstreamBody>, UpstreamError>,
    /// Nothing of the request was processed: nothing was sent, or the endpoint states that
    /// (RFC 9113 sections 6.8 and 8.7).
    pub is_unprocessed: bool,
    /// The host's count of the request, which lasts as long as this. A response has its own.
    pub in_flight: Option<InFlight>,
    /// The client still owed a part of its request: the host may have failed for that alone.
    pub is_owed: bool,
}

impl From<Result<Response<UpstreamBody>, UpstreamError>> for Attempt {
    fn from(outcome: Result<Response<UpstreamBody>, UpstreamError>) -> Self {
        Attempt {
            outcome,
            is_unprocessed: false,
            in_flight: None,
            is_owed: false,
        }
    }
}

impl Attempt {
    /// An attempt without a response of the host that counts it.
    pub(super) fn failed(kind: UpstreamErrorKind, in_flight: InFlight) -> Self {
        let error = UpstreamError::new(&in_flight.metrics.endpoint, kind);
        Attempt {
            in_flight: Some(in_flight),
            ..Attempt::from(Err(error))
        }
    }

    /// The reason why there is no response.
    pub(super) fn error(&self) -> Option<&UpstreamError> {
        self.outcome.as_ref().err()
    }

    /// Returns true if a host may receive the request again, if its body can be sent again.
    pub(super) fn may_retry(&self, request: &Request<RequestBody>) -> bool {
        let is_over = |error: &UpstreamError| matches!(error.kind, UpstreamErrorKind::Deadline(_));
        self.is_unprocessed || is_repeatable(request) && !self.error().is_some_and(is_over)
    }

    /// The evidence about the host.
    pub(super) fn evidence(&self) -> HostEvidence {
        let error = match &self.outcome {
            Ok(response) if is_failure(response.status()) => return HostEvidence::Failed,
            Ok(_) => return HostEvidence::Good,
            Err(error) => error,
        };
        match &error.kind {
            UpstreamErrorKind::Resolve(_)
            | UpstreamErrorKind::NoStream(_)
            | UpstreamErrorKind::Shortage(_)
            | UpstreamErrorKind::Stalled => HostEvidence::Excused,
            UpstreamErrorKind::Connect(error)
            | UpstreamErrorKind::Tls(error)
            | UpstreamErrorKind::Handshake(error)
                if is_reset(error) =>
            {
                HostEvidence::Failed
            }
            kind if kind.is_of_connecting() => HostEvidence::NoConnection,
            _ if self.is_owed => HostEvidence::Excused,
            UpstreamErrorKind::RequestBody(_)
            | UpstreamErrorKind::Bystander(_)
            | UpstreamErrorKind::InvalidHost
            | UpstreamErrorKind::NoWebSocket
            | UpstreamErrorKind::Deadline(_) => HostEvidence::Excused,
            UpstreamErrorKind::Reset(error) if is_of_request(error) => HostEvidence::Excused,
            _ => HostEvidence::Failed,
        }
    }
}

/// Returns true for statuses that say that the server fails, not the request.
fn is_failure(status: StatusCode) -> bool {
    let is_of_request = |status| {
        status == StatusCode::NOT_IMPLEMENTED || status == StatusCode::HTTP_VERSION_NOT_SUPPORTED
    };
    status.is_server_error() && !is_of_request(status)
}

/// Returns true if the host took the connection, and then ended it.
fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}

/// Returns true if a host has reset a stream because of its request: it is malformed (RFC 9113 section
/// 8.1.1), or not to be sent over HTTP/2.
fn is_of_request(reset: &h2::Error) -> bool {
    let is_refused = matches!(
        reset.reason(),
        Some(Reason::PROTOCOL_ERROR | Reason::HTTP_1_1_REQUIRED)
    );
    reset.is_remote() && is_refused
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn some_failures_are_not_the_hosts() {
        let attempt = |kind| Attempt::from(Err(UpstreamError::new(&"host".into(), kind)));
        let second = Duration::from_secs(1);
        let connect = |errno: Errno| UpstreamErrorKind::of_dial(errno.into());
        for (kind, expected) in [
            (connect(Errno::CONNREFUSED), HostEvidence::NoConnection),
            (connect(Errno::HOSTUNREACH), HostEvidence::NoConnection),
            (connect(Errno::CONNRESET), HostEvidence::Failed),
            (
                UpstreamErrorKind::Tls(io::ErrorKind::UnexpectedEof.into()),
                HostEvidence::Failed,
            ),
            (connect(Errno::MFILE), HostEvidence::Excused),
            (connect(Errno::ADDRNOTAVAIL), HostEvidence::Excused),
        ] {
            assert_eq!(attempt(kind).evidence(), expected);
        }
        let late = UpstreamErrorKind::ResponseTimeout(second);
        assert_eq!(attempt(late).evidence(), HostEvidence::Failed);
        for kind in [
            UpstreamErrorKind::ResponseTimeout(second),
            UpstreamErrorKind::Closed(io::ErrorKind::ConnectionReset.into()),
        ] {
            let mut attempt = attempt(kind);
            assert_eq!(attempt.evidence(), HostEvidence::Failed);
            attempt.is_owed = true;
            assert_eq!(attempt.evidence(), HostEvidence::Excused);
        }
        let over = UpstreamErrorKind::Deadline(second);
        assert_eq!(attempt(over).evidence(), HostEvidence::Excused);
    }

    #[test]
    fn statuses_that_tell_of_the_request_are_no_failures() {
        let failures = (100..600).filter_map(|status| StatusCode::from_u16(status).ok());
        let failures: Vec<_> = failures.filter(|status| is_failure(*status)).collect();
        assert!(failures.iter().all(StatusCode::is_server_error));
        assert_eq!(failures.len(), 98);
    }
}
