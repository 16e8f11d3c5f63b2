//! Headers of the PROXY protocol: read alike however they arrive, and no byte behind them.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, ReadBuf};

use crate::net::peer_address::PeerAddress;
use crate::server::read_preamble;

/// The longest header that is read: the fixed part of version 2 comes first.
const LONGEST: usize = 4096;

pub(super) fn run(data: &[u8]) {
    let (whole, used) = read(data, usize::MAX);
    let (single, used_singly) = read(data, 1);
    assert_eq!(outcome(&whole), outcome(&single), "byte by byte");
    assert!(used <= LONGEST && used_singly <= LONGEST);
    if whole.is_ok() {
        assert_eq!(used, used_singly);
        let (exact, _) = read(&data[..used], usize::MAX);
        assert_eq!(
            outcome(&exact),
            outcome(&whole),
            "a byte behind the header counts"
        );
        let (short, _) = read(&data[..used - 1], usize::MAX);
        short.expect_err("a header that is not whole");
    }
}

fn outcome(read: &io::Result<PeerAddress>) -> Result<PeerAddress, io::ErrorKind> {
    read.as_ref().copied().map_err(io::Error::kind)
}

/// The client, and how many bytes were read.
fn read(data: &[u8], most: usize) -> (io::Result<PeerAddress>, usize) {
    let peer = SocketAddr::from(([192, 0, 2, 1], 1)).into();
    let mut input = Input { data, most };
    let polled = {
        let reading = pin!(read_preamble(&mut input, peer));
        reading.poll(&mut Context::from_waker(Waker::noop()))
    };
    match polled {
        Poll::Ready(read) => (
            read.map(|(client, _)| client),
            data.len() - input.data.len(),
        ),
        Poll::Pending => panic!("nothing to wait for"),
    }
}

/// Bytes that arrive so many at a time.
struct Input<'a> {
    data: &'a [u8],
    most: usize,
}

impl AsyncRead for Input<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.most.min(buf.remaining()).min(self.data.len());
        let (piece, rest) = self.data.split_at(length);
        buf.put_slice(piece);
        self.data = rest;
        Poll::Ready(Ok(()))
    }
}
