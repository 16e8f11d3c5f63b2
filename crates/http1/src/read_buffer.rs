//! The bytes that a connection has received and not consumed.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

use crate::InvalidMessage;

/// The sizes of the first and the largest read: large bodies are read in large pieces.
const FIRST_READ: usize = 8 * 1024;
const LARGEST_READ: usize = 64 * 1024;

/// A buffer as large as its content: a quiet connection holds none.
#[derive(Debug)]
pub struct ReadBuffer {
    /// The bytes.
    pub bytes: BytesMut,
    /// How many of `bytes` contain no end of a head; 0 before the first search.
    searched: usize,
    next_read: usize,
}

impl ReadBuffer {
    /// A buffer with bytes that were read before.
    pub fn new(first: BytesMut) -> Self {
        ReadBuffer {
            bytes: first,
            searched: 0,
            next_read: FIRST_READ,
        }
    }

    /// Returns true if all bytes were consumed.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads once. Returns the number of bytes, 0 at the end of the connection.
    pub fn poll_read<T: AsyncRead + Unpin>(
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

    /// Reads to the stack first: the buffer gets no larger than the content, and nothing is
    /// allocated without need.
    fn poll_read_small<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut space = [const { MaybeUninit::uninit() }; FIRST_READ];
        let mut buffer = ReadBuf::uninit(&mut space);
        ready!(Pin::new(io).poll_read(cx, &mut buffer))?;
        match self.bytes.capacity() {
            // Cheaper than to grow an empty buffer.
            0 => self.bytes = BytesMut::from(buffer.filled()),
            _ => self.bytes.extend_from_slice(buffer.filled()),
        }
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

    /// Frees the memory of an empty buffer.
    pub fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }

    /// Skips empty lines before a message (RFC 9112 section 2.2).
    #[inline]
    pub fn skip_empty_lines(&mut self) {
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

    /// Takes a whole head from the front, with the empty line that ends it. `parse` returns the
    /// head and its length.
    ///
    /// The bytes are parsed at once, since they mostly are a whole head. Otherwise the end is
    /// searched before the next parse: a head that arrives byte by byte is parsed twice.
    ///
    /// # Errors
    /// Errors of `parse`; a head larger than `most` bytes.
    pub fn take_head<T, E: From<InvalidMessage>>(
        &mut self,
        most: usize,
        parse: impl FnOnce(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<Option<(T, Bytes)>, E> {
        let may_be_whole = match self.searched {
            0 => !self.bytes.is_empty(),
            searched => has_end(&self.bytes, searched),
        };
        let parsed = if may_be_whole {
            parse(&self.bytes)?
        } else {
            None
        };
        let (head, length) = match parsed {
            Some((head, length)) => (Some(head), length),
            None => (None, self.bytes.len()),
        };
        if length > most {
            return Err(InvalidMessage::TooLarge("its head is too large").into());
        }
        self.searched = match head {
            Some(_) => 0,
            None => length,
        };
        Ok(head.map(|head| (head, self.take(length))))
    }

    fn take(&mut self, length: usize) -> Bytes {
        if length == self.bytes.len() {
            // The whole buffer needs no sharing.
            std::mem::take(&mut self.bytes).freeze()
        } else {
            self.bytes.split_to(length).freeze()
        }
    }
}

/// Returns true if there is an empty line beyond the bytes that were `searched` before.
fn has_end(received: &[u8], searched: usize) -> bool {
    let text = &received[searched.saturating_sub(2)..];
    let mut ends = memchr::memchr_iter(b'\n', text).map(|at| &text[at + 1..]);
    ends.any(|next| next.starts_with(b"\n") || next.starts_with(b"\r\n"))
}
