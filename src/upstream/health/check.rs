//! One check: a GET, of whose answer only the status counts, or a call of gRPC. Each has a connection
//! of its own.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{HeaderValue, Request, StatusCode, header};
use tokio::time::{Instant, timeout_at};

use super::grpc;
use crate::upstream::UpstreamErrorKind;
use crate::upstream::connector::Connector;
use crate::upstream::session::{http1_status, http2_exchange};
use crate::upstream::spec::{HealthRequest, HealthSpec};

/// The name of the proxy in checks.
const USER_AGENT: &str = "sluicegate";

/// The reason why a check failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::upstream) enum CheckFailure {
    /// The status is not an expected one.
    #[error("status {}", _0.as_u16())]
    Status(StatusCode),
    /// The answer to a call does not say that the service is well.
    #[error("{0}")]
    Grpc(String),
    /// The host has chosen HTTP/1.1.
    #[error("the server does not choose HTTP/2 (ALPN), which gRPC needs")]
    NoHttp2,
    /// No answer in time.
    #[error("no answer within {0:?} (health.timeout)")]
    Timeout(Duration),
    /// No connection, or no valid answer.
    #[error(transparent)]
    Exchange(#[from] UpstreamErrorKind),
}

impl CheckFailure {
    /// Returns true if this machine failed, not the host.
    pub(in crate::upstream) fn is_local(&self) -> bool {
        matches!(self, Self::Exchange(UpstreamErrorKind::Shortage(_)))
    }
}

/// Checks the host of `connector`. `authority` is the endpoint's own.
///
/// # Errors
/// When there is no answer in time that says that the host is well.
pub(in crate::upstream) async fn check(
    connector: &Connector,
    spec: &HealthSpec,
    authority: &Authority,
) -> Result<(), CheckFailure> {
    let authority = spec.host.as_ref().unwrap_or(authority);
    let deadline = Instant::now() + spec.timeout;
    let exchange = async {
        // The deadline of the check is earlier.
        let (stream, _file) = connector.connect(2 * spec.timeout, None, None).await?;
        let (speaks_http2, scheme) = (connector.speaks_http2(&stream), connector.scheme());
        let authority = authority.clone();
        match &spec.request {
            HealthRequest::Get { path, statuses } => {
                let status = if speaks_http2 {
                    let head = head(scheme, authority, path.clone());
                    http2_exchange(stream, head, None).await?.head.status()
                } else {
                    let head = format!(
                        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {USER_AGENT}\r\n\
                         Accept: */*\r\nConnection: close\r\n\r\n"
                    );
                    http1_status(stream, head.as_bytes(), deadline).await?
                };
                if is_one_of(status, statuses) {
                    Ok(())
                } else {
                    Err(CheckFailure::Status(status))
                }
            }
            HealthRequest::Grpc { .. } if !speaks_http2 => Err(CheckFailure::NoHttp2),
            HealthRequest::Grpc { service } => {
                let (head, message) = (grpc::head(scheme, authority), grpc::message(service));
                let response = http2_exchange(stream, head, Some(message)).await?;
                match response.head.status() {
                    StatusCode::OK => grpc::read(&response).map_err(CheckFailure::Grpc),
                    status => Err(CheckFailure::Status(status)),
                }
            }
        }
    };
    let late = |_| CheckFailure::Timeout(spec.timeout);
    timeout_at(deadline, exchange).await.map_err(late)?
}

fn is_one_of(status: StatusCode, ranges: &[RangeInclusive<u16>]) -> bool {
    ranges.iter().any(|range| range.contains(&status.as_u16()))
}

/// The head of a GET over HTTP/2.
pub(super) fn head(scheme: Scheme, authority: Authority, path: PathAndQuery) -> Request<()> {
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(authority)
        .path_and_query(path);
    let mut head = Request::new(());
    *head.uri_mut() = uri.build().expect("it has all its parts");
    let agent = HeaderValue::from_static(USER_AGENT);
    head.headers_mut().insert(header::USER_AGENT, agent);
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_ranges() {
        let expects = |code| {
            let status = StatusCode::from_u16(code).expect("a status");
            is_one_of(status, &[200..=299, 401..=401])
        };
        let expected = [200, 250, 299, 300, 400, 401, 402, 503].map(expects);
        assert_eq!(
            expected,
            [true, true, true, false, false, true, false, false]
        );
    }
}
