//! Opening a connection to an endpoint: name, TCP, TLS, HTTP/1.1 handshake, all within one deadline.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Error;
use crate::http_ext::body::RequestBody;
use crate::http_ext::io::Socket;

/// The largest response head, and the read buffer of a connection, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// The most header fields in a response.
const MAX_HEADERS: usize = 256;

/// Where an endpoint is.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// A name or an address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// As the configuration writes it, for messages.
    pub label: String,
    /// How to speak TLS, if at all, and the name to verify.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Target {
    /// A new connection, whose driver runs as a task of this runtime until it closes.
    ///
    /// # Errors
    /// Whatever kept it from being ready within `deadline`.
    pub(super) async fn connect(
        &self,
        deadline: Duration,
    ) -> Result<SendRequest<RequestBody>, Error> {
        timeout(deadline, self.open()).await.unwrap_or_else(|_| {
            Err(Error::ConnectTimeout {
                endpoint: self.label.clone(),
                after: deadline,
            })
        })
    }

    async fn open(&self) -> Result<SendRequest<RequestBody>, Error> {
        let stream = self.dial().await?;
        let Some((config, name)) = &self.tls else {
            return self.handshake(stream).await;
        };
        let connector = TlsConnector::from(Arc::clone(config));
        match connector.connect(name.clone(), stream).await {
            Ok(stream) => self.handshake(stream).await,
            Err(source) => Err(Error::Tls {
                endpoint: self.label.clone(),
                source,
            }),
        }
    }

    /// Tries the addresses of the name in the resolver's order.
    async fn dial(&self) -> Result<Socket, Error> {
        let resolve = |source| Error::Resolve {
            endpoint: self.label.clone(),
            source,
        };
        let addresses = tokio::net::lookup_host((self.host.as_str(), self.port))
            .await
            .map_err(resolve)?;
        let mut failure = None;
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // Only latency depends on it: a system that refuses it still works.
                    let _ = stream.set_nodelay(true);
                    return Ok(Socket(stream));
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(source) => Err(Error::Connect {
                endpoint: self.label.clone(),
                source,
            }),
            None => Err(resolve(io::Error::other("no address"))),
        }
    }

    async fn handshake<T>(&self, stream: T) -> Result<SendRequest<RequestBody>, Error>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| Error::exchange(&self.label, source))?;
        tokio::spawn(async move {
            // Whoever waits for a response is told; an idle connection that breaks concerns nobody.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "upstream connection ended");
            }
        });
        Ok(sender)
    }
}
