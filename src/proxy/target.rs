//! What a request asks for: the host and path that are matched, and that are forwarded.

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;

use http::{Method, StatusCode, Version};

use crate::http::connection::Scheme;
use crate::http::forwarded::Peer;
use crate::http::message::Request;
use crate::http::{framing, host, path};
use crate::proxy::answers::error::Error;
use crate::rules::Head;

/// The host and the normalised path of a request.
#[derive(Debug)]
pub(super) struct RequestTarget {
    host: Rc<str>,
    /// The normalised path, if it differs from the path of the request.
    path: Option<String>,
    /// The path to compare and count, if it differs from the path to forward.
    compared: Option<String>,
}

impl RequestTarget {
    /// Checks the head, and finds what it asks for.
    ///
    /// # Errors
    /// A 4xx or 501 for a head that is ambiguous, or whose path cannot be normalised safely.
    pub(super) fn of<B>(request: &Request<B>) -> Result<Self, Error> {
        framing::check(request)?;
        let host = host::effective(request)?;
        let path = match (request.method(), request.uri().path()) {
            // The whole server (RFC 9112 section 3.2.4).
            (&Method::OPTIONS, "*") => Cow::Borrowed("*"),
            (_, path) => path::normalise(path)?,
        };
        let compared = match path::comparable(&path) {
            Cow::Borrowed(_) => None,
            Cow::Owned(compared) => Some(compared),
        };
        Ok(RequestTarget {
            host,
            path: match path {
                Cow::Borrowed(_) => None,
                Cow::Owned(path) => Some(path),
            },
            compared,
        })
    }

    /// Checks that a target in absolute form may be asked for over a connection of this scheme: an https resource
    /// only over TLS, unless a trusted gateway has ended that (RFC 9110 section 7.4).
    ///
    /// # Errors
    /// 421, which a client may repeat over another connection.
    pub(super) fn check_scheme<B>(
        request: &Request<B>,
        scheme: Scheme,
        trust: impl FnOnce() -> Peer,
    ) -> Result<(), Error> {
        let asks_for_tls = request.version() <= Version::HTTP_11
            && request.uri().scheme_str() == Some(Scheme::Https.as_str());
        match asks_for_tls && scheme == Scheme::Http && trust() == Peer::Untrusted {
            false => Ok(()),
            true => Err(Error::Request {
                status: StatusCode::MISDIRECTED_REQUEST,
                reason: "An https URL is not served over a connection without TLS.",
            }),
        }
    }

    /// The request as the rules see it.
    pub(super) fn head<'h, B>(&'h self, request: &'h Request<B>, client_ip: IpAddr) -> Head<'h> {
        let compared = self.compared.as_deref().or(self.path.as_deref());
        Head {
            method: request.method(),
            host: &self.host,
            path: compared.unwrap_or(request.uri().path()),
            query: request.uri().query(),
            headers: request.headers(),
            client_ip,
            token: None,
        }
    }

    /// The normalised path to forward, if it differs from the path of the request.
    pub(super) fn into_rewritten(self) -> Option<String> {
        self.path
    }
}
