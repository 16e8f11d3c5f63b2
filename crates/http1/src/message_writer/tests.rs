use std::collections::VecDeque;
use std::convert::Infallible;
use std::task::Waker;

use http_body::Frame;
use proptest::prelude::*;

use super::*;

/// A connection that takes so many bytes at once, and sometimes none.
struct Narrow {
    takes: Vec<usize>,
    turn: usize,
    taken: Vec<u8>,
}

impl AsyncWrite for Narrow {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let takes = self.takes[self.turn % self.takes.len()];
        self.turn += 1;
        if takes == 0 {
            return Poll::Pending;
        }
        let taken = bytes.len().min(takes);
        self.taken.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A body in frames.
struct Parts(VecDeque<Bytes>);

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
    }
}

fn part() -> impl Strategy<Value = Bytes> {
    let length = prop_oneof![0..100_usize, 0..3 * JOINED];
    (any::<u8>(), length).prop_map(|(byte, length)| Bytes::from(vec![byte; length]))
}

fn chunk(part: &Bytes) -> Vec<u8> {
    [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat()
}

proptest! {
    /// However little a connection takes at a time, all bytes arrive, and the buffer is
    /// bounded.
    #[test]
    fn all_bytes_arrive_however_few_are_taken_at_a_time(
        parts in prop::collection::vec(part(), 0..200),
        takes in prop::collection::vec(0..2 * JOINED, 1..8),
    ) {
        prop_assume!(takes.iter().any(|takes| *takes > 0));
        let mut io = Narrow { takes, turn: 0, taken: Vec::new() };
        let mut outgoing = MessageWriter::default();
        let body = Parts(parts.iter().cloned().collect());
        outgoing.begin(body, Framing::Chunked, |buffer| buffer.extend_from_slice(b"head"));
        let mut context = Context::from_waker(Waker::noop());
        while !outgoing.is_sent() {
            let sent = outgoing.poll_send(&mut io, &mut context);
            prop_assert!(!matches!(sent, Poll::Ready(Err(_))));
            prop_assert!(outgoing.buffer.len() <= 4 * JOINED, "{}", outgoing.buffer.len());
        }
        let chunks = parts.iter().filter(|part| !part.is_empty()).flat_map(chunk);
        let expected: Vec<u8> = b"head".iter().copied().chain(chunks).chain(*b"0\r\n\r\n").collect();
        prop_assert_eq!(outgoing.written(), expected.len() as u64);
        prop_assert!(io.taken == expected);
    }
}
