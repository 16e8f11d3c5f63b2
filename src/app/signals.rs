//! Signals of the system, as commands to the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that mean something here.
#[derive(Debug)]
pub(super) struct Signals {
    hangup: Signal,
    user1: Signal,
    user2: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    /// SIGXFSZ: a file has become as large as the process may make one. Taken over so that it ends no process:
    /// whoever writes is told.
    _file_size: Signal,
}

/// The command of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalCommand {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGUSR1: open the access log again.
    Reopen,
    /// SIGUSR2: start the program anew, and hand over to it.
    Upgrade,
    /// End; a second one means at once.
    End(EndSignal),
}

/// A signal that ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndSignal {
    /// SIGTERM and SIGQUIT.
    Terminate,
    /// SIGINT, as by Ctrl-C: somebody waits at a terminal, and no load balancer has to notice.
    Interrupt,
    /// None: another process has taken over.
    HandedOver,
}

impl Signals {
    /// Takes these signals over from the system's defaults. To be called within a runtime.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            _file_size: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// Waits for one that ends the process, and leaves the others for later.
    pub(super) async fn end(&mut self) -> EndSignal {
        tokio::select! {
            _ = self.terminate.recv() => EndSignal::Terminate,
            _ = self.interrupt.recv() => EndSignal::Interrupt,
            _ = self.quit.recv() => EndSignal::Terminate,
        }
    }

    /// Waits for one that ends at once a process that drains because of `first`. Calls `reopen` for SIGUSR1.
    pub(super) async fn end_again(&mut self, first: EndSignal, reopen: impl Fn()) {
        // To one that is replaced it is the first: `systemctl stop` sends it to all processes of the service.
        let mut left = if first == EndSignal::HandedOver { 2 } else { 1 };
        while left > 0 {
            match self.next().await {
                SignalCommand::End(_) => left -= 1,
                SignalCommand::Reopen => reopen(),
                SignalCommand::Reload => tracing::warn!("SIGHUP is ignored: this process drains"),
                SignalCommand::Upgrade => {
                    tracing::warn!("SIGUSR2 is ignored: this process drains");
                }
            }
        }
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> SignalCommand {
        tokio::select! {
            _ = self.hangup.recv() => SignalCommand::Reload,
            _ = self.user1.recv() => {
                tracing::info!("SIGUSR1: the access log is opened again");
                SignalCommand::Reopen
            }
            _ = self.user2.recv() => SignalCommand::Upgrade,
            _ = self.terminate.recv() => SignalCommand::End(EndSignal::Terminate),
            _ = self.interrupt.recv() => SignalCommand::End(EndSignal::Interrupt),
            _ = self.quit.recv() => SignalCommand::End(EndSignal::Terminate),
        }
    }
}
