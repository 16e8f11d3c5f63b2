//! A client of the admin API of a running proxy: reads JSON over HTTP/1.1. Texts of answers are safe
//! to print on a terminal.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::admin_options::{TOKEN_OPTIONS, Token, TokenSource};
use super::admin_tls::AdminAddress;
use crate::net::listener;
use crate::upstream::secure;
use crate::visible;

/// The longest time of a call, connection included.
const DEADLINE: Duration = Duration::from_secs(10);
/// The largest answer, in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// The longest reason why an answer is not understood, in characters.
const MAX_REASON: usize = 200;

/// The address of a proxy, and a token unless probes are all it is asked.
#[derive(Debug)]
pub(super) struct AdminClient {
    address: AdminAddress,
    /// The value of the field `Authorization`, and the place of the token.
    token: Option<(HeaderValue, TokenSource)>,
}

/// An answer of the API.
#[derive(Debug)]
pub(super) struct ApiAnswer<T> {
    /// The answer as the proxy sent it.
    pub(super) json: Value,
    /// Its fields. Texts have no characters that would disturb a terminal.
    pub(super) fields: T,
}

impl<T> ApiAnswer<T> {
    /// Returns the answer as indented JSON, or as what `text` makes of it.
    pub(super) fn render(&self, json: bool, text: impl FnOnce(&T) -> String) -> String {
        if json {
            format!("{:#}\n", self.json)
        } else {
            text(&self.fields)
        }
    }

    /// Prints the answer as [`render`](Self::render) returns it.
    pub(super) fn print(&self, json: bool, text: impl FnOnce(&T) -> String) -> io::Result<()> {
        io::stdout().write_all(self.render(json, text).as_bytes())
    }
}

/// The reason why a call has no answer. No text has characters that would disturb a terminal.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct CallError {
    message: String,
    /// The status of the API's answer, if it refuses.
    pub(super) status: Option<StatusCode>,
}

impl From<String> for CallError {
    fn from(message: String) -> Self {
        let status = None;
        Self { message, status }
    }
}

impl AdminClient {
    /// A client of the proxy at this address.
    ///
    /// # Errors
    /// The token fits no header field: a sentence for people.
    pub(super) fn new(address: AdminAddress, token: Token) -> Result<Self, String> {
        let Token { text, source } = token;
        let authorization = HeaderValue::try_from(format!("Bearer {text}"));
        let mut authorization = authorization.map_err(|_| {
            format!("the token of {source} has a line break or another control character")
        })?;
        authorization.set_sensitive(true);
        Ok(Self {
            address,
            token: Some((authorization, source)),
        })
    }

    /// A client that sends no token.
    pub(super) fn without_token(address: AdminAddress) -> Self {
        let token = None;
        Self { address, token }
    }

    /// The URL of the proxy.
    pub(super) fn url(&self) -> String {
        self.address.to_string()
    }

