//! One client connection, from its first byte to its close: which protocol, then hyper, then the end.

use std::{future::Future, io, rc::Rc, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tracing::debug;

use super::{
    ClientSpec, HttpService, Protocols, Timeouts,
    activity::{Activity, Wait, Watchdog},
    drain::Closing,
    exchange::Exchanges,
    service::BoxError,
    tls::Tls,
    tracked::{Held, Tracked},
};
use crate::http_ext::connection::{Connection, Scheme};
use crate::http_ext::io::Socket;

/// What a client that speaks HTTP/2 with prior knowledge sends first (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Read at once while the protocol is not known; hyper's own first buffer is as large.
const FIRST_READ: usize = 8 * 1024;

/// What hyper buffers of a body in each direction: larger costs memory and latency (p99 of large bodies
/// was halved against hyper's default of 400 KiB).
const BUFFER: usize = 64 * 1024;

/// HTTP/2 streams that a client may have open at once on a connection.
const MAX_STREAMS: u32 = 100;

/// Flow-control windows: what a client may send unread on one stream, and on all of a connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// A silent HTTP/2 connection is pinged after the first, and closed when no answer comes within the second.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How long, and how many bytes, a closed connection is still read, so that a client that is sending a
/// body sees the answer instead of a reset (RFC 9112 section 9.6).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: u64 = 1024 * 1024;

/// The answer to a head that did not arrive in time.
const REQUEST_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// How connections of one listener are served by one worker.
pub(super) struct Protocol {
    http1: http1::Builder,
    http2: http2::Builder<LocalExecutor>,
    protocols: Protocols,
    timeouts: Timeouts,
    tls: Option<Tls>,
}

impl Protocol {
    pub(super) fn new(protocols: Protocols, tls: Option<Tls>, client: &ClientSpec) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .header_read_timeout(None)
            .max_header_size(client.max_head)
            .max_buf_size(client.max_head.max(BUFFER));
        let mut http2 = http2::Builder::new(LocalExecutor);
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(client.max_head).unwrap_or(u32::MAX))
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(BUFFER)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT);
        Self {
            http1,
            http2,
            protocols,
            timeouts: client.timeouts,
            tls,
        }
    }

    /// Serves one connection to its end. What goes wrong on it is the client's, and logged at debug.
    pub(super) async fn serve<F, S>(
        self: Rc<Self>,
        stream: TcpStream,
        mut connection: Connection,
        factory: F,
        held: Held,
        closing: Closing,
    ) where
        F: Fn(&Connection) -> S,
        S: HttpService,
    {
        let (peer, head) = (connection.peer, self.timeouts.head);
        let socket = Socket(stream);
        let result = match &self.tls {
            None => {
                connection.scheme = Scheme::Http;
                let sniffed = within(head, closing.clone(), sniff(socket, self.protocols)).await;
                match sniffed {
                    Ok((socket, Version::Http1, first)) => {
                        let service = factory(&connection);
                        self.http1(socket, first, service, held, closing).await
                    }
                    Ok((socket, Version::Http2, first)) => {
                        let service = factory(&connection);
                        self.http2(socket, first, service, held, closing).await
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Some(tls) => match within(head, closing.clone(), tls.accept(socket)).await {
                Ok(accepted) => {
                    connection.scheme = Scheme::Https;
                    connection.server_name = accepted.server_name;
                    let (stream, service) = (accepted.stream, factory(&connection));
                    match accepted.version {
                        Version::Http1 => {
                            self.http1(stream, Bytes::new(), service, held, closing)
                                .await
                        }
                        Version::Http2 => {
                            self.http2(stream, Bytes::new(), service, held, closing)
                                .await
                        }
                    }
                }
                Err(error) => {
                    held.handshake_failed();
                    Err(error.into())
                }
            },
        };
        if let Err(error) = result {
            debug!(%peer, error, "connection closed");
        }
    }

    async fn http1<T, S>(
        &self,
        io: T,
        first: Bytes,
        service: S,
        held: Held,
        mut closing: Closing,
    ) -> Result<(), BoxError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        S: HttpService,
    {
        let activity = Arc::new(Activity::http1());
        let mut watchdog = Watchdog::new(activity.clone(), self.timeouts);
        let io = TokioIo::new(Tracked::new(io, first, activity.clone(), held));
        let service = Exchanges::new(service, activity.clone());
        let mut connection = self.http1.serve_connection(io, service).with_upgrades();
        let mut draining = false;
        let end = loop {
            tokio::select! {
                biased;
                result = &mut connection => break End::Closed(result),
                () = closing.started(), if !draining => {
                    draining = true;
                    activity.close();
                }
                wait = &mut watchdog => break End::Waited(wait),
            }
        };
        // After an upgrade the socket is the service's.
        let Some(parts) = connection.into_parts() else {
            return Ok(());
        };
        let mut io = parts.io.into_inner();
        match end {
            End::Closed(result) => {
                let answered = result
                    .as_ref()
                    .map_or_else(hyper::Error::is_parse, |()| true);
                let unread = activity.may_have_unread_body() || !parts.read_buf.is_empty();
                if answered && (result.is_err() || unread) {
                    linger(&mut io).await;
                }
                result.map_err(Into::into)
            }
            End::Waited(Wait::Head { .. }) => {
                let answer = async {
                    io.write_all(REQUEST_TIMEOUT).await?;
                    io.shutdown().await
                };
                timeout(LINGER, answer).await??;
                Err("the head did not arrive in time".into())
            }
            End::Waited(wait) => wait.into_result(),
        }
    }

    async fn http2<T, S>(
        &self,
        io: T,
        first: Bytes,
        service: S,
        held: Held,
        mut closing: Closing,
    ) -> Result<(), BoxError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        S: HttpService,
    {
        let activity = Arc::new(Activity::http2());
        let mut watchdog = Watchdog::new(activity.clone(), self.timeouts);
        let io = TokioIo::new(Tracked::new(io, first, activity.clone(), held));
        let service = Exchanges::new(service, activity.clone());
        let mut connection = self.http2.serve_connection(io, service);
        let mut draining = false;
        loop {
            tokio::select! {
                biased;
                result = &mut connection => return result.map_err(Into::into),
                () = closing.started(), if !draining => {
                    draining = true;
                    activity.close();
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                }
                wait = &mut watchdog => return wait.into_result(),
            }
        }
    }
}

/// How a connection came to its end.
enum End {
    Closed(hyper::Result<()>),
    Waited(Wait),
}

impl Wait {
    fn into_result(self) -> Result<(), BoxError> {
        match self {
            Self::FirstByte | Self::NextRequest { .. } | Self::Nothing | Self::Service => Ok(()),
            Self::Head { .. } => Err("the head did not arrive in time".into()),
            Self::Reader { .. } | Self::Window { .. } => Err("the client stopped reading".into()),
            Self::Gone => Err("the client left before its answer".into()),
        }
    }
}

/// The version of HTTP that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

/// Runs what comes before the first request: bounded in time, and given up when the server drains while
/// the client sends nothing.
async fn within<T>(
    limit: Duration,
    mut closing: Closing,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let late = || {
        io::Error::new(
            io::ErrorKind::TimedOut,
            "the client sent nothing of use in time",
        )
    };
    tokio::select! {
        biased;
        result = timeout(limit, work) => result.map_err(|_| late())?,
        () = closing.past_grace() => Err(late()),
    }
}

/// Reads until the protocol is known; returns what was read. Waits for readability first, so that a quiet
/// connection holds no buffer.
async fn sniff(mut socket: Socket, protocols: Protocols) -> io::Result<(Socket, Version, Bytes)> {
    socket.0.readable().await?;
    match protocols {
        Protocols::Http1 => return Ok((socket, Version::Http1, Bytes::new())),
        Protocols::Http2 => return Ok((socket, Version::Http2, Bytes::new())),
        Protocols::Both => {}
    }
    let mut first = BytesMut::with_capacity(FIRST_READ);
    loop {
        if socket.read_buf(&mut first).await? == 0 {
            return Ok((socket, Version::Http1, first.freeze()));
        }
        let start = &first[..first.len().min(PREFACE.len())];
        if !PREFACE.starts_with(start) {
            return Ok((socket, Version::Http1, first.freeze()));
        }
        if start.len() == PREFACE.len() {
            return Ok((socket, Version::Http2, first.freeze()));
        }
    }
}

/// Reads and discards what a client still sends after the answer, within bounds.
async fn linger(io: &mut (impl AsyncRead + Unpin)) {
    let mut rest = io.take(LINGER_BYTES);
    let discard = async {
        let mut buf = vec![0; FIRST_READ];
        while rest.read(&mut buf).await.is_ok_and(|n| n > 0) {}
    };
    // However it ends, the connection is closed next.
    let _ = timeout(LINGER, discard).await;
}

/// Runs HTTP/2 streams on the worker that has their connection.
#[derive(Clone, Copy, Debug)]
struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(stream);
    }
}

#[cfg(test)]
mod tests;
