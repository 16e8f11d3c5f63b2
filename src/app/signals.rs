//! What the system tells the process to do.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that mean something here.
#[derive(Debug)]
pub(super) struct Signals {
    hangup: Signal,
    user1: Signal,
    terminate: Signal,
    interrupt: Signal,
    /// SIGXFSZ: a file has become as large as the process may make one. Taken over so that it ends no process:
    /// whoever writes is told.
    _file_size: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGUSR1: open the access log again.
    Reopen,
    /// SIGTERM and SIGINT: end; a second one means at once.
    End,
}

impl Signals {
    /// Takes these signals over from the system's defaults. To be called within a runtime.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _file_size: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// Waits for one that ends the process, and leaves the others for later.
    pub(super) async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> Command {
        tokio::select! {
            _ = self.hangup.recv() => Command::Reload,
            _ = self.user1.recv() => Command::Reopen,
            _ = self.terminate.recv() => Command::End,
            _ = self.interrupt.recv() => Command::End,
        }
    }
}
