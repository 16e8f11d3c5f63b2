//! What becomes of the body of a request that is answered without it.
//!
//! The rest of a body must never be read as the next request. A short one is read and thrown away,
//! so that the connection stays usable; otherwise the connection is closed after the response.

use std::time::Duration;

use http::header::EXPECT;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::http_ext::body::RequestBody;
use crate::http_ext::message::Request;

/// The most bytes that are read for the sake of a connection; beyond it, a new connection is cheaper.
const MOST: u64 = 256 * 1024;
/// How long that may take in all.
const PATIENCE: Duration = Duration::from_secs(2);

/// Throws the body of `request` away. A client that waits for `100 Continue` is not invited to send it.
pub(super) fn discard(request: &mut Request<RequestBody>) {
    let announced = request.body().size_hint().lower();
    let is_empty = request.body().is_end_stream();
    let mut body = std::mem::replace(request.body_mut(), RequestBody::empty());
    if is_empty || announced > MOST || request.headers().contains(EXPECT) {
        return;
    }
    body.bound(MOST, PATIENCE);
    tokio::spawn(timeout(PATIENCE, async move {
        while let Some(Ok(_)) = body.frame().await {}
    }));
}
