//! What the proxy's own pages need of a request that is changed for its upstream.

use http::header::ACCEPT;

use crate::http::host;
use crate::http::message::Request;

/// Parts of a head as the client sent it.
#[derive(Debug)]
pub(in crate::proxy) struct KeptHead {
    pub accept: Option<Box<[u8]>>,
    pub host: Box<str>,
    pub path: Box<str>,
}

impl KeptHead {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        KeptHead {
            accept: request.headers().get(ACCEPT).map(Box::from),
            host: host::effective(request)
                .as_deref()
                .unwrap_or_default()
                .into(),
            path: request.uri().path().into(),
        }
    }
}
