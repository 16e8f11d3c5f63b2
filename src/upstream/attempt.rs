//! One attempt at a request, and its outcome.

use std::cell::Cell;

use super::{Dscp, UpstreamBody, UpstreamError};
use crate::http::body::RequestBody;
use crate::http::connection::ClientConnection;
use crate::http::informational::InformationalQueue;
use crate::http::message::{Request, Response};

/// A request to be sent, with the context that an upstream needs.
///
/// Passed by one reference: a field that a future owns enlarges every future around it.
#[derive(Debug)]
pub struct OutboundRequest<'a> {
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
}

/// An attempt that has ended.
#[derive(Debug)]
pub(super) struct Attempt {
    pub outcome: AttemptOutcome,
    /// The request is unchanged, and the endpoint may receive it again: it has received nothing of
    /// it, or the request is idempotent.
    pub may_retry: bool,
}

/// The outcome of an attempt.
#[derive(Debug)]
pub(super) enum AttemptOutcome {
    /// The head of a response.
    Response(Response<UpstreamBody>),
    /// There is no connection.
    Refused(UpstreamError),
    /// The exchange failed before anything of the request was sent.
    Unsent(UpstreamError),
    /// The exchange failed, and the endpoint states that it has not processed the request, of which
    /// a part was sent (RFC 9113 sections 6.8 and 8.7).
    Unprocessed(UpstreamError),
    /// The exchange failed, and the endpoint may have processed the request.
    Broken(UpstreamError),
    /// The response did not begin in time.
    TimedOut(UpstreamError),
}

impl Attempt {
    /// The reason why there is no response.
    pub(super) fn error(&self) -> Option<&UpstreamError> {
        match &self.outcome {
            AttemptOutcome::Response(_) => None,
            AttemptOutcome::Refused(error)
            | AttemptOutcome::Unsent(error)
            | AttemptOutcome::Unprocessed(error)
            | AttemptOutcome::Broken(error)
            | AttemptOutcome::TimedOut(error) => Some(error),
        }
    }

    pub(super) fn into_result(self) -> Result<Response<UpstreamBody>, UpstreamError> {
        match self.outcome {
            AttemptOutcome::Response(response) => Ok(response),
            AttemptOutcome::Refused(error)
            | AttemptOutcome::Unsent(error)
            | AttemptOutcome::Unprocessed(error)
            | AttemptOutcome::Broken(error)
            | AttemptOutcome::TimedOut(error) => Err(error),
        }
    }
}
