//! What becomes of the body of a request that is answered without it.
//!
//! The rest of a body must never be read as the next request. In HTTP/1 the connection sees to that: it throws a short
//! rest away, or closes. In HTTP/2 a stream whose body is not read is reset after the response (RFC 9113 section 8.1),
//! which some clients take for an error while they send: of short bodies the rest is read here, for a few at a time.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::header::EXPECT;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::http::body::RequestBody;
use crate::http::message::Request;

/// The most bytes of a body that are read for the sake of its client.
const MOST: u64 = 256 * 1024;
/// How long that may take in all.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bodies that are waited for at a time; streams with others are reset.
const MOST_AT_ONCE: usize = 256;

/// How many are.
static WAITING: Places = Places(AtomicUsize::new(0));

/// Throws the body of `request` away. A client that waits for `100 Continue` is not invited to send it.
pub(super) fn discard(request: &mut Request<RequestBody>) {
    let expects = request.headers().contains(EXPECT);
    let mut body = std::mem::replace(request.body_mut(), RequestBody::empty());
    if !body.is_http2() || body.is_end_stream() || expects || body.size_hint().lower() > MOST {
        return;
    }
    body.bound(MOST, PATIENCE);
    if has_ended(&mut body) {
        return;
    }
    let Some(place) = WAITING.take(MOST_AT_ONCE) else {
        return;
    };
    tokio::spawn(timeout(PATIENCE, async move {
        while let Some(Ok(_)) = body.frame().await {}
        drop(place);
    }));
}

/// Reads what is there; whether that is all.
fn has_ended(body: &mut RequestBody) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut *body).poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None | Some(Err(_))) => return true,
            Poll::Pending => return body.is_end_stream(),
        }
    }
}

/// A number of places that can be taken.
#[derive(Debug)]
struct Places(AtomicUsize);

/// A place that is given back when it is dropped.
#[derive(Debug)]
struct Place<'a>(&'a Places);

impl Places {
    fn take(&self, most: usize) -> Option<Place<'_>> {
        let more = |taken| (taken < most).then_some(taken + 1);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Place(self))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let places = Places(AtomicUsize::new(0));
        let both = [places.take(2), places.take(2)];
        assert!(both.iter().all(Option::is_some) && places.take(2).is_none());
        drop(both);
        assert!(places.take(2).is_some());
    }
}
