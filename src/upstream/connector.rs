//! The connector of an endpoint: name, TCP and TLS, within one deadline.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::{ClientTls, EndpointSpec, UpstreamErrorKind};
use crate::net::dial::{DialError, Dialler, Dscp};
use crate::net::socket::Socket;

/// The head start of an address before the next is tried beside it (RFC 8305 section 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// The stream of a connection to an endpoint, without or with TLS.
pub(super) type Stream = Either<Socket, Box<TlsStream<Socket>>>;

/// Connects to one endpoint.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    /// A name or an address, without brackets.
    host: String,
    /// The TCP port.
    port: u16,
    /// The TLS settings, and the name to verify; `None` for clear text.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Connector {
    pub(super) fn new(spec: &EndpointSpec) -> Self {
        let default_port = if spec.tls.is_some() { 443 } else { 80 };
        Connector {
            host: spec.authority.host().trim_matches(['[', ']']).to_owned(),
            port: spec.authority.port_u16().unwrap_or(default_port),
            tls: spec.tls.as_ref().map(ClientTls::connector),
        }
    }

    /// Opens a connection, with this code point if any.
    ///
    /// # Errors
    /// Any failure to open it within `limit`.
    pub(super) async fn connect(
        &self,
        limit: Duration,
        dscp: Option<Dscp>,
    ) -> Result<Stream, UpstreamErrorKind> {
        let timed_out = |source| UpstreamErrorKind::ConnectTimeout {
            after: limit,
            source,
        };
        let dialler = Dialler {
            head_start: HEAD_START,
            dscp,
        };
        let deadline = Instant::now() + limit;
        let opened = timeout_at(deadline, async {
            let dialled = dialler.dial(&self.host, self.port, deadline).await;
            let stream = dialled.map_err(|error| match error {
                DialError::Resolve(error) => UpstreamErrorKind::Resolve(error),
                DialError::ResolveTimeout(error) => timed_out(Some(error)),
                DialError::Connect(error) => UpstreamErrorKind::Connect(error),
            })?;
            self.secure(Socket(stream)).await
        });
        opened.await.unwrap_or_else(|_| Err(timed_out(None)))
    }

    /// Begins TLS, if the endpoint has it.
    async fn secure(&self, stream: Socket) -> Result<Stream, UpstreamErrorKind> {
        let Some((config, name)) = &self.tls else {
            return Ok(Either::Left(stream));
        };
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = connector.connect(name.clone(), stream).await;
        stream
            .map(|stream| Either::Right(Box::new(stream)))
            .map_err(UpstreamErrorKind::Tls)
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
        let connector = Connector {
            host: address.to_owned(),
            port: listener.local_addr().expect("it listens").port(),
            tls: None,
        };
        let connected = connector.connect(Duration::from_secs(5), dscp).await;
        match connected.expect("it listens") {
            Either::Left(Socket(stream)) if address.contains(':') => {
                SockRef::from(&stream).tclass_v6().expect("a class")
            }
            Either::Left(Socket(stream)) => SockRef::from(&stream).tos_v4().expect("a class"),
            Either::Right(_) => panic!("no TLS was asked for"),
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
