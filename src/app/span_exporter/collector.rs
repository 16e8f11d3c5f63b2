//! Exchanges with a collector: OTLP over HTTP/1.1, one after the other on a kept connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::error::ExportError;
use crate::config::ExportSpec;
use crate::net::dial::dial_host;
use crate::telemetry::spans::encoding::{ExportResponse, FailureStatus, PartialSuccess};
use crate::upstream::{UpstreamProtocol, secure};

/// The largest answer of a collector that is read, in bytes.
const MAX_ANSWER: usize = 64 << 10;
/// The type of requests and answers.
const PROTOBUF: &[u8] = b"application/x-protobuf";
/// The head start of an address is that of RFC 8305 section 5.
const HEAD_START: Duration = Duration::from_millis(250);

/// A collector, with the connection that the last exchange has left.
#[derive(Default)]
pub(super) struct Collector {
    kept: Option<Connection>,
}

impl Collector {
    /// Posts a message; all of it has `timeout`. The result is what the collector says beside that
    /// it has taken the message.
    ///
    /// # Errors
    /// The reason why the collector has not taken it.
    pub(super) async fn post(
        &mut self,
        spec: &Arc<ExportSpec>,
        message: Bytes,
    ) -> Result<Option<PartialSuccess>, ExportError> {
        let deadline = Instant::now() + spec.timeout;
        let exchange = self.exchange(spec, message, deadline);
        let late = |_| ExportError::Late(spec.timeout);
        timeout_at(deadline, exchange).await.map_err(late)?
    }

    async fn exchange(
        &mut self,
        spec: &Arc<ExportSpec>,
        message: Bytes,
        deadline: Instant,
    ) -> Result<Option<PartialSuccess>, ExportError> {
        let kept = self.kept.take().filter(|kept| kept.spec == *spec);
        if let Some(kept) = kept {
            match self.exchange_over(kept, message.clone()).await {
                // The collector may have closed the connection meanwhile.
                Err(ExportError::Broken(_)) => {}
                decided => return decided,
            }
        }
        let connection = Connection::open(spec, deadline).await?;
        self.exchange_over(connection, message).await
    }

    /// Keeps the connection if the whole answer has been read.
    async fn exchange_over(
        &mut self,
        mut connection: Connection,
        message: Bytes,
    ) -> Result<Option<PartialSuccess>, ExportError> {
        let request = request(&connection.spec, message);
        let answer = connection.sender.send_request(request).await;
        let (head, body) = answer.map_err(ExportError::Broken)?.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        // The status says all: a body that breaks off costs no more than its words.
        let body = match body {
            Ok(body) => {
                self.kept = Some(connection);
                body.to_bytes()
            }
            Err(_) => Bytes::new(),
        };
        let kind = head.headers.get(CONTENT_TYPE).map(|kind| kind.as_bytes());
        let is_protobuf = kind.is_some_and(|kind| kind.starts_with(PROTOBUF));
        let body = is_protobuf.then_some(body);
        if head.status.is_success() {
            let answer = body.and_then(|body| ExportResponse::decode(body).ok());
            return Ok(answer.and_then(|answer| answer.partial_success));
        }
        let status = body.and_then(|body| FailureStatus::decode(body).ok());
        let reason = status.map(|status| status.message);
        Err(ExportError::refused(
            head.status,
            &head.headers,
            reason.as_deref(),
        ))
    }
}

fn request(spec: &ExportSpec, message: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(message));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from(spec.path.clone());
    *request.headers_mut() = spec.headers.clone();
    request
}

/// A connection, and the task that drives it, which ends with it.
struct Connection {
    spec: Arc<ExportSpec>,
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinSet<Result<(), hyper::Error>>,
}

impl Connection {
    async fn open(spec: &Arc<ExportSpec>, deadline: Instant) -> Result<Self, ExportError> {
        let stream = dial_host(&spec.host, spec.port, deadline, HEAD_START).await?;
        let tls = spec.tls.as_ref();
        let tls = tls.map(|tls| tls.connector(UpstreamProtocol::Http1.alpn()));
        let stream = secure(stream, tls).await.map_err(ExportError::tls)?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(ExportError::Broken)?;
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        Ok(Self {
            spec: Arc::clone(spec),
            sender,
            _driver: driver,
        })
    }
}
