//! The connector of a host: socket, PROXY header and TLS, within one deadline.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Scheme;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::spec::ALPN_HTTP2;
use super::tls::{Secured, secure};
use super::{EndpointSpec, UpstreamErrorKind, UpstreamProtocol, proxy_header};
use crate::http::connection::ClientConnection;
use crate::net::dial::{self, Dscp};
use crate::net::file_budget::{self, FilePermit};
use crate::net::socket::{Socket, StreamAddress};
use crate::telemetry::registry::GaugeGuard;

/// The stream of a connection to a host, without or with TLS.
pub(super) type Stream = Secured<Socket>;

/// Counts a connection as open, and keeps its file, until dropped.
pub(super) type OpenConnection = (GaugeGuard, FilePermit);

/// Connects to one host.
#[derive(Debug)]
pub(super) struct Connector {
    pub address: StreamAddress,
    /// The TLS settings, and the name to verify; `None` for clear text.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The configured version of HTTP.
    pub protocol: UpstreamProtocol,
    /// A connection names one client, so that it must not carry requests of others.
    pub sends_proxy_header: bool,
}

impl Connector {
    pub(super) fn new(address: StreamAddress, spec: &EndpointSpec) -> Self {
        Connector {
            address,
            tls: spec
                .tls
                .as_ref()
                .map(|tls| tls.connector(spec.protocol.alpn())),
            protocol: spec.protocol,
            sends_proxy_header: spec.sends_proxy_header,
        }
    }

    /// Opens a connection, with this code point if any, and returns it with its file. A header of
    /// the PROXY protocol names `client`.
    ///
    /// # Errors
    /// Any failure to open it within `limit`.
    pub(super) fn connect<'a>(
        &'a self,
        limit: Duration,
        dscp: Option<Dscp>,
        client: Option<&ClientConnection>,
    ) -> impl Future<Output = Result<(Stream, FilePermit), UpstreamErrorKind>> + use<'a> {
        // Written before the future begins: a client stays on the thread of its worker.
        let header = self
            .sends_proxy_header
            .then(|| proxy_header::header(client));
        let opened = timeout(limit, async move {
            let files = &file_budget::UPSTREAMS;
            let file = files.take().await.map_err(UpstreamErrorKind::Shortage)?;
            let dialled = dial::dial(&self.address, dscp).await;
            let mut socket = dialled.map_err(UpstreamErrorKind::of_dial)?;
            if let Some(header) = header {
                let sent = socket.write_all(&header).await;
                sent.map_err(UpstreamErrorKind::Connect)?;
            }
            Ok((self.secure(socket).await?, file))
        });
        async move { opened.await.map_err(|_| UpstreamErrorKind::late(limit))? }
    }

    /// Begins TLS, if the endpoint has it.
    async fn secure(&self, stream: Socket) -> Result<Stream, UpstreamErrorKind> {
        let secured = secure(stream, self.tls.clone()).await;
        let stream = secured.map_err(UpstreamErrorKind::Tls)?;
        if self.protocol == UpstreamProtocol::Http2
            && let Either::Right(stream) = &stream
            && !has_chosen_http2(stream)
        {
            let what = "the server does not choose HTTP/2 (ALPN)";
            return Err(UpstreamErrorKind::Handshake(io::Error::other(what)));
        }
        Ok(stream)
    }

    /// Returns true if HTTP/2 is spoken over `stream`.
    pub(super) fn speaks_http2(&self, stream: &Stream) -> bool {
        match (self.protocol, stream) {
            (UpstreamProtocol::Http1, _) | (UpstreamProtocol::Auto, Either::Left(_)) => false,
            (UpstreamProtocol::Http2, _) => true,
            (UpstreamProtocol::Auto, Either::Right(stream)) => has_chosen_http2(stream),
        }
    }

    /// The scheme of requests.
    pub(super) fn scheme(&self) -> Scheme {
        match self.tls {
            Some(_) => Scheme::HTTPS,
            None => Scheme::HTTP,
        }
    }
}

fn has_chosen_http2(stream: &TlsStream<Socket>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2)
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
            address: StreamAddress::Tcp(listener.local_addr().expect("it listens")),
            tls: None,
            protocol: UpstreamProtocol::Http1,
            sends_proxy_header: false,
        };
        let connected = connector.connect(Duration::from_secs(5), dscp, None).await;
        match connected.expect("it listens").0 {
            Either::Left(Socket::Tcp(stream)) if address.contains(':') => {
                SockRef::from(&stream).tclass_v6().expect("a class")
            }
            Either::Left(Socket::Tcp(stream)) => SockRef::from(&stream).tos_v4().expect("a class"),
            Either::Left(Socket::Unix(_)) => panic!("no Unix socket was asked for"),
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
