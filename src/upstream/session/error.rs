//! Reasons why an exchange broke off.

use std::io;

use super::InvalidMessage;
use crate::http::body::RequestBodyError;

/// Reasons why an exchange broke off.
#[derive(Debug)]
pub(in crate::upstream) enum ExchangeError {
    /// The connection broke, or ended before the response did.
    Closed(io::Error),
    /// The response is no valid HTTP.
    Invalid(InvalidMessage),
    /// The upstream violates HTTP/2.
    Protocol(h2::Error),
    /// The upstream violates HTTP/2 on another stream of the connection.
    Bystander(h2::Error),
    /// The upstream reset the stream.
    Reset(h2::Error),
    /// The client's request body broke off.
    RequestBody(RequestBodyError),
}

impl From<h2::Error> for ExchangeError {
    fn from(error: h2::Error) -> Self {
        if error.is_library() {
            return Self::Protocol(error);
        }
        if error.is_reset() {
            return Self::Reset(error);
        }
        Self::Closed(into_io(error))
    }
}

/// The error of the connection, or `error` itself.
pub(super) fn into_io(error: h2::Error) -> io::Error {
    if error.is_io() {
        error
            .into_io()
            .unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    } else {
        io::Error::other(error)
    }
}
