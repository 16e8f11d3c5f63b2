//! What has been received on a connection, and not been taken yet.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::InvalidMessage;

/// What is read at once, at first and at most: large bodies come in large pieces.
const FIRST_READ: usize = 8 * 1024;
const LARGEST_READ: usize = 64 * 1024;

/// A buffer that is as large as what is in it: a quiet connection holds none.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    pub(crate) bytes: BytesMut,
    /// How much of `bytes` is known to hold no end of a head; 0 before anything of one was looked at.
    searched: usize,
    next_read: usize,
}

impl ReadBuffer {
    /// A buffer with what was read before it.
    pub(crate) fn new(first: BytesMut) -> Self {
        ReadBuffer {
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
        match self.bytes.capacity() {
            // Cheaper than to make room where there is none.
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

    /// Gives back what memory is held for nothing.
    pub(crate) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }

    /// Leaves out the empty lines that may come before a message (RFC 9112 section 2.2).
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

    /// Takes a head from the beginning, with the empty line that ends it, once it is there whole. `parse` makes of it
    /// what it says, and tells where it ends.
    ///
    /// What came is parsed at once, as it mostly is a whole head. Where it is not, the end is found before it is parsed
    /// again: a head that comes in drops is parsed twice.
    ///
    /// # Errors
    /// Those of `parse`, and when the head is larger than `most` bytes.
    pub(crate) fn take_head<T, E: From<InvalidMessage>>(
        &mut self,
        most: usize,
        parse: impl FnOnce(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<Option<(T, Bytes)>, E> {
        let may_be_whole = match self.searched {
            0 => !self.bytes.is_empty(),
            searched => has_end(&self.bytes, searched),
        };
        let parsed = match may_be_whole {
            true => parse(&self.bytes)?,
            false => None,
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
        match length == self.bytes.len() {
            // Alone, it need not be shared.
            true => std::mem::take(&mut self.bytes).freeze(),
            false => self.bytes.split_to(length).freeze(),
        }
    }
}

/// Whether there is an empty line, looking at what was not `searched` before.
fn has_end(received: &[u8], searched: usize) -> bool {
    let text = &received[searched.saturating_sub(2)..];
    let mut ends = memchr::memchr_iter(b'\n', text).map(|at| &text[at + 1..]);
    ends.any(|next| next.starts_with(b"\n") || next.starts_with(b"\r\n"))
}
