//! One request and its response, from the first byte of the one to the last of the other: what is
//! counted and logged of it. It ends when it is dropped, so that a client that leaves is counted too.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use super::admission::Admission;
use super::body::{ResponseBody, ResponseBodyError};
use super::error::Error;
use super::gateway::Gateway;
use super::limit_headers::Style;
use super::respond;
use super::snapshot::{Route, Snapshot};
use crate::clock::Timestamp;
use crate::http_ext::connection::Connection;
use crate::rules::Head;
use crate::telemetry::access_log::Record;

/// What is logged of a client that left before there was an answer; nginx's number for it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// The exchange of one request for one response.
#[derive(Debug)]
pub(super) struct Exchange {
    gateway: Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    connection: Arc<Connection>,
    method: Method,
    accept: Option<HeaderValue>,
    started: Timestamp,
    route: Option<Arc<Route>>,
    admission: Option<Admission>,
    client: Option<IpAddr>,
    status: Option<StatusCode>,
    sent: u64,
    record: Option<Box<Record>>,
}

impl Exchange {
    /// Begins with the head of a request. The clock is read here, once for all that is decided.
    pub(super) fn begin(
        gateway: Arc<Gateway>,
        connection: Arc<Connection>,
        request: &Request<Incoming>,
    ) -> Self {
        let snapshot = gateway.snapshot();
        let started = gateway.clock.now();
        Exchange {
            record: snapshot
                .access_log
                .is_some()
                .then(|| Box::new(Record::new(request))),
            method: request.method().clone(),
            accept: request.headers().get(header::ACCEPT).cloned(),
            gateway,
            snapshot,
            connection,
            started,
            route: None,
            admission: None,
            client: None,
            status: None,
            sent: 0,
        }
    }

    /// The ruleset that this request is served by, whatever is loaded meanwhile.
    pub(super) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The client's connection.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// The instant at which everything about this request is decided.
    pub(super) fn started(&self) -> Timestamp {
        self.started
    }

    /// The header styles of its response.
    pub(super) fn styles(&self) -> &[Style] {
        &self.snapshot.styles
    }

    /// The answer to a request that met `error`.
    pub(super) fn failed(&mut self, error: &Error) -> Response<ResponseBody> {
        if let Error::Upstream(error) = error {
            tracing::debug!(error = error as &dyn std::error::Error, "no response");
        }
        respond::error(error, self.accept.as_ref())
    }

    /// Finds out who the client is.
    pub(super) fn find_client(&mut self, headers: &HeaderMap) -> IpAddr {
        let client = self.snapshot.client_ip.resolve(self.connection.peer.ip(), headers);
        self.client = Some(client);
        client
    }

    /// Finds the route that takes the request.
    pub(super) fn find_route(&mut self, head: &Head<'_>) -> Arc<Route> {
        let route = match self.snapshot.router.find(head) {
            Some(index) => &self.snapshot.routes[index],
            None => &self.snapshot.unmatched,
        };
        self.route = Some(Arc::clone(route));
        Arc::clone(route)
    }

    /// Keeps what the limits said, for the header fields of whatever answer follows.
    pub(super) fn decided(&mut self, admission: Admission) {
        self.admission = Some(admission);
    }

    /// Makes `response` the answer of this exchange, which ends with its body.
    pub(super) fn complete(mut self, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
        self.status = Some(response.status());
        if let (Some(admission), Some(route)) = (&self.admission, &self.route) {
            admission.write_headers(route, &self.snapshot.styles, response.headers_mut());
        }
        response.map(|body| body.ends(self))
    }

    /// `length` more bytes of the body have been sent.
    pub(super) fn sent(&mut self, length: usize) {
        self.sent += length as u64;
    }

    /// The response broke off.
    pub(super) fn broken(&mut self, error: &ResponseBodyError) {
        tracing::debug!(%error, "response broken off");
    }

    fn elapsed(&self) -> Duration {
        self.gateway.clock.now().since(self.started)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let status = self.status.unwrap_or(
            StatusCode::from_u16(CLIENT_CLOSED_REQUEST).unwrap_or(StatusCode::BAD_REQUEST),
        );
        let elapsed = self.elapsed();
        self.gateway.metrics.record(&self.method, status);
        let route = self.route.as_ref().unwrap_or(&self.snapshot.unmatched);
        route.metrics.record(status, elapsed);
        if let (Some(log), Some(mut record)) = (&self.snapshot.access_log, self.record.take()) {
            record.status = status.as_u16();
            record.bytes = self.sent;
            record.elapsed = elapsed;
            record.time = self.started;
            record.client_ip = self.client.unwrap_or(self.connection.peer.ip());
            record.route = Some(Arc::clone(&route.name));
            log.log(self.connection.worker, *record);
        }
    }
}
