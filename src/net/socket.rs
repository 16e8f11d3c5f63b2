//! The transport of a connection below TLS: a stream that writes with few system calls.
//!
//! h2 writes frames of HTTP/2 as several buffers. `writev` of two costs 0.5 to 0.9 us of CPU
//! more than `send` of one, so small buffers are joined first.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use derive_more::Display;
use smallvec::SmallVec;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// Buffers up to this many bytes together are copied into one; beyond, copying costs more than it
/// saves.
const JOINED: usize = 4096;

/// An address to listen on or to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Display)]
pub enum StreamAddress {
    /// An IP address and a port. A listener on port 0 takes a free one.
    Tcp(SocketAddr),
    /// The path of a Unix socket, at most 107 bytes.
    #[display("unix:{}", _0.display())]
    Unix(Arc<Path>),
}

impl StreamAddress {
    /// Returns the IP address and port, unless it is the path of a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Returns true if a listener on this address accepts connections to `local`.
    pub fn accepts_at(&self, local: &Self) -> bool {
        match (self, local) {
            (Self::Tcp(own), Self::Tcp(local)) => {
                let any = own.ip().is_unspecified() && own.is_ipv4() == local.is_ipv4();
                own.port() == local.port() && (any || own.ip() == local.ip())
            }
            (own, local) => own == local,
        }
    }
}

impl From<SocketAddr> for StreamAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

/// A stream that prefers one `send` to a `writev`.
#[derive(Debug)]
pub enum Socket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Socket {
    /// Waits until the other end has sent a byte, or has ended its side, which returns false.
    pub(crate) async fn first_byte(&self) -> io::Result<bool> {
        // `readable` would not do: tokio considers a socket that was just accepted readable.
        let peeked = match self {
            Self::Tcp(stream) => stream.peek(&mut [0]).await?,
            Self::Unix(stream) => {
                let peek = || SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
                stream.async_io(Interest::READABLE, peek).await?
            }
        };
        Ok(peeked > 0)
    }
}

/// Calls a method of the stream, pinned.
macro_rules! with_stream {
    ($socket:expr, $stream:ident => $call:expr) => {
        match &mut *$socket {
            Socket::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Socket::Unix(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        with_stream!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        with_stream!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match plan(bufs) {
            Plan::One(buf) => self.poll_write(cx, buf),
            Plan::Join => {
                let mut joined = SmallVec::<[u8; JOINED]>::new();
                bufs.iter().for_each(|buf| joined.extend_from_slice(buf));
                self.poll_write(cx, &joined)
            }
            Plan::Vectored => with_stream!(self, stream => stream.poll_write_vectored(cx, bufs)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, stream => stream.poll_shutdown(cx))
    }
}

/// The way to write a list of buffers.
#[derive(Debug, PartialEq, Eq)]
enum Plan<'a> {
    One(&'a [u8]),
    Join,
    Vectored,
}

fn plan<'a>(bufs: &'a [IoSlice<'_>]) -> Plan<'a> {
    let mut filled = bufs.iter().filter(|buf| !buf.is_empty());
    let first: &[u8] = filled.next().map_or(&[], |buf| buf);
    let rest: usize = filled.map(|buf| buf.len()).sum();
    match rest {
        0 => Plan::One(first),
        rest if first.len() + rest <= JOINED => Plan::Join,
        _ => Plan::Vectored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    #[test]
    fn only_large_lists_are_written_as_lists() {
        let (empty, small, large) = ([], [b'a'; 100], [b'b'; JOINED]);
        let plan = |bufs: &[&[u8]]| {
            let slices: Vec<_> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
            match super::plan(&slices) {
                Plan::One(buf) => format!("one of {}", buf.len()),
                Plan::Join => "join".into(),
                Plan::Vectored => "vectored".into(),
            }
        };
        assert_eq!(plan(&[]), "one of 0");
        assert_eq!(plan(&[&empty, &large, &empty]), "one of 4096");
        assert_eq!(plan(&[&small, &empty, &small]), "join");
        assert_eq!(plan(&[&small, &large[..JOINED - 100]]), "join");
        assert_eq!(plan(&[&small, &large]), "vectored");
    }

    #[tokio::test]
    async fn every_plan_writes_the_same_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut socket = Socket::Tcp(TcpStream::connect(address).await.expect("listening"));
        let (mut peer, _) = listener.accept().await.expect("connected");
        for (head, body) in [("GET ", 0), ("HTTP/1.1 200 OK\r\n\r\n", 10), ("x", 10_000)] {
            let body = "y".repeat(body);
            let slices = [IoSlice::new(head.as_bytes()), IoSlice::new(body.as_bytes())];
            let written = socket.write_vectored(&slices).await.expect("writes");
            let mut got = vec![0; written];
            peer.read_exact(&mut got).await.expect("reads");
            assert_eq!(got, [head, &body].concat().as_bytes()[..written]);
        }
    }
}
