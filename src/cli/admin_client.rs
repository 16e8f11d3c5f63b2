//! A client of the admin API of a running proxy: finds its address and a token, and reads JSON over
//! HTTP/1.1.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::run;
use crate::config::TokenRole;

/// The longest time of a call, connection included.
const DEADLINE: Duration = Duration::from_secs(10);
/// The largest answer, in bytes.
const MAX_ANSWER: usize = 64 << 20;
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
    token: String,
}

/// The reason why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// Nothing answers at the address.
    #[error(
        "nothing answers at http://{authority}: {reason}; is the proxy running? --config or --admin names another"
    )]
    Unreachable { authority: String, reason: String },
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
            return Ok(AdminClient {
                authority: authority(admin)?,
                token: token.clone(),
            });
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
        Ok(AdminClient { authority, token })
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
    /// The answer to a GET.
    ///
    /// # Errors
    /// No answer within 10 s, or an error of the API.
    pub(super) fn get(&self, path: &str) -> Result<Value, CallError> {
        self.call(Request::get(path), Bytes::new())
    }

    /// The answer to a POST of JSON.
    ///
    /// # Errors
    /// As [`AdminClient::get`].
    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        let head = Request::post(path).header(CONTENT_TYPE, "application/json");
        self.call(head, Bytes::from(body.to_string()))
    }

    fn call(&self, head: http::request::Builder, body: Bytes) -> Result<Value, CallError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| self.unreachable(&error))?;
        // Within the runtime: the time-out needs its timer.
        let answer = runtime.block_on(async { timeout(DEADLINE, self.exchange(head, body)).await });
        let (status, bytes) = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(self.unreachable(&error)),
            Err(_) => return Err(self.unreachable(&io::Error::from(io::ErrorKind::TimedOut))),
        };
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        match status.is_success() {
            true => Ok(value),
            false => Err(CallError::Refused {
                detail: value["detail"].as_str().unwrap_or_default().to_owned(),
                status,
            }),
        }
    }

    async fn exchange(
        &self,
        head: http::request::Builder,
        body: Bytes,
    ) -> io::Result<(StatusCode, Bytes)> {
        let stream = TcpStream::connect(&self.authority).await?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(io::Error::other)?;
        let connection = tokio::spawn(connection);
        let request = head
            .header(HOST, &self.authority)
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .body(Full::new(body))
            .map_err(io::Error::other)?;
        let answer = sender.send_request(request).await;
        let (head, body) = answer.map_err(io::Error::other)?.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        connection.abort();
        Ok((head.status, body.map_err(io::Error::other)?.to_bytes()))
    }

    fn unreachable(&self, error: &io::Error) -> CallError {
        let cause = error
            .source()
            .map_or_else(String::new, |cause| format!(" ({cause})"));
        CallError::Unreachable {
            authority: self.authority.clone(),
            reason: format!("{error}{cause}"),
        }
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
