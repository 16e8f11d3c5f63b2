//! A client of the admin API of a running proxy: finds its address and a token, and reads JSON over
//! HTTP/1.1. Texts of answers are safe to print on a terminal.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{printable, run};
use crate::config::TokenRole;

/// The longest time of a call, connection included.
const DEADLINE: Duration = Duration::from_secs(10);
/// The largest answer, in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// The longest reason why an answer is not understood, in characters.
const MAX_REASON: usize = 200;
/// Names the token.
const VARIABLE: &str = "SLUICEGATE_ADMIN_TOKEN";

/// The proxy to call.
#[derive(Args, Debug)]
pub(super) struct AdminArgs {
    /// The admin listener of the proxy, such as http://127.0.0.1:9980 [default: that of the
    /// configuration]
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// A token of the proxy's admin.tokens [default: $SLUICEGATE_ADMIN_TOKEN, or that of the
    /// configuration]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// The configuration of the proxy [default: as for run]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The address of a proxy, and a token.
#[derive(Debug)]
pub(super) struct AdminClient {
    /// Host and port.
    authority: String,
    /// The value of the field `Authorization`.
    authorization: HeaderValue,
}

/// An answer of the API.
#[derive(Debug)]
pub(super) struct Answer<T> {
    /// The answer as the proxy sent it.
    pub(super) json: Value,
    /// Its fields. Texts have no characters that would disturb a terminal.
    pub(super) fields: T,
}

/// The reason why a call has no answer. No text has characters that would disturb a terminal.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// Nothing accepts connections at the address.
    #[error(
        "nothing answers at http://{authority}: {reason}; is the proxy running? --config or --admin names another"
    )]
    Unreachable { authority: String, reason: String },
    /// No answer within [`DEADLINE`].
    #[error(
        "http://{authority} does not answer within {} s; is it the admin listener of sluicegate? --admin names another",
        DEADLINE.as_secs()
    )]
    TimedOut { authority: String },
    /// The connection ends too early.
    #[error(
        "http://{authority} gives no whole answer: {reason}; is it the admin listener of sluicegate? --admin names another"
    )]
    Broken { authority: String, reason: String },
    /// An answer that the API does not give.
    #[error(
        "http://{authority} is not the admin listener of sluicegate: {reason}; give its address with --admin"
    )]
    Foreign { authority: String, reason: String },
    /// An error of the API.
    #[error("{status}: {detail}")]
    Refused { status: StatusCode, detail: String },
}

impl AdminArgs {
    /// The client that these options mean. Reads the configuration if it needs to.
    ///
    /// # Errors
    /// A sentence for people.
    pub(super) fn client(&self, role: TokenRole) -> Result<AdminClient, String> {
        let given = self.token.clone().or_else(|| std::env::var(VARIABLE).ok());
        let given = given.filter(|token| !token.is_empty());
        if let (Some(admin), Some(token)) = (&self.admin, &given) {
            return AdminClient::new(authority(admin)?, token);
        }
        let source = run::find(self.config.clone(), |_| {});
        let loaded = source.load().map_err(|report| {
            format!("{report}\nname the proxy with --admin and --token to do without the file")
        })?;
        let authority = match &self.admin {
            Some(admin) => authority(admin)?,
            None => loaded.admin_address().to_string(),
        };
        let token = given.or_else(|| loaded.admin_token(role));
        let token = token.ok_or_else(|| {
            let (file, role) = (loaded.document.name(), role.as_str());
            if source.file().is_none() {
                return format!(
                    "{}: name the configuration of the proxy with --config, or the proxy with \
                     --admin and a token in ${VARIABLE}; without tokens, the log of the proxy has \
                     one from its start",
                    run::absence()
                );
            }
            format!(
                "{file} has no readable token in admin.tokens.{role}: set ${VARIABLE}; without \
                 tokens, the log of the proxy has one from its start"
            )
        })?;
        AdminClient::new(authority, &token)
    }
}

/// Host and port of a URL, or of an address without a scheme.
fn authority(admin: &str) -> Result<String, String> {
    let wrong = || format!("{admin:?} is no address; write it as in http://127.0.0.1:9980");
    let uri: Uri = admin.parse().map_err(|_| wrong())?;
    let has_path = !matches!(uri.path(), "" | "/");
    let is_http = matches!(uri.scheme_str(), None | Some("http"));
    let authority = uri.authority().filter(|_| is_http && !has_path);
    let authority = authority.ok_or_else(wrong)?;
    Ok(match authority.port_u16() {
        Some(_) => authority.to_string(),
        None => format!("{authority}:80"),
    })
}

