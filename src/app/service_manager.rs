//! Notifications to systemd of a service of `Type=notify`. Without systemd they do nothing.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long it may take to tell.
const TOLD: Duration = Duration::from_secs(2);

/// The process serves.
pub(super) async fn ready() {
    notify(|| sd_notify::notify(&[NotifyState::Ready, NotifyState::Status("serving")])).await;
}

/// The process drains, and ends.
pub(super) async fn stopping() {
    notify(|| sd_notify::notify(&[NotifyState::Stopping, NotifyState::Status("draining")])).await;
}

/// The service is from now on the process `pid`.
pub(super) async fn replaced_by(pid: u32) {
    notify(move || sd_notify::notify(&[NotifyState::MainPid(pid)])).await;
}

/// A line for `systemctl status`.
pub(super) async fn report(status: &'static str) {
    notify(move || sd_notify::notify(&[NotifyState::Status(status)])).await;
}

async fn notify(tell: impl FnOnce() -> std::io::Result<()> + Send + 'static) {
    match timeout(TOLD, spawn_blocking(tell)).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(%error, "can't notify systemd"),
        Ok(Err(_)) | Err(_) => tracing::warn!("systemd didn't take the notification in time"),
    }
}
