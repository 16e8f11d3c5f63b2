//! One exchange over a connection of its own.

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Request, Response, StatusCode};

use super::connection::MAX_HEAD;
use super::io_counts::IoCounts;
use crate::http::http2::FrameIo;
use crate::upstream::UpstreamErrorKind;
use crate::upstream::connector::Stream;
use crate::upstream::session::InvalidMessage;

/// The most bytes of a response's body.
const MAX_BODY: usize = 1024;

/// A response that was received to its end.
#[derive(Debug)]
pub(in crate::upstream) struct WholeResponse {
    pub head: Response<()>,
    pub body: Vec<u8>,
    pub trailers: HeaderMap,
}

/// Sends `request`, which has no body, and returns the status of the final response. The host may
/// send no more than 64 KiB of its body.
///
/// # Errors
/// When the connection fails, or the response is not valid.
pub(in crate::upstream) async fn http2_status(
    stream: Stream,
    request: Request<()>,
) -> Result<StatusCode, UpstreamErrorKind> {
    let exchange = async |requests: SendRequest<Bytes>| {
        let (response, _) = requests.ready().await?.send_request(request, true)?;
        Ok(response.await?.status())
    };
    over_connection(stream, exchange).await
}

/// Sends `request` with this body, and returns the whole response.
///
/// # Errors
/// When the connection fails, or the response is not valid or has a body of more than 1 KiB.
pub(in crate::upstream) async fn http2_call(
    stream: Stream,
    request: Request<()>,
    body: Bytes,
) -> Result<WholeResponse, UpstreamErrorKind> {
    let exchange = async |requests: SendRequest<Bytes>| {
        let mut requests = requests.ready().await?;
        let (response, mut upload) = requests.send_request(request, false)?;
        upload.send_data(body, true)?;
        let (head, mut receiver) = response.await?.into_parts();
        let mut body = Vec::new();
        while let Some(data) = receiver.data().await {
            body.extend_from_slice(&data?);
            if body.len() > MAX_BODY {
                let what = "its body has more than 1 KiB";
                return Err(UpstreamErrorKind::Invalid(InvalidMessage::TooLarge(what)));
            }
        }
        Ok(WholeResponse {
            head: Response::from_parts(head, ()),
            body,
            trailers: receiver.trailers().await?.unwrap_or_default(),
        })
    };
    over_connection(stream, exchange).await
}

/// Drives a connection until `exchange` has ended.
async fn over_connection<T>(
    stream: Stream,
    exchange: impl AsyncFnOnce(SendRequest<Bytes>) -> Result<T, UpstreamErrorKind>,
) -> Result<T, UpstreamErrorKind> {
    let mut builder = Builder::new();
    builder.max_header_list_size(MAX_HEAD).enable_push(false);
    let io = FrameIo::with_server(stream, IoCounts::default());
    let (requests, connection) = builder.handshake::<_, Bytes>(io).await?;
    let mut exchange = std::pin::pin!(exchange(requests));
    tokio::select! {
        biased;
        result = &mut exchange => result,
        // The last frames may have come with the end.
        _ = connection => exchange.await,
    }
}
