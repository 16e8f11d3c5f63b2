//! The head of a request as the client sent it, for the proxy's own pages.

use std::borrow::Cow;

use http::header::ACCEPT;

use crate::http::host;
use crate::http::message::Request;
use crate::http::path::{self, EncodedSlashes};

/// Parts of a head as the client sent it.
#[derive(Debug)]
pub(in crate::proxy) struct KeptHead {
    pub accept: Option<Box<[u8]>>,
    pub host: Box<str>,
    /// The path as it is matched; that of the client if it has no normal form.
    pub path: Box<str>,
}

impl KeptHead {
    pub(in crate::proxy) fn of<B>(request: &Request<B>) -> Self {
        let received = request.uri().path();
        let path = path::normalise(received, EncodedSlashes::Keep);
        let path = path.unwrap_or(Cow::Borrowed(received));
        KeptHead {
            accept: request.headers().get(ACCEPT).map(Box::from),
            host: host::effective(request)
                .as_deref()
                .unwrap_or_default()
                .into(),
            path: path::comparable(&path).into(),
        }
    }
}
