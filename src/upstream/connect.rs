//! Opens connections to an endpoint: name, TCP and TLS, within one deadline.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Error;
use crate::net::dial::{DialError, Dialler, Dscp};
use crate::net::socket::Socket;

/// The head start of an address before the next is tried beside it (RFC 8305 section 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// The stream of a connection to an endpoint.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

/// The address of an endpoint.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// A name or an address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// As the configuration writes it, for messages.
    pub label: String,
    /// The TLS settings, and the name to verify; `None` for clear text.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Target {
    /// Opens a connection, with this code point if any.
    ///
    /// # Errors
    /// Any failure to open it within `limit`.
    pub(super) async fn connect(
        &self,
        limit: Duration,
        dscp: Option<Dscp>,
    ) -> Result<Stream, Error> {
        let timed_out = |source| Error::ConnectTimeout {
            endpoint: self.label.clone(),
            after: limit,
            source,
        };
        let deadline = Instant::now() + limit;
        let opened = timeout_at(deadline, async {
            let dialler = Dialler {
                head_start: HEAD_START,
                dscp,
            };
            let dialled = dialler.dial(&self.host, self.port, deadline).await;
            let stream = dialled.map_err(|error| match error {
                DialError::ResolveTimeout(source) => timed_out(Some(source)),
                DialError::Resolve(source) => Error::Resolve {
                    endpoint: self.label.clone(),
                    source,
                },
                DialError::Connect(source) => Error::Connect {
                    endpoint: self.label.clone(),
                    source,
                },
            })?;
            self.secure(Socket(stream)).await
        });
        opened.await.unwrap_or_else(|_| Err(timed_out(None)))
    }

    /// Begins TLS, if the endpoint has it.
    async fn secure(&self, stream: Socket) -> Result<Stream, Error> {
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
}

/// Calls a method of either stream.
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use socket2::SockRef;

    use super::*;

    /// The traffic class of a connection's packets to `address`, as a whole octet.
    async fn class(address: &str, dscp: Option<Dscp>) -> u32 {
        let listener = TcpListener::bind((address, 0)).expect("a port");
        let target = Target {
            host: address.to_owned(),
            port: listener.local_addr().expect("it listens").port(),
            label: "test".to_owned(),
            tls: None,
        };
        let connected = target.connect(Duration::from_secs(5), dscp).await;
        match connected.expect("it listens") {
            Stream::Plain(Socket(stream)) if address.contains(':') => {
                SockRef::from(&stream).tclass_v6().expect("a class")
            }
            Stream::Plain(Socket(stream)) => SockRef::from(&stream).tos_v4().expect("a class"),
            Stream::Tls(_) => panic!("no TLS was asked for"),
        }
    }

    #[tokio::test]
    async fn a_connection_has_the_requested_dscp() {
        assert_eq!(class("127.0.0.1", None).await, 0);
        assert_eq!(class("127.0.0.1", Some(Dscp::new(8))).await, 8 << 2);
        if TcpListener::bind(("::1", 0)).is_ok() {
            assert_eq!(class("::1", Some(Dscp::new(46))).await, 46 << 2);
        }
    }
}
