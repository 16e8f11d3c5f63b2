//! One exchange over a connection of its own.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Request, Response};

use super::connection::MAX_HEAD;
use super::io_counts::IoCounts;
use crate::http::http1::InvalidMessage;
use crate::http::http2::FrameIo;
use crate::upstream::UpstreamErrorKind;
use crate::upstream::connector::Stream;

/// The most bytes of a response's body.
const MAX_BODY: usize = 1024;

/// A response, or only its head.
#[derive(Debug)]
pub(in crate::upstream) struct WholeResponse {
    pub head: Response<()>,
    pub body: Vec<u8>,
    pub trailers: HeaderMap,
}

/// Sends `request`, and receives the response: the whole of one to a request with a `body`, else
/// only its head. The host may then send no more than 64 KiB of its body.
///
/// # Errors
/// When the connection fails, or the response is not valid or has a body of more than 1 KiB.
pub(in crate::upstream) async fn http2_exchange(
    stream: Stream,
    request: Request<()>,
    body: Option<Bytes>,
) -> Result<WholeResponse, UpstreamErrorKind> {
    let mut builder = Builder::new();
    builder.max_header_list_size(MAX_HEAD).enable_push(false);
    let io = FrameIo::with_server(stream, Arc::<IoCounts>::default());
    let (requests, connection) = builder.handshake::<_, Bytes>(io).await?;
    let mut exchange = pin!(exchange(requests, request, body));
    tokio::select! {
        biased;
        result = &mut exchange => result,
        // The last frames may have come with the end.
        _ = connection => exchange.await,
    }
}

async fn exchange(
    requests: SendRequest<Bytes>,
    request: Request<()>,
    body: Option<Bytes>,
) -> Result<WholeResponse, UpstreamErrorKind> {
    let mut requests = requests.ready().await?;
    let (response, mut upload) = requests.send_request(request, body.is_none())?;
    let is_whole = body.is_some();
    if let Some(body) = body {
        upload.send_data(body, true)?;
    }
    let (head, mut receiver) = response.await?.into_parts();
    let mut response = WholeResponse {
        head: Response::from_parts(head, ()),
        body: Vec::new(),
        trailers: HeaderMap::new(),
    };
    if is_whole {
        while let Some(data) = receiver.data().await {
            response.body.extend_from_slice(&data?);
            if response.body.len() > MAX_BODY {
                let what = "its body has more than 1 KiB";
                return Err(UpstreamErrorKind::Invalid(InvalidMessage::TooLarge(what)));
            }
        }
        response.trailers = receiver.trailers().await?.unwrap_or_default();
    }
    Ok(response)
}
