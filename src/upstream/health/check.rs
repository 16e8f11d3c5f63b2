//! One check: a GET over a connection of its own, of whose answer only the status counts.

use std::time::Duration;

use http::StatusCode;
use http::uri::{Authority, Uri};
use tokio::time::{Instant, timeout_at};

use super::HealthSpec;
use crate::upstream::UpstreamErrorKind;
use crate::upstream::attempt::is_local;
use crate::upstream::connector::Connector;
use crate::upstream::session::{http1_status, http2_status};

/// The name of the proxy in checks.
const USER_AGENT: &str = "sluicegate";

/// The reason why a check failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::upstream) enum CheckFailure {
    /// The status is not an expected one.
    #[error("status {}", _0.as_u16())]
    Status(StatusCode),
    /// No status in time.
    #[error("no answer within {0:?} (health.timeout)")]
    Timeout(Duration),
    /// No connection, or no valid answer.
    #[error(transparent)]
    Exchange(#[from] UpstreamErrorKind),
}

impl CheckFailure {
    /// Returns true if this machine failed, not the host.
    pub(in crate::upstream) fn is_local(&self) -> bool {
        matches!(self, Self::Exchange(UpstreamErrorKind::Connect(error)) if is_local(error))
    }
}

/// Checks the host of `connector`. `authority` is the endpoint's own.
///
/// # Errors
/// When there is no expected status in time.
pub(in crate::upstream) async fn check(
    connector: &Connector,
    spec: &HealthSpec,
    authority: &Authority,
) -> Result<(), CheckFailure> {
    let authority = spec.host.as_ref().unwrap_or(authority);
    let deadline = Instant::now() + spec.timeout;
    let status = timeout_at(deadline, exchange(connector, spec, authority, deadline));
    let late = |_| CheckFailure::Timeout(spec.timeout);
    let status = status.await.map_err(late)??;
    match spec.expects(status) {
        true => Ok(()),
        false => Err(CheckFailure::Status(status)),
    }
}

async fn exchange(
    connector: &Connector,
    spec: &HealthSpec,
    authority: &Authority,
    deadline: Instant,
) -> Result<StatusCode, UpstreamErrorKind> {
    // The deadline of the check is earlier.
    let stream = connector.connect(2 * spec.timeout, None, None).await?;
    let path = &spec.path;
    if !connector.speaks_http2(&stream) {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {USER_AGENT}\r\n\
             Accept: */*\r\nConnection: close\r\n\r\n"
        );
        return Ok(http1_status(stream, head.as_bytes(), deadline).await?);
    }
    let uri = Uri::builder()
        .scheme(connector.scheme())
        .authority(authority.clone())
        .path_and_query(path.clone())
        .build()
        .expect("it has all its parts");
    let mut request = http::Request::new(());
    *request.uri_mut() = uri;
    let agent = http::HeaderValue::from_static(USER_AGENT);
    request
        .headers_mut()
        .insert(http::header::USER_AGENT, agent);
    Ok(http2_status(stream, request).await?)
}
