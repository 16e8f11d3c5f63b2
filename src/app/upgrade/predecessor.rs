//! The old process, as the new one sees it.

use std::env;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use rustix::stdio::dup2_stdin;

use super::channel::Channel;
use super::{
    Inheritance, LEFT, NewMessage, OldMessage, PROMPT, PROTOCOL, READY, Ready, Settings, VARIABLE,
};
use crate::admin::access::MadeToken;
use crate::app::StartupError;
use crate::clock::Timestamp;
use crate::limiter::Secret;
use crate::net::listener::passed::{ListenerName, PassedSockets};
use crate::store::snapshot;

/// The process that this one takes over from.
#[derive(Debug)]
pub struct Predecessor {
    channel: Channel,
    inheritance: Inheritance,
    /// True once this process has taken over: files that are removed at the end are its own then.
    is_over: Arc<AtomicBool>,
}

impl Predecessor {
    /// The socket to the process that has started this one in order to be replaced, if there is one.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(in crate::app) fn channel() -> io::Result<Option<Channel>> {
        let input = io::stdin();
        // The variable stays in the environment of a process that has taken over.
        if env::var_os(VARIABLE).is_none()
            || socket_type(input.as_fd()).ok() != Some(SocketType::SEQPACKET)
        {
            return Ok(None);
        }
        let channel = Channel::of(input.as_fd().try_clone_to_owned()?);
        dup2_stdin(File::open("/dev/null")?)?;
        Ok(Some(channel))
    }

    /// The process at the other end of `channel`. Adds its sockets to `passed`.
    ///
    /// # Errors
    ///
    /// It speaks another protocol, or breaks off.
    pub(in crate::app) fn find(
        channel: &Channel,
        passed: &mut PassedSockets,
    ) -> Result<Self, StartupError> {
        let mut read = || {
            let protocol = env::var_os(VARIABLE).unwrap_or_default();
            compare("the protocol", &*protocol.to_string_lossy(), PROTOCOL)?;
            Self::read(channel.try_clone()?, passed)
        };
        read().map_err(StartupError::system("can't take over from the old process"))
    }

    fn read(channel: Channel, passed: &mut PassedSockets) -> io::Result<Self> {
        let (OldMessage::Start(inheritance), _) = channel.receive(PROMPT)? else {
            return Err(unexpected());
        };
        compare(
            "the format of buckets",
            inheritance.format,
            snapshot::VERSION,
        )?;
        let is_over = Arc::new(AtomicBool::new(false));
        loop {
            match channel.receive(PROMPT)? {
                (OldMessage::Listener { name, has_file }, sockets) => {
                    passed.add_listener(&name, sockets, has_file.then_some(&is_over))?;
                }
                (OldMessage::Complete, _) => break,
                _ => return Err(unexpected()),
            }
        }
        Ok(Self {
            channel,
            inheritance,
            is_over,
        })
    }

    /// The secret of its buckets' fingerprints.
    pub(in crate::app) fn secret(&self) -> Secret {
        Secret::from_key(self.inheritance.secret)
    }

    /// Its time when it started this process.
    pub(in crate::app) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.inheritance.now)
    }

    /// The token of the admin API that it has made, if any.
    pub(in crate::app) fn made_token(&self) -> Option<MadeToken> {
        let mut token = self.inheritance.made_token.clone()?;
        token.is_own = Arc::clone(&self.is_over);
        Some(token)
    }

    /// Says that this process can take over these listeners, and receives the buckets, and what else no
    /// configuration says. Blocks.
    pub(in crate::app) fn ask_for_buckets(
        &self,
        taken: Vec<ListenerName>,
    ) -> io::Result<(Vec<OwnedFd>, Settings)> {
        let version = crate::app::process_series::VERSION.to_owned();
        let ready = NewMessage::Ready(Ready {
            pid: std::process::id(),
            version,
            taken,
        });
        self.channel.send(&ready, &[], PROMPT)?;
        let (OldMessage::Buckets(settings), files) = self.channel.receive(READY)? else {
            return Err(unexpected());
        };
        Ok((files, settings))
    }

    /// Says that this process serves, and waits until the old one saves no more snapshots. Blocks. Returns
    /// the socket that is closed when the old one has ended.
    pub(in crate::app) fn take_over(self) -> Channel {
        self.is_over.store(true, Relaxed);
        let told = self.channel.send(&NewMessage::Serving, &[], PROMPT);
        // One that has ended saves none either.
        let _ = told.and_then(|()| self.channel.receive::<OldMessage>(LEFT));
        self.channel
    }
}

/// Compares a version of the old process with the one of this program.
fn compare<T: PartialEq + Display>(what: &str, theirs: T, own: T) -> io::Result<()> {
    if theirs == own {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the old process has version {theirs} of {what}, this binary has version {own}; restart the service instead"
    )))
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it sent something unexpected")
}
