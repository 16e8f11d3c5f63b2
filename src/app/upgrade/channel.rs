//! A socket between two processes of this machine, for messages with files.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt;

use super::{NewMessage, PROMPT};

/// The most files of a message; the kernel allows 253.
pub(super) const MAX_FILES: usize = 128;

/// The most bytes of a message: less than a socket's buffer has room for by default.
const MAX_BYTES: usize = 200 * 1024;

/// One end.
#[derive(Debug)]
pub(in crate::app) struct Channel(OwnedFd);

impl Channel {
    /// A new socket, and its other end.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(own), other))
    }

    /// The end that another process has given.
    pub(super) fn of(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Another handle to this end.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Says that this process ends because of an error.
    pub(in crate::app) fn fail(&self, why: &str) {
        // One that has ended asks no more.
        let _ = self.send(&NewMessage::Failed(why.to_owned()), &[], PROMPT);
    }

    /// Sends a message within `deadline`, with at most [`MAX_FILES`]. Blocks.
    pub(super) fn send(
        &self,
        message: &impl Serialize,
        files: &[BorrowedFd<'_>],
        deadline: Duration,
    ) -> io::Result<()> {
        set_socket_timeout(&self.0, Timeout::Send, Some(deadline))?;
        let text = serde_json::to_vec(message)?;
        if text.len() > MAX_BYTES {
            return Err(io::Error::other("a message is too long"));
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::Error::other("too many files for a message"));
        }
        let parts = [IoSlice::new(&text)];
        let send = || sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL);
        retry_on_intr(send).map_err(late)?;
        Ok(())
    }

    /// Receives the next message within `deadline`. Blocks.
    pub(super) fn receive<M: DeserializeOwned>(
        &self,
        deadline: Duration,
    ) -> io::Result<(M, Vec<OwnedFd>)> {
        set_socket_timeout(&self.0, Timeout::Recv, Some(deadline))?;
        let mut text = vec![0; MAX_BYTES];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut text)];
        // A process that is stopped and continued must not lose the message.
        let receive = || recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
        let received = retry_on_intr(receive).map_err(late)?;
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                files.extend(some);
            }
        }
        let is_cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
        if received.flags.intersects(is_cut) {
            let what = "a message is too long, or too many files are open";
            return Err(io::Error::other(what));
        }
        if received.bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok((serde_json::from_slice(&text[..received.bytes])?, files))
    }

    /// Waits until the other end is closed, which the end of its process does. Ignores messages; afterwards,
    /// this end doesn't block anymore.
    pub(in crate::app) async fn closed(&self) -> io::Result<()> {
        let socket = UnixStream::from(self.0.try_clone()?);
        socket.set_nonblocking(true)?;
        let mut socket = tokio::net::UnixStream::from_std(socket)?;
        while socket.read(&mut [0]).await? > 0 {}
        Ok(())
    }
}

/// The kernel's word for a time-out of a socket is that it would block.
fn late(error: rustix::io::Errno) -> io::Error {
    match error.into() {
        error if io::Error::kind(&error) == ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn messages_arrive_whole_and_with_their_files() {
        let (one, other) = Channel::pair().expect("a socket");
        let other = Channel::of(other);
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"text").expect("writable");
        let files = [file.as_fd(); MAX_FILES];
        one.send(&"first", &files, SHORT).expect("room");
        one.send(&"second", &[], SHORT).expect("room");
        let (message, files) = other.receive::<String>(SHORT).expect("sent");
        assert_eq!((&*message, files.len()), ("first", MAX_FILES));
        let mut found = File::from(files.into_iter().next().expect("a file"));
        found.rewind().expect("a file");
        let mut text = String::new();
        found.read_to_string(&mut text).expect("readable");
        assert_eq!(text, "text");
        let (message, files) = other.receive::<String>(SHORT).expect("sent");
        assert_eq!((&*message, files.len()), ("second", 0));
    }

    #[test]
    fn silence_ends_at_the_deadline_and_a_closed_end_at_once() {
        let (one, other) = Channel::pair().expect("a socket");
        let silent = one.receive::<String>(SHORT).expect_err("nothing was sent");
        assert_eq!(silent.kind(), ErrorKind::TimedOut);
        drop(other);
        let closed = one
            .receive::<String>(Duration::from_secs(3600))
            .expect_err("closed");
        assert_eq!(closed.kind(), ErrorKind::UnexpectedEof);
        one.send(&"late", &[], SHORT).expect_err("closed");
    }

    #[tokio::test]
    async fn the_end_of_the_other_process_is_noticed_behind_its_messages() {
        let (one, other) = Channel::pair().expect("a socket");
        let other = Channel::of(other);
        other.send(&"late", &[], SHORT).expect("room");
        let mut closed = std::pin::pin!(one.closed());
        tokio::select! {
            biased;
            _ = &mut closed => panic!("it is open"),
            () = tokio::task::yield_now() => {}
        }
        drop(other);
        closed.await.expect("a socket");
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let (one, other) = Channel::pair().expect("a socket");
        let other = Channel::of(other);
        one.send(&7, &[], SHORT).expect("room");
        other.receive::<String>(SHORT).expect_err("a number");
        let long = "x".repeat(MAX_BYTES);
        one.send(&long, &[], SHORT)
            .expect_err("too long for the socket");
    }
}
