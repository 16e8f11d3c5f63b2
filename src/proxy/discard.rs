//! Discards the body of a request whose response does not need it.
//!
//! The rest of a body must never be read as the next request. An HTTP/1 connection discards a short
//! rest, or closes. An HTTP/2 stream with an unread body is reset after the response (RFC 9113
//! section 8.1), which some clients take for an error while they send. The proxy therefore reads
//! the rest of short HTTP/2 bodies, a bounded number at a time.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::header::EXPECT;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::http::body::RequestBody;
use crate::http::message::Request;

/// Longest body that is read, in bytes.
const MAX_BODY: u64 = 256 * 1024;
/// Longest time to read a body.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bodies that are awaited at a time. Streams of further ones are reset.
const MAX_AWAITED: usize = 256;

static AWAITED: Semaphore = Semaphore::const_new(MAX_AWAITED);

/// Discards the body of `request`. A client that waits for `100 Continue` is not invited to send
/// it.
pub(super) fn discard(request: &mut Request<RequestBody>) {
    if request.body().is_end_stream() {
        return;
    }
    let expects = request.headers().contains(EXPECT);
    let mut body = std::mem::replace(request.body_mut(), RequestBody::empty());
    if !body.is_http2() || expects || body.size_hint().lower() > MAX_BODY {
        return;
    }
    body.bound(MAX_BODY, READ_TIMEOUT);
    if read_available(&mut body) {
        return;
    }
    let Ok(permit) = AWAITED.try_acquire() else {
        return;
    };
    tokio::spawn(timeout(READ_TIMEOUT, async move {
        while let Some(Ok(_)) = body.frame().await {}
        drop(permit);
    }));
}

/// Reads the part that has arrived. True if that is all.
fn read_available(body: &mut RequestBody) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut *body).poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None | Some(Err(_))) => return true,
            Poll::Pending => return body.is_end_stream(),
        }
    }
}
