//! The hand-over of listeners to another process: it gets the same sockets, and with them the clients in
//! the kernel's queues.

use std::io;
use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;

use super::Server;
use super::change::{RunningListener, deal};
use super::worker::WorkerOrder;
use crate::net::listener::BoundSocket;
use crate::net::listener::passed::ListenerName;
use crate::net::socket::StreamAddress;

/// Connections that finish for a hand-over are cut by the drain of this process that follows. If none
/// does, it serves them on: a year is never.
const NOT_CUT: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A listener, and a handle to each of its sockets.
#[derive(Debug)]
pub struct SharedListener {
    /// Its name in the configuration.
    pub name: ListenerName,
    /// True if the process that serves it removes its file in the end.
    pub has_file: bool,
    /// Its sockets.
    pub(crate) sockets: Vec<BoundSocket>,
    local: StreamAddress,
}

/// The listeners of a server that accepts nobody.
#[derive(Debug)]
pub struct SuspendedListeners {
    listeners: Vec<RunningListener>,
    left: Vec<StreamAddress>,
}

impl Server {
    /// Returns the listeners, with handles to their sockets.
    ///
    /// # Errors
    ///
    /// The system has no more files.
    pub async fn share(&self) -> io::Result<Vec<SharedListener>> {
        let shared = self.listeners.iter().map(|one| SharedListener {
            name: ListenerName {
                server: self.name.to_owned(),
                address: one.settings.spec.address.clone(),
            },
            has_file: one.file.is_some(),
            sockets: Vec::new(),
            local: one.settings.local.clone(),
        });
        let mut shared: Vec<_> = shared.collect();
        let (sender, mut sockets) = unbounded_channel();
        for worker in &self.updates {
            // A worker that is gone has no listeners.
            let _ = worker.send(WorkerOrder::Share(sender.clone()));
        }
        drop(sender);
        while let Some(socket) = sockets.recv().await {
            let (local, socket) = socket?;
            let of = shared.iter_mut().find(|one| one.local == local);
            if let Some(one) = of {
                one.sockets.push(socket);
            }
        }
        Ok(shared)
    }

    /// Has the connections finish, also those that are accepted from now on. Returns at once.
    pub fn finish_connections(&self) {
        for worker in &self.updates {
            let _ = worker.send(WorkerOrder::Finish);
        }
    }

    /// Stops accepting, and has the connections finish. The clients in the kernel's queues of the
    /// listeners that are `taken` wait for another process, or for [`resume`](Self::resume). The queues
    /// of others are served.
    pub async fn suspend(&mut self, taken: &[ListenerName]) -> SuspendedListeners {
        let listeners = std::mem::take(&mut self.listeners);
        let is_taken = |one: &&RunningListener| {
            let mut taken = taken.iter().filter(|name| name.server == self.name);
            taken.any(|name| name.address == one.settings.spec.address)
        };
        let taken = listeners.iter().filter(is_taken);
        let left: Vec<_> = taken.map(|one| one.settings.local.clone()).collect();
        let none = self.no_listeners();
        self.update_workers(none, NOT_CUT, &left).await;
        SuspendedListeners { listeners, left }
    }

    /// Accepts again, on these handles to the sockets of the listeners.
    pub async fn resume(
        &mut self,
        suspended: SuspendedListeners,
        shared: &[SharedListener],
        deadline: Duration,
    ) {
        let mut by_worker = self.no_listeners();
        for listener in suspended.listeners {
            let own = shared
                .iter()
                .find(|one| one.name.server == self.name && one.local == listener.settings.local);
            let sockets = own.into_iter().flat_map(|one| &one.sockets);
            match sockets.map(BoundSocket::try_clone).collect() {
                Ok(sockets) => deal(&listener.settings, sockets, &mut by_worker),
                Err(error) => {
                    tracing::error!(address = %listener.settings.local, "cannot listen: {error}")
                }
            }
            self.listeners.push(listener);
        }
        self.update_workers(by_worker, deadline, &[]).await;
    }
}

impl SuspendedListeners {
    /// Leaves the files of listeners that another process serves to that.
    pub fn leave(self) {
        for listener in self.listeners {
            let is_left = self.left.contains(&listener.settings.local);
            if let (true, Some(file)) = (is_left, listener.file) {
                file.leave();
            }
        }
    }
}
