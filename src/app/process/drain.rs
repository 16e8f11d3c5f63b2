//! The end of the process: it serves the requests it has, and writes what it keeps.

use std::future::pending;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Process, reopen};
use crate::admin::readiness::Phase;
use crate::app::service_manager;
use crate::app::signals::{EndSignal, Signals};
use crate::clock::text::Span;

/// How long the last lines of the access log may take to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// How long the last spans may take to be exported.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// How long the workers may take to end after the last connection.
const LAST_WORKERS: Duration = Duration::from_secs(10);

impl Process {
    /// Drains, and ends all parts.
    pub(super) fn end(self, runtime: &Runtime, mut signals: Signals, ended_by: EndSignal) {
        // Clients that wait already are served as any others.
        self.is_open.send_replace(true);
        let shutdown = self.reloader.shutdown;
        let deadline = shutdown.deadline.get();
        let delay = match ended_by {
            EndSignal::Terminate => shutdown.delay.get(),
            EndSignal::Interrupt | EndSignal::HandedOver => Duration::ZERO,
        };
        self.readiness.set(Phase::Draining);
        tracing::info!(delay = %Span(delay), deadline = %Span(deadline), "draining");
        let (server, admin) = (self.server.shutdown(), self.admin.shutdown());
        let drained = async {
            if ended_by != EndSignal::HandedOver {
                service_manager::stopping().await;
            }
            sleep(delay).await;
            let until = Instant::now() + deadline + LAST_WORKERS;
            // A successor can start once the ports are free, and finds there what was charged until now.
            server.drain_holding_ports(deadline);
            self.snapshots.hand_over().await;
            server.free_ports();
            admin.drain(deadline);
            // Joining blocks, and this thread has to hear a second signal.
            let joined = spawn_blocking(move || self.server.join());
            if timeout_at(until, joined).await.is_err() {
                tracing::error!("the workers do not end, and are not waited for");
            }
            // systemd sends SIGTERM once more to what is left after this process.
            if let Some(predecessor) = &self.predecessor {
                let _ = timeout_at(until, predecessor.closed()).await;
            }
        };
        let successor_ended = async {
            match &self.successor {
                Some(successor) => successor.ended().await,
                None => pending().await,
            }
        };
        runtime.block_on(async {
            tokio::select! {
                () = drained => {}
                () = signals.end_again(ended_by, || reopen(&self.gateway)) => {
                    tracing::warn!("ended by a second signal");
                    server.abort();
                }
                () = successor_ended => {
                    tracing::error!("the new process has ended, so this one ends at once");
                    server.abort();
                }
            }
        });
        drop(self.admin);
        // No request is charged from here on.
        self.synchronising.close();
        self.snapshots.close();
        self.reloader.access_logs.close(LAST_LINES);
        if let Some(spans) = &self.gateway.ruleset().spans {
            spans.close(LAST_SPANS);
        }
    }
}
