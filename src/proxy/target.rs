//! The request target (RFC 9112 section 3.2): the host and path to match and to forward.

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;

use http::{Method, StatusCode, Version};

use crate::http::client_ip::ClientIp;
use crate::http::connection::Scheme;
use crate::http::forwarded::{self, Peer};
use crate::http::headers::Headers;
use crate::http::message::Request;
use crate::http::path::{self, EncodedSlashes, PathError};
use crate::http::{framing, host, original_request};
use crate::net::socket::StreamAddress;
use crate::proxy::answers::error::{Error, bad_request};
use crate::proxy::answers::redirect::RedirectedRequest;
use crate::proxy::ruleset::{Route, Ruleset};
use crate::rules::Head;

/// Host and normalised path of a request.
#[derive(Debug)]
pub(super) struct RequestTarget {
    host: Rc<str>,
    /// The normalised path, if it differs from the path of the request.
    pub(super) path: Option<String>,
    /// The path to compare and count, if it differs from the path to forward.
    comparable_path: Option<String>,
    has_encoded_slash: bool,
}

/// The client and its connection, as rules see them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender<'a> {
    pub client_ip: IpAddr,
    /// The address at which the connection was accepted, if known.
    pub local: Option<&'a StreamAddress>,
    /// The scheme, if known.
    pub scheme: Option<Scheme>,
}

impl Sender<'_> {
    /// The client, with the scheme of its own connection to a trusted proxy if the `peer` is one and
    /// names it; unknown if the proxies name different ones.
    pub(super) fn as_named(self, peer: Peer, rules: &ClientIp, headers: &Headers) -> Self {
        let named = match peer {
            Peer::Trusted => forwarded::named_scheme(rules, headers),
            Peer::Untrusted => None,
        };
        Self {
            scheme: named.unwrap_or(self.scheme),
            ..self
        }
    }
}

impl RequestTarget {
    /// Normalises the target of a request whose head is checked. `slashes` says if any route keeps
    /// encoded slashes.
    ///
    /// # Errors
    /// 400 if the host is ambiguous, or the path cannot be normalised safely.
    #[inline(always)] // Its second caller, a question, is rare.
    #[expect(clippy::inline_always)]
    pub(super) fn of<B>(request: &Request<B>, slashes: EncodedSlashes) -> Result<Self, Error> {
        let host = host::effective(request).map_err(bad_request)?;
        let path = match (request.method(), request.uri().path()) {
            // The whole server (RFC 9112 section 3.2.4).
            (&Method::OPTIONS, "*") => Cow::Borrowed("*"),
            (_, path) => path::normalise(path, slashes).map_err(bad_request)?,
        };
        let comparable_path = match path::comparable(&path) {
            Cow::Borrowed(_) => None,
            Cow::Owned(comparable_path) => Some(comparable_path),
        };
        Ok(RequestTarget {
            host,
            has_encoded_slash: slashes == EncodedSlashes::Keep && path::has_encoded_slash(&path),
            path: match path {
                Cow::Borrowed(_) => None,
                Cow::Owned(path) => Some(path),
            },
            comparable_path,
        })
    }

    /// Checks that the request's route takes its path.
    ///
    /// # Errors
    /// 400 if the path has an encoded slash that the route doesn't keep.
    pub(super) fn check_route(&self, route: &Route) -> Result<(), Error> {
        if self.has_encoded_slash && route.encoded_slashes == EncodedSlashes::Refuse {
            return Err(bad_request(PathError::Separator));
        }
        Ok(())
    }

    /// Turns a question into the request that it is about, which a trusted peer may describe, and
    /// checks that.
    ///
    /// # Errors
    /// As [`Self::of`], and 400 if the description is invalid or contradicts itself.
    #[cold]
    pub(super) fn described<B>(
        request: &mut Request<B>,
        peer: Peer,
        ruleset: &Ruleset,
    ) -> Result<Self, Error> {
        if peer == Peer::Trusted {
            forwarded::restate(&ruleset.client_ip, request.headers_mut());
            original_request::restore(request).map_err(bad_request)?;
        }
        framing::check(request)?;
        Self::of(request, ruleset.encoded_slashes)
    }

    /// Checks that a target in absolute form may come over a connection of this scheme: an https
    /// URL needs TLS, unless a trusted gateway ended it (RFC 9110 section 7.4).
    ///
    /// # Errors
    /// 421, so that the client may retry over another connection.
    pub(super) fn check_scheme<B>(
        request: &Request<B>,
        scheme: Scheme,
        trust: impl FnOnce() -> Peer,
    ) -> Result<(), Error> {
        let asks_for_tls = request.version() <= Version::HTTP_11
            && request.uri().scheme_str() == Some(Scheme::Https.into());
        if asks_for_tls && scheme == Scheme::Http && trust() == Peer::Untrusted {
            Err(Error::Request {
                status: StatusCode::MISDIRECTED_REQUEST,
                reason: "An https URL is not served over a connection without TLS.",
            })
        } else {
            Ok(())
        }
    }

    /// The parts of the request that a redirect may repeat.
    pub(super) fn redirected<'h, B>(&'h self, request: &'h Request<B>) -> RedirectedRequest<'h> {
        RedirectedRequest {
            host: &self.host,
            path: self.path.as_deref().unwrap_or(request.uri().path()),
            query: request.uri().query(),
        }
    }

    /// The head, as rules see it, without a token.
    pub(super) fn head<'h, B>(&'h self, request: &'h Request<B>, sender: Sender<'h>) -> Head<'h> {
        let comparable_path = self.comparable_path.as_deref().or(self.path.as_deref());
        let path = comparable_path.unwrap_or(request.uri().path());
        Head {
            local: sender.local,
            scheme: sender.scheme,
            ..Head::new(request, &self.host, path, sender.client_ip)
        }
    }
}
