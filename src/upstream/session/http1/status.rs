//! An exchange of which only the status is wanted.

use std::future::poll_fn;
use std::io;

use bytes::BytesMut;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::time::{Instant, timeout_at};

use super::connection::is_informational;
use super::response;
use crate::http::http1::ReadBuffer;
use crate::upstream::UpstreamErrorKind;
use crate::upstream::connector::Stream;

/// The most bytes of an answer that are read.
const MAX_ANSWER: u64 = 64 * 1024;

/// Sends `request`, which has no body and closes the connection. Returns the status of the final
/// response. Reads the rest of it for at most half of the time left, so that the host sees an
/// orderly end.
///
/// # Errors
/// When the connection fails, or the response is not valid or has a head of 64 KiB.
pub(in crate::upstream) async fn http1_status(
    mut stream: Stream,
    request: &[u8],
    deadline: Instant,
) -> Result<StatusCode, UpstreamErrorKind> {
    let written = stream.write_all(request).await;
    written.map_err(UpstreamErrorKind::Closed)?;
    let mut answer = stream.take(MAX_ANSWER);
    let mut buffer = ReadBuffer::new(BytesMut::new());
    loop {
        while let Some(head) = response::head(&mut buffer).map_err(UpstreamErrorKind::Invalid)? {
            let status = head.status();
            if !is_informational(status) {
                let left = deadline.saturating_duration_since(Instant::now());
                let mut sink = sink();
                let rest = timeout_at(deadline - left / 2, copy(&mut answer, &mut sink));
                // A body that breaks off says nothing of the status.
                rest.await.ok();
                return Ok(status);
            }
        }
        let read = poll_fn(|cx| buffer.poll_read(&mut answer, cx)).await;
        if read.map_err(UpstreamErrorKind::Closed)? == 0 {
            let end = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(UpstreamErrorKind::Closed(end));
        }
    }
}
