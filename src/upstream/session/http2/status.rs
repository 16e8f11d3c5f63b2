//! An exchange of which only the status is wanted, over a connection of its own.

use std::io;

use bytes::Bytes;
use h2::client::Builder;
use http::{Request, StatusCode};

use super::connection::MAX_HEAD;
use crate::upstream::connector::Stream;
use crate::upstream::session::ExchangeError;

/// Sends `request`, which has no body, and returns the status of the final response. The host may
/// send no more than 64 KiB of its body.
///
/// # Errors
/// When the connection fails, or the response is not valid.
pub(in crate::upstream) async fn http2_status(
    stream: Stream,
    request: Request<()>,
) -> Result<StatusCode, ExchangeError> {
    let mut builder = Builder::new();
    builder.max_header_list_size(MAX_HEAD).enable_push(false);
    let (requests, connection) = builder.handshake::<_, Bytes>(stream).await?;
    let exchange = async {
        let (response, _) = requests.ready().await?.send_request(request, true)?;
        Ok(response.await?.status())
    };
    tokio::select! {
        biased;
        status = exchange => status,
        ended = connection => {
            ended?;
            let end = io::Error::from(io::ErrorKind::UnexpectedEof);
            Err(ExchangeError::Closed(end))
        }
    }
}
