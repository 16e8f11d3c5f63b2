//! What has been received on a connection, and not been taken yet.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem::Finder;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::Invalid;

/// What is read at once, at first and at most: large bodies come in large pieces.
const FIRST_READ: usize = 8 * 1024;
const LARGEST_READ: usize = 64 * 1024;

/// A buffer that is as large as what is in it: a quiet connection holds none.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: BytesMut,
    /// How much of `bytes` is known to hold no end of a head.
    searched: usize,
    next_read: usize,
}

impl Received {
    /// A buffer with what was read before it.
    pub(crate) fn new(first: BytesMut) -> Self {
        Received {
            bytes: first,
            searched: 0,
            next_read: FIRST_READ,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads once; how many bytes came, 0 at the end of the connection.
    pub(crate) fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let (read, room) = match self.next_read {
            FIRST_READ => (ready!(self.poll_read_small(io, cx))?, FIRST_READ),
            _ => ready!(self.poll_read_large(io, cx))?,
        };
        self.next_read = match read {
            _ if read == room => (self.next_read * 2).min(LARGEST_READ),
            _ if read < self.next_read / 4 => (self.next_read / 2).max(FIRST_READ),
            _ => self.next_read,
        };
        Poll::Ready(Ok(read))
    }

    /// Reads to the stack first: what is kept is no larger than what came, and nothing is allocated for
    /// nothing.
    fn poll_read_small<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut space = [const { MaybeUninit::uninit() }; FIRST_READ];
        let mut buffer = ReadBuf::uninit(&mut space);
        ready!(Pin::new(io).poll_read(cx, &mut buffer))?;
        self.bytes.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    }

    fn poll_read_large<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(usize, usize)>> {
        self.bytes.reserve(self.next_read);
        let room = self.bytes.capacity() - self.bytes.len();
        let read = ready!(poll_read_buf(Pin::new(io), cx, &mut self.bytes))?;
        Poll::Ready(Ok((read, room)))
    }

    /// Gives back what memory is held for nothing.
    pub(crate) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }

    /// Leaves out the empty lines that a client may send before a request (RFC 9112 section 2.2).
    pub(crate) fn skip_empty_lines(&mut self) {
        loop {
            let length = match &self.bytes[..] {
                [b'\r', b'\n', ..] => 2,
                [b'\n', ..] => 1,
                _ => return,
            };
            self.bytes.advance(length);
            self.searched = 0;
        }
    }

    /// Takes a head from the beginning, with the empty line that ends it, once it is there whole.
    ///
    /// # Errors
    /// When it is larger than `most` bytes.
    pub(crate) fn take_head(&mut self, most: usize) -> Result<Option<Bytes>, Invalid> {
        let end = end_of_head(&self.bytes, self.searched);
        if end.unwrap_or(self.bytes.len()) > most {
            return Err(Invalid::TooLarge("its head is too large"));
        }
        self.searched = match end {
            Some(_) => 0,
            None => self.bytes.len(),
        };
        Ok(end.map(|end| self.bytes.split_to(end).freeze()))
    }
}

/// Where the first empty line ends, looking at what was not `searched` before.
fn end_of_head(received: &[u8], searched: usize) -> Option<usize> {
    static EMPTY_LINE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\n\r\n"));
    static BARE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\n\n"));
    let from = searched.saturating_sub(2);
    let text = &received[from..];
    let end = EMPTY_LINE.find(text).map(|at| at + 3);
    let bare = BARE.find(&text[..end.unwrap_or(text.len())]);
    bare.map(|at| at + 2).or(end).map(|end| from + end)
}