    /// The answer to a GET.
    ///
    /// # Errors
    /// No answer within 10 s, one without the fields of `T`, or an error of the API.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<ApiAnswer<T>, CallError> {
        self.call(Request::get(path), Bytes::new())
    }

    /// The answer to a POST of JSON.
    ///
    /// # Errors
    /// As [`AdminClient::get`].
    pub(super) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<ApiAnswer<T>, CallError> {
        let head = Request::post(path).header(CONTENT_TYPE, "application/json");
        let body = serde_json::to_vec(body).expect("bodies have names for keys");
        self.call(head, body.into())
    }

    /// The first line of the answer to a GET, 200 characters at most.
    ///
    /// # Errors
    /// No answer within 10 s, or not with 200.
    pub(super) fn probe(&self, path: &str) -> Result<String, CallError> {
        let (status, body) = self.send(Request::get(path), Bytes::new())?;
        let text = String::from_utf8_lossy(&body);
        let line = text.lines().next().unwrap_or_default();
        let detail = visible::text(&visible::cut(line, MAX_REASON));
        if status == StatusCode::OK {
            return Ok(detail);
        }
        Err(CallError {
            message: format!("{}{path} answers {status}: {detail}", self.url()),
            status: Some(status),
        })
    }

    fn send(
        &self,
        head: http::request::Builder,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| self.unreachable(&error))?;
        // Within the runtime: the time-out needs its timer.
        let answer = runtime.block_on(async { timeout(DEADLINE, self.exchange(head, body)).await });
        answer.map_err(|_| {
            format!(
                "{} does not answer within {} s; is it the admin listener of sluicegate? --admin names another",
                self.url(),
                DEADLINE.as_secs()
            )
        })?
    }

    fn call<T: DeserializeOwned>(
        &self,
        head: http::request::Builder,
        body: Bytes,
    ) -> Result<ApiAnswer<T>, CallError> {
        let (status, bytes) = self.send(head, body)?;
        let json: Result<Value, _> = serde_json::from_slice(&bytes);
        if !status.is_success() {
            let json = cleaned(json.unwrap_or_default());
            return Err(match json["detail"].as_str() {
                Some(detail) => self.refused(status, detail),
                None => self.foreign(&format!("it answers {status} without a `detail`")),
            });
        }
        let wrong = |error| self.foreign(&format!("its answer is another ({error})"));
        let json = json.map_err(|_| self.foreign("its answer isn't JSON"))?;
        let fields = T::deserialize(cleaned(json.clone())).map_err(wrong)?;
        Ok(ApiAnswer { json, fields })
    }

    /// Connects to loopback of the other family if that is the only one of this machine, as the
    /// admin listener does.
    async fn connect(&self) -> io::Result<TcpStream> {
        let error = match TcpStream::connect(&self.address.authority).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let address = self.address.authority.parse().ok();
        match address.and_then(|address| listener::other_family(address, &error)) {
            Some(other) => TcpStream::connect(other).await,
            None => Err(error),
        }
    }

    async fn exchange(
        &self,
        head: http::request::Builder,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let stream = self.connect().await;
        let stream = stream.map_err(|error| self.unreachable(&error))?;
        let secured = secure(stream, self.address.tls.clone()).await;
        let stream = secured.map_err(|error| {
            format!(
                "no TLS connection to {}: {}; --ca FILE names the certificates to trust, and http:// is for a listener without TLS",
                self.url(),
                with_cause(&error)
            )
        })?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.broken(&error))?;
        let connection = tokio::spawn(connection);
        let head = head.header(HOST, &self.address.authority);
        let head = match &self.token {
            Some((authorization, _)) => head.header(AUTHORIZATION, authorization),
            None => head,
        };
        let request = head
            .body(Full::new(body))
            .expect("paths of the API, and a host of a URL");
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| {
            if error.is_parse() {
                self.foreign(&format!(
                "it does not speak HTTP/1.1 in clear text ({error}): write https:// if it has TLS"
            ))
            } else {
                self.broken(&error)
            }
        });
        let (head, body) = answer?.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        connection.abort();
        let body = body.map_err(|error| self.broken(&*error))?;
        Ok((head.status, body.to_bytes()))
    }

    fn refused(&self, status: StatusCode, detail: &str) -> CallError {
        let is_unknown = status == StatusCode::UNAUTHORIZED;
        let detail = if is_unknown {
            "the token is none of its admin.tokens"
        } else {
            detail
        };
        let mut message = format!("{} answers {status}: {detail}", self.url());
        if let Some((_, source)) = &self.token
            && (is_unknown || status == StatusCode::FORBIDDEN)
        {
            let place = visible::text(&source.to_string());
            message += &format!(". The token is that of {place}; give another {TOKEN_OPTIONS}");
        }
        let status = Some(status);
        CallError { message, status }
    }

    fn unreachable(&self, error: &io::Error) -> CallError {
        let (url, reason) = (self.url(), with_cause(error));
        format!("nothing answers at {url}: {reason}; is the proxy running? --config or --admin names another").into()
    }

    /// The connection ends too early.
    fn broken(&self, error: &(dyn Error + 'static)) -> CallError {
        let (url, reason) = (self.url(), with_cause(error));
        format!(
            "{url} gives no whole answer: {reason}; is it the admin listener of sluicegate? --admin names another"
        )
        .into()
    }

    /// An answer that the API does not give.
    fn foreign(&self, reason: &str) -> CallError {
        let reason = visible::text(&visible::cut(reason, MAX_REASON));
        let url = self.url();
        format!(
            "{url} is not the admin listener of sluicegate: {reason}; give its address with --admin"
        )
        .into()
    }
}

/// An error, and its cause in brackets.
fn with_cause(error: &(dyn Error + 'static)) -> String {
    let cause = error.source();
    let cause = cause.map_or_else(String::new, |cause| format!(" ({cause})"));
    visible::text(&format!("{error}{cause}"))
}

/// JSON whose texts are safe to print, names included.
fn cleaned(json: Value) -> Value {
    match json {
        Value::String(text) => Value::String(visible::text(&text)),
        Value::Array(items) => items.into_iter().map(cleaned).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            members
                .map(|(name, value)| (visible::text(&name), cleaned(value)))
                .collect()
        }
        other => other,
    }
}
