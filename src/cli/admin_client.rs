//! A client of the admin API of a running proxy: finds its address and a token, and reads JSON over
//! HTTP/1.1. Texts of answers are safe to print on a terminal.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{printable, run, text_file};
use crate::config::TokenRole;

/// The longest time of a call, connection included.
const DEADLINE: Duration = Duration::from_secs(10);
/// The largest answer, in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// The longest reason why an answer is not understood, in characters.
const MAX_REASON: usize = 200;
/// The largest file with a token, in bytes.
const MAX_TOKEN: u64 = 4 << 10;
/// Names the token.
const VARIABLE: &str = "SLUICEGATE_ADMIN_TOKEN";
/// The ways to give a token, as the end of a sentence.
const TOKEN_OPTIONS: &str = "in $SLUICEGATE_ADMIN_TOKEN, or with --token-file FILE or --token";

/// The proxy to call.
#[derive(Args, Debug)]
pub(super) struct AdminArgs {
    /// The admin listener of the proxy, such as http://127.0.0.1:9980 [default: that of the
    /// configuration]
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    #[command(flatten)]
    pub(super) token: TokenArgs,
    /// The configuration of the proxy [default: as for run]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The token to send. That of the configuration is sent to its own admin address alone.
#[derive(Args, Debug)]
pub(super) struct TokenArgs {
    /// A token of the proxy's admin.tokens, which other users of this machine see in the list of
    /// processes [default: $SLUICEGATE_ADMIN_TOKEN, or that of the configuration if --admin is its
    /// address]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Read the token from this file; `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
}

/// A token, and where it came from.
struct Token {
    text: String,
    source: TokenSource,
}

/// The place of a token.
#[derive(Clone, Debug, derive_more::Display)]
enum TokenSource {
    #[display("--token")]
    Option,
    #[display("--token-file {}", _0.display())]
    File(PathBuf),
    #[display("${VARIABLE}")]
    Variable,
    /// The file's name.
    #[display("admin.tokens of {_0}")]
    Configuration(String),
}

/// The address of a proxy, and a token.
#[derive(Debug)]
pub(super) struct AdminClient {
    /// Host and port.
    authority: String,
    /// The value of the field `Authorization`.
    authorization: HeaderValue,
    /// The place of the token.
    source: TokenSource,
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
    /// No known token, or not one that may do this.
    #[error(
        "http://{authority} answers {status}: {detail}. The token is that of {place}; give another {TOKEN_OPTIONS}"
    )]
    Token {
        authority: String,
        status: StatusCode,
        detail: String,
        place: String,
    },
    /// Another error of the API.
    #[error("http://{authority} answers {status}: {detail}")]
    Refused {
        authority: String,
        status: StatusCode,
        detail: String,
    },
}

impl CallError {
    /// The status of the API's answer.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Token { status, .. } | Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

impl AdminArgs {
    /// The client that these options mean. Reads the configuration if it needs to.
    ///
    /// # Errors
    /// A sentence for people.
    pub(super) fn client(&self, role: TokenRole) -> Result<AdminClient, String> {
        AdminClient::find(
            self.admin.as_deref(),
            &self.token,
            self.config.as_ref(),
            role,
        )
    }
}

impl TokenArgs {
    /// True if an option has the token.
    pub(super) fn is_given(&self) -> bool {
        self.token.is_some() || self.token_file.is_some()
    }

    /// True if stdin has the token.
    pub(super) fn is_from_stdin(&self) -> bool {
        self.token_file.as_deref().is_some_and(text_file::is_stdin)
    }

