//! What becomes of the body of a request that is answered without it.
//!
//! The rest of a body must never be read as the next request. A short one is read and thrown away,
//! so that the connection stays usable; otherwise hyper closes the connection after the response.

use std::time::Duration;

use http::header::{EXPECT, HeaderMap};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::http_ext::body::RequestBody;

/// The most bytes that are read for the sake of a connection; beyond it, a new connection is cheaper.
const MOST: u64 = 256 * 1024;
/// How long that may take in all.
const PATIENCE: Duration = Duration::from_secs(2);

/// Throws `body` away. A client that waits for `100 Continue` is not invited to send it.
pub(super) fn discard(headers: &HeaderMap, body: Incoming) {
    let announced = body.size_hint().lower();
    if body.is_end_stream() || announced > MOST || headers.contains_key(EXPECT) {
        return;
    }
    tokio::spawn(timeout(PATIENCE, async move {
        let mut body = RequestBody::new(body, MOST, PATIENCE);
        while let Some(Ok(_)) = body.frame().await {}
    }));
}
