//! What a request asks for: the host and path that are matched, and that are forwarded.

use std::borrow::Cow;
use std::net::IpAddr;

use http::request::Parts;

use super::error::Error;
use crate::http_ext::{framing, host, path};
use crate::rules::Head;

/// The host and the normalised path of a request.
#[derive(Debug)]
pub(super) struct Target<'a> {
    host: Cow<'a, str>,
    path: Cow<'a, str>,
}

impl<'a> Target<'a> {
    /// Checks the head, and finds what it asks for.
    ///
    /// # Errors
    /// A 4xx or 501 for a head that is ambiguous, or whose path cannot be normalised safely.
    pub(super) fn of(parts: &'a Parts) -> Result<Self, Error> {
        framing::check(parts)?;
        Ok(Target {
            host: host::effective(parts)?,
            path: path::normalise(parts.uri.path())?,
        })
    }

    /// The request as the rules see it.
    pub(super) fn head<'h>(&'h self, parts: &'h Parts, client_ip: IpAddr) -> Head<'h> {
        Head {
            method: &parts.method,
            host: &self.host,
            path: &self.path,
            query: parts.uri.query(),
            headers: &parts.headers,
            client_ip,
        }
    }

    /// The path to forward, where it is not the one that the client wrote.
    pub(super) fn into_rewritten(self) -> Option<String> {
        match self.path {
            Cow::Borrowed(_) => None,
            Cow::Owned(path) => Some(path),
        }
    }
}
