//! Errors of h2, as an exchange has them.

use std::io;

use crate::upstream::UpstreamErrorKind;

impl From<h2::Error> for UpstreamErrorKind {
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
