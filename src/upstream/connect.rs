//! Opening a connection to an endpoint: name, TCP and TLS, all within one deadline.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Error;
use crate::http_ext::io::Socket;

/// What a connection to an endpoint runs over.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

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
    /// A new connection.
    ///
    /// # Errors
    /// Whatever kept it from being ready within `deadline`.
    pub(super) async fn connect(&self, deadline: Duration) -> Result<Stream, Error> {
        timeout(deadline, self.open()).await.unwrap_or_else(|_| {
            Err(Error::ConnectTimeout {
                endpoint: self.label.clone(),
                after: deadline,
            })
        })
    }

    async fn open(&self) -> Result<Stream, Error> {
        let stream = self.dial().await?;
        let Some((config, name)) = &self.tls else {
            return Ok(Stream::Plain(stream));
        };
        let connector = TlsConnector::from(Arc::clone(config));
        match connector.connect(name.clone(), stream).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
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
}

/// Does with the stream whatever it is.
macro_rules! each {
    ($stream:expr, $inner:ident => $do:expr) => {
        match $stream.get_mut() {
            Stream::Plain($inner) => {
                let $inner = Pin::new($inner);
                $do
            }
            Stream::Tls($inner) => {
                let $inner = Pin::new(&mut **$inner);
                $do
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, inner => inner.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, inner => inner.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_shutdown(cx))
    }
}
