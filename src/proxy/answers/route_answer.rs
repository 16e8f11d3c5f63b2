//! Answers of routes that forward nothing.

use bytes::Bytes;
use derive_more::Display;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue, LOCATION};

use super::error::{Error, bad_request};
use super::redirect::{RedirectTarget, RedirectedRequest};
use crate::http::host::HostError;
use crate::http::message::Response;
use crate::proxy::body::ResponseBody;

/// The response of a route to all of its requests.
#[derive(Clone, Debug)]
pub enum RouteAnswer {
    /// Another URL.
    Redirect {
        /// The URL.
        target: RedirectTarget,
        /// 301, 302, 303, 307 or 308.
        status: StatusCode,
    },
    /// Always the same response.
    Fixed {
        /// 200 to 599.
        status: StatusCode,
        /// Its fields, with the type of the body if there is one.
        headers: Vec<(HeaderName, HeaderValue)>,
        /// Its body.
        body: Bytes,
    },
    /// 200 without a body: the request may be served by whoever asks. It is 200 because Envoy takes
    /// no other status for it.
    Decision,
    /// A list of decisions, one for each request of the list in the body.
    Decisions,
    /// The state of the caller's limits.
    Status,
}

/// A [`RouteAnswer`] to one request.
#[derive(Debug, Display)]
pub(in crate::proxy) enum PreparedAnswer<'a> {
    #[display("redirected with {} to {}", _0.as_u16(), _1.to_str().unwrap_or_default())]
    Redirect(StatusCode, HeaderValue),
    #[display("the asking proxy may serve it")]
    Decision,
    /// Its body depends on that of the request.
    #[display("answered with a decision on each request in its body")]
    Decisions,
    /// The fields and the body depend on the caller's buckets.
    #[display("answered with the state of the client's limits")]
    Status,
    #[display("answered with {}", _0.as_u16())]
    Fixed(StatusCode, &'a [(HeaderName, HeaderValue)], &'a Bytes),
    #[display("answered with 204 as a preflight request")]
    Preflight,
}

impl RouteAnswer {
    /// Prepares the answer to a request.
    ///
    /// # Errors
    /// 400 if the redirect needs a host, and the request names none.
    pub(in crate::proxy) fn prepare(
        &self,
        request: RedirectedRequest<'_>,
    ) -> Result<PreparedAnswer<'_>, Error> {
        match self {
            Self::Redirect { target, status } => {
                let location = target.location(request);
                let location = location.ok_or_else(|| bad_request(HostError::Missing))?;
                Ok(PreparedAnswer::Redirect(*status, location))
            }
            Self::Fixed {
                status,
                headers,
                body,
            } => Ok(PreparedAnswer::Fixed(*status, headers, body)),
            Self::Decision => Ok(PreparedAnswer::Decision),
            Self::Decisions => Ok(PreparedAnswer::Decisions),
            Self::Status => Ok(PreparedAnswer::Status),
        }
    }
}

impl PreparedAnswer<'_> {
    /// The status of the response.
    pub(in crate::proxy) fn status(&self) -> StatusCode {
        match self {
            Self::Redirect(status, _) | Self::Fixed(status, ..) => *status,
            Self::Preflight => StatusCode::NO_CONTENT,
            Self::Decision | Self::Decisions | Self::Status => StatusCode::OK,
        }
    }

    /// Builds the response.
    pub(in crate::proxy) fn response(self) -> Response<ResponseBody> {
        let (headers, body) = match &self {
            Self::Redirect(_, location) => (&[(LOCATION, location.clone())][..], Bytes::new()),
            Self::Fixed(_, headers, body) => (*headers, Bytes::clone(body)),
            Self::Decision | Self::Decisions | Self::Status | Self::Preflight => {
                (&[][..], Bytes::new())
            }
        };
        let mut response = Response::new(ResponseBody::own(body));
        *response.status_mut() = self.status();
        for (name, value) in headers {
            response.headers_mut().append(name, value.clone());
        }
        response
    }
}