impl AdminClient {
    /// # Errors
    /// The token fits no header field: a sentence for people.
    fn new(authority: String, token: &str) -> Result<Self, String> {
        let authorization = HeaderValue::try_from(format!("Bearer {token}"));
        let authorization = authorization.map_err(|_| {
            format!("the token has a line break or another control character: look at --token, ${VARIABLE} or admin.tokens")
        })?;
        Ok(Self {
            authority,
            authorization,
        })
    }

    /// The URL of the proxy.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.authority)
    }

    /// The answer to a GET.
    ///
    /// # Errors
    /// No answer within 10 s, one without the fields of `T`, or an error of the API.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, CallError> {
        self.call(Request::get(path), Bytes::new())
    }

    /// The answer to a POST of JSON.
    ///
    /// # Errors
    /// As [`AdminClient::get`].
    pub(super) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<Answer<T>, CallError> {
        let head = Request::post(path).header(CONTENT_TYPE, "application/json");
        self.call(head, Bytes::from(body.to_string()))
    }

    fn call<T: DeserializeOwned>(
        &self,
        head: http::request::Builder,
        body: Bytes,
    ) -> Result<Answer<T>, CallError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| self.unreachable(&error))?;
        // Within the runtime: the time-out needs its timer.
        let answer = runtime.block_on(async { timeout(DEADLINE, self.exchange(head, body)).await });
        let (status, bytes) = answer.map_err(|_| CallError::TimedOut {
            authority: self.authority.clone(),
        })??;
        let json: Result<Value, _> = serde_json::from_slice(&bytes);
        if !status.is_success() {
            let members = cleaned(json.unwrap_or_default());
            return Err(match members["detail"].as_str() {
                Some(detail) => CallError::Refused {
                    status,
                    detail: detail.to_owned(),
                },
                None => self.foreign(&format!("it answers {status} without a `detail`")),
            });
        }
        let wrong = |error| self.foreign(&format!("its answer is another ({error})"));
        let json = json.map_err(wrong)?;
        let fields = T::deserialize(cleaned(json.clone())).map_err(wrong)?;
        Ok(Answer { json, fields })
    }

    async fn exchange(
        &self,
        head: http::request::Builder,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let stream = TcpStream::connect(&self.authority).await;
        let stream = stream.map_err(|error| self.unreachable(&error))?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.broken(&error))?;
        let connection = tokio::spawn(connection);
        let request = head
            .header(HOST, &self.authority)
            .header(AUTHORIZATION, &self.authorization)
            .body(Full::new(body))
            .expect("paths of the API, and a host of a URL");
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| match error.is_parse() {
            true => self.foreign(&format!("it does not speak HTTP/1.1 ({error})")),
            false => self.broken(&error),
        });
        let (head, body) = answer?.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        connection.abort();
        let body = body.map_err(|error| self.broken(&*error))?;
        Ok((head.status, body.to_bytes()))
    }

    fn unreachable(&self, error: &io::Error) -> CallError {
        CallError::Unreachable {
            authority: self.authority.clone(),
            reason: with_cause(error),
        }
    }

    fn broken(&self, error: &(dyn Error + 'static)) -> CallError {
        CallError::Broken {
            authority: self.authority.clone(),
            reason: with_cause(error),
        }
    }

    fn foreign(&self, reason: &str) -> CallError {
        let reason: String = reason.chars().take(MAX_REASON).collect();
        CallError::Foreign {
            authority: self.authority.clone(),
            reason: printable(&reason),
        }
    }
}

/// An error, and its cause in brackets.
fn with_cause(error: &(dyn Error + 'static)) -> String {
    let cause = error.source();
    let cause = cause.map_or_else(String::new, |cause| format!(" ({cause})"));
    printable(&format!("{error}{cause}"))
}

/// JSON whose texts are safe to print, names included.
fn cleaned(json: Value) -> Value {
    match json {
        Value::String(text) => Value::String(printable(&text)),
        Value::Array(items) => items.into_iter().map(cleaned).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            members
                .map(|(name, value)| (printable(&name), cleaned(value)))
                .collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_a_url_without_a_path() {
        let port = |text| authority(text).ok();
        assert_eq!(
            port("http://127.0.0.1:9980"),
            Some("127.0.0.1:9980".to_owned())
        );
        assert_eq!(port("http://[::1]:9980/"), Some("[::1]:9980".to_owned()));
        assert_eq!(
            port("http://admin.internal"),
            Some("admin.internal:80".to_owned())
        );
        assert_eq!(
            port("admin.internal:9980"),
            Some("admin.internal:9980".to_owned())
        );
        for wrong in ["https://a", "http://a/v1", "/v1", "", "http://"] {
            assert_eq!(port(wrong), None, "{wrong}");
        }
    }
}
