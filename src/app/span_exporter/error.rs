//! Failures of an export: what the log says of them, and what follows.

use std::io;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use crate::net::dial::DialError;
use crate::telemetry::metrics::SpanLoss;
use crate::visible;

/// The most characters of a collector's words in the log.
const MAX_SHOWN: usize = 200;

/// The reason why a batch is not exported.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    /// The name of the collector has no address.
    #[error("the name is not resolved: {0}; is it right in tracing.endpoint?")]
    Resolve(io::Error),
    /// No address takes a connection.
    #[error("no connection: {0}; does a collector listen there?")]
    Connect(io::Error),
    /// The collector's certificate is not trusted.
    #[error(
        "its certificate is refused: {0}; name its authority in tracing.tls.ca, or its name in tracing.tls.server_name"
    )]
    Certificate(io::Error),
    /// TLS fails in another way.
    #[error("TLS fails: {0}; does the collector speak TLS there?")]
    Tls(io::Error),
    /// The connection broke before the answer.
    #[error("the connection breaks: {0}; does the collector speak OTLP over HTTP there?")]
    Broken(hyper::Error),
    /// The collector has not answered in time.
    #[error("no answer within {0:?} (tracing.timeout)")]
    Late(Duration),
    /// The collector does not take the batch.
    #[error("the collector answers {status}{reason}{}", advice(*status))]
    Refused {
        status: StatusCode,
        /// The words that the collector has for it, in brackets.
        reason: String,
        retry_after: Option<Duration>,
    },
}

impl From<DialError> for ExportError {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Resolve(error) | DialError::ResolveTimeout(error) => Self::Resolve(error),
            DialError::Connect(error) => Self::Connect(error),
        }
    }
}

impl ExportError {
    /// The failure of a handshake.
    pub(super) fn tls(error: io::Error) -> Self {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
        match cause {
            Some(rustls::Error::InvalidCertificate(_)) => Self::Certificate(error),
            _ => Self::Tls(error),
        }
    }

    /// A refusal with the words that the collector has for it.
    pub(super) fn refused(status: StatusCode, headers: &HeaderMap, reason: Option<&str>) -> Self {
        // Words about credentials may repeat these.
        let is_about_credentials = matches!(status.as_u16(), 401 | 403);
        let reason = reason.filter(|words| !words.is_empty() && !is_about_credentials);
        let seconds = headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        Self::Refused {
            status,
            reason: reason.map_or_else(String::new, |words| format!(" ({})", shown(words))),
            retry_after: seconds.map(Duration::from_secs),
        }
    }

    /// How the lost spans are counted.
    pub(super) fn loss(&self) -> SpanLoss {
        match self {
            Self::Refused { .. } => SpanLoss::Refused,
            _ => SpanLoss::Unreachable,
        }
    }

    /// A later attempt may succeed (OTLP 1.x, "Retryable Response Codes" and "OTLP/HTTP
    /// Connection").
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            _ => true,
        }
    }

    /// The pause that the collector asks for.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } if self.is_temporary() => *retry_after,
            _ => None,
        }
    }
}

fn advice(status: StatusCode) -> &'static str {
    match status.as_u16() {
        300..=399 => "; redirects are not followed: name where it leads in tracing.endpoint",
        401 | 403 => "; look at the credentials in tracing.headers",
        404 | 405 => "; look at the path of tracing.endpoint",
        429 => "; if that lasts, lower tracing.sample_ratio",
        _ => "",
    }
}

/// The words of a collector as the log has them: their beginning, without control characters.
pub(super) fn shown(words: &str) -> String {
    let beginning = visible::cut(words, MAX_SHOWN);
    // Letter by letter: a whole text would keep marks that join the letter before.
    beginning.chars().flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn refused(status: u16, retry_after: &'static str, reason: &str) -> ExportError {
        let status = StatusCode::from_u16(status).expect("a status");
        let headers = [(RETRY_AFTER, HeaderValue::from_static(retry_after))];
        let headers = HeaderMap::from_iter(headers);
        ExportError::refused(status, &headers, Some(reason))
    }

    #[test]
    fn only_temporary_refusals_are_retried_after_the_pause_that_is_asked_for() {
        for (status, retry_after, pause) in [
            (429, "7", Some(7)),
            (503, "0", Some(0)),
            (503, "Wed, 25 Nov 2026 00:00:00 GMT", None),
            (502, "-1", None),
            (413, "7", None),
            (400, "7", None),
            (307, "7", None),
            (500, "7", None),
        ] {
            let error = refused(status, retry_after, "");
            assert_eq!(
                error.retry_after(),
                pause.map(Duration::from_secs),
                "{status}"
            );
            assert_eq!(
                error.is_temporary(),
                matches!(status, 429 | 502 | 503),
                "{status}"
            );
        }
    }

    #[test]
    fn the_log_has_advice_and_no_credentials() {
        let said = refused(401, "1", "unknown key hunter2").to_string();
        assert!(
            said.ends_with("look at the credentials in tracing.headers"),
            "{said}"
        );
        assert!(!said.contains("hunter2"), "{said}");
        let said = refused(400, "1", &format!("two\nlines{}", "x".repeat(999))).to_string();
        assert!(
            said.contains("(two\\nlinesxxx") && said.len() < 300,
            "{said}"
        );
    }
}