    /// The token of the options or the environment. An empty text is none.
    ///
    /// # Errors
    /// The file cannot be read, or is empty: a sentence for people.
    fn read(&self) -> Result<Option<Token>, String> {
        if let Some(path) = &self.token_file {
            let text = text_file::read(path, MAX_TOKEN, "token")?;
            let source = TokenSource::File(path.clone());
            return match text.trim() {
                "" => Err(format!("{} has no token", path.display())),
                text => Ok(Some(Token {
                    text: text.to_owned(),
                    source,
                })),
            };
        }
        let option = self.token.clone().map(|text| (text, TokenSource::Option));
        let variable = || Some((std::env::var(VARIABLE).ok()?, TokenSource::Variable));
        let given = option.or_else(variable);
        let given = given.filter(|(text, _)| !text.is_empty());
        Ok(given.map(|(text, source)| Token { text, source }))
    }
}

impl AdminClient {
    /// The client of the proxy at `admin`, or of that of a configuration, which is read if address
    /// or token are not given.
    ///
    /// # Errors
    /// A sentence for people.
    pub(super) fn find(
        admin: Option<&str>,
        token: &TokenArgs,
        config: Option<&PathBuf>,
        role: TokenRole,
    ) -> Result<Self, String> {
        let (admin, given) = (admin.map(authority).transpose()?, token.read()?);
        let (admin, given) = match (admin, given) {
            (Some(admin), Some(token)) => return Self::new(admin, token),
            parts => parts,
        };
        let source = run::find(config.cloned(), |_| {});
        let loaded = source.load().map_err(|report| {
            format!("{report}\nname the proxy with --admin and --token-file to do without the file")
        })?;
        let own = loaded.admin_address();
        if let Some(token) = given {
            return Self::new(own.to_string(), token);
        }
        let file = loaded.document.name();
        if source.file().is_none() {
            return Err(format!(
                "{}: name the configuration of the proxy with --config, or the proxy with --admin \
                 and a token {TOKEN_OPTIONS}; without tokens, the log of the proxy has one from its \
                 start",
                run::absence()
            ));
        }
        if let Some(other) = admin.as_ref().filter(|admin| !is_address(admin, own)) {
            return Err(format!(
                "http://{other} is not the admin address of {file}, which is {own}: the tokens of \
                 the file are not sent there. Give a token of that proxy {TOKEN_OPTIONS}"
            ));
        }
        let text = loaded.admin_token(role).ok_or_else(|| {
            let lack = match (loaded.has_admin_token(role), role) {
                (true, _) => "the tokens of its admin.tokens cannot be read here",
                (false, TokenRole::Read) => "it has no token in admin.tokens",
                (false, TokenRole::Write) => "it has no token in admin.tokens.write",
            };
            format!(
                "{file}: {lack}; give one {TOKEN_OPTIONS}. Without any in the file, the log of the \
                 proxy has one from its start"
            )
        })?;
        let source = TokenSource::Configuration(file.to_owned());
        let authority = admin.unwrap_or_else(|| own.to_string());
        Self::new(authority, Token { text, source })
    }
}

/// True if host and port are those of `own`, where port 0 is any.
fn is_address(authority: &str, own: SocketAddr) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else {
        return false;
    };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_host = match address.parse::<IpAddr>() {
        Ok(address) => address == own.ip(),
        Err(_) => host.eq_ignore_ascii_case("localhost") && own.ip().is_loopback(),
    };
    is_host && (own.port() == 0 || authority.port_u16() == Some(own.port()))
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
    fn new(authority: String, token: Token) -> Result<Self, String> {
        let Token { text, source } = token;
        let authorization = HeaderValue::try_from(format!("Bearer {text}"));
        let authorization = authorization.map_err(|_| {
            format!("the token of {source} has a line break or another control character")
        })?;
        Ok(Self {
            authority,
            authorization,
            source,
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
                Some(detail) => self.refused(status, detail),
                None => self.foreign(&format!("it answers {status} without a `detail`")),
            });
        }
        let wrong = |error| self.foreign(&format!("its answer is another ({error})"));
        let json = json.map_err(|_| self.foreign("its answer is no JSON"))?;
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

    fn refused(&self, status: StatusCode, detail: &str) -> CallError {
        let authority = self.authority.clone();
        let detail = match status {
            StatusCode::UNAUTHORIZED => "the token is none of its admin.tokens",
            _ => detail,
        };
        let detail = detail.to_owned();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => CallError::Token {
                authority,
                status,
                detail,
                place: printable(&self.source.to_string()),
            },
            _ => CallError::Refused {
                authority,
                status,
                detail,
            },
        }
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

    #[test]
    fn the_address_of_the_configuration_is_told_from_others() {
        let own = |own: &str, given: &str| is_address(given, own.parse().expect("an address"));
        for (address, given) in [
            ("127.0.0.1:9980", "127.0.0.1:9980"),
            ("127.0.0.1:9980", "LocalHost:9980"),
            ("[::1]:9980", "[::1]:9980"),
            ("[::1]:9980", "localhost:9980"),
            ("127.0.0.1:0", "127.0.0.1:4711"),
        ] {
            assert!(own(address, given), "{given}");
        }
        for (address, given) in [
            ("127.0.0.1:9980", "127.0.0.1:9981"),
            ("127.0.0.1:9980", "192.0.2.1:9980"),
            ("127.0.0.1:9980", "admin.internal:9980"),
            ("192.0.2.1:9980", "localhost:9980"),
            ("127.0.0.1:0", "192.0.2.1:4711"),
        ] {
            assert!(!own(address, given), "{given}");
        }
    }
}
