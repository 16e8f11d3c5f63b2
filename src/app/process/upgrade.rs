//! The upgrade of this process: all that happens between SIGUSR2 and the drain.

use std::env;
use std::fs::File;
use std::future::pending;
use std::io::{self, BufWriter};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::Signal;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::{Process, reopen};
use crate::app::service_manager;
use crate::app::signals::{EndSignal, SignalCommand, Signals};
use crate::app::upgrade::{Inheritance, Ready, Settings, Successor};
use crate::app::watch::FileWatcher;
use crate::proxy::Gateway;
use crate::server::{SharedListener, SuspendedListeners};
use crate::store::{KnownUnits, snapshot};

/// How long the workers may take to share their sockets.
const SHARED: Duration = Duration::from_secs(5);

/// How long connections have to finish while new clients are still accepted: longer than the server
/// keeps one for a request that is on its way.
const FINISHED: Duration = Duration::from_millis(600);

/// How long the last of them may take until their requests are decided. New clients wait meanwhile.
const DECIDED: Duration = Duration::from_millis(50);

/// The consequence of an attempt to upgrade.
#[derive(Clone, Copy, Debug)]
pub(super) enum AfterUpgrade {
    /// The process ends: it is replaced, or was told to.
    End(EndSignal),
    /// It continues: with a reload if that was asked for meanwhile, and then another attempt if this one
    /// has not failed.
    Serve { reloads: bool, upgrades: bool },
}

/// The reason why an upgrade is not completed.
#[derive(Debug)]
enum Broken {
    Failed(String),
    Ended(EndSignal),
    /// The new process was not ready yet, and has read a configuration that is no longer right.
    Reload,
}

/// Signals that wait until it is known which process they are for.
#[derive(Debug, Default)]
struct HeldSignals {
    has_to_reload: bool,
    has_to_reopen: bool,
}

impl Process {
    /// Starts the program anew, and hands over to it. If that fails, this process serves
    /// as before; HTTP/1 connections that were open then close after their next response.
    pub(super) async fn upgrade(
        &mut self,
        signals: &mut Signals,
        watch: &mut FileWatcher,
    ) -> AfterUpgrade {
        self.upgrade_problem.clear();
        let mut held = HeldSignals::default();
        // The new process reads the files as they are now.
        let has_changed = watch.look();
        let broken = match self.try_upgrade(signals, watch, &mut held).await {
            Ok(signal) => return AfterUpgrade::End(signal),
            Err(broken) => broken,
        };
        match broken {
            Broken::Failed(why) => {
                tracing::error!("the upgrade has failed, and this process keeps serving: {why}");
                self.upgrade_problem
                    .set(format!("the last upgrade has failed: {why}"));
                service_manager::report("the last upgrade has failed: see the log").await;
                AfterUpgrade::Serve {
                    reloads: has_changed || held.has_to_reload,
                    upgrades: false,
                }
            }
            Broken::Reload => {
                tracing::info!(
                    "the upgrade begins anew after a reload: no new process was ready yet"
                );
                AfterUpgrade::Serve {
                    reloads: true,
                    upgrades: true,
                }
            }
            Broken::Ended(signal) => {
                tracing::info!("upgrade cancelled: this process was told to stop");
                AfterUpgrade::End(signal)
            }
        }
    }

    async fn try_upgrade(
        &mut self,
        signals: &mut Signals,
        watch: &mut FileWatcher,
        held: &mut HeldSignals,
    ) -> Result<EndSignal, Broken> {
        self.check_environment().map_err(Broken::Failed)?;
        let shared = timeout(SHARED, self.share()).await.map_err(io::Error::from);
        let shared = shared.flatten();
        let shared = shared.map_err(Broken::failed("cannot share the listening sockets"))?;
        let file = || memfd_create("buckets", MemfdFlags::CLOEXEC).map(File::from);
        let files = file().and_then(|first| Ok([first, file()?, file()?]));
        let files = files.map_err(Broken::failed("no file in memory for buckets"))?;
        let program = self.program.as_ref();
        let program = program.map_err(Broken::failed("can't find this process's own binary"))?;
        let mut successor = Successor::start(program).map_err(Broken::Failed)?;
        tracing::info!(program = %program.path.display(), "upgrading: a new process starts");

        let ruleset = self.gateway.ruleset();
        let made_token = self.reloader.access.made().cloned();
        let inheritance = Inheritance::new(ruleset.secret, self.clock.now(), made_token);
        let redis = ruleset.startup_timeout;
        drop(ruleset);
        let ready = successor.prepare(inheritance, Arc::clone(&shared), redis);
        let watch = Some(watch);
        let Ready { version, taken, .. } = held.until(signals, &self.gateway, watch, ready).await?;
        let pid = successor.id();
        tracing::info!(
            pid,
            version,
            "upgrading: the new process is ready, and gets the buckets"
        );

        // What is decided after the copy of the buckets, the new process doesn't know of.
        self.server.finish_connections();
        self.admin.finish_connections();
        let finished = async {
            sleep(FINISHED).await;
            Ok(())
        };
        held.until(signals, &self.gateway, None, finished).await?;
        let server = self.server.suspend(&taken).await;
        let admin = self.admin.suspend(&taken).await;
        let restored = async {
            sleep(DECIDED).await;
            let files = self.save_buckets(files).await?;
            let hash = self.reloader.history.running().hash.clone();
            let settings = Settings::of(&self.gateway.ruleset(), hash);
            successor.restore(files, settings).await
        };
        let mut done = held.until(signals, &self.gateway, None, restored).await;
        let mut ended_by = EndSignal::HandedOver;
        if done.is_ok() {
            let proven = successor.proven();
            done = held.until(signals, &self.gateway, None, proven).await;
            // The new one serves, and has had its own signal if it was meant.
            if let Err(Broken::Ended(signal)) = done {
                (done, ended_by) = (Ok(()), signal);
            }
        }
        if let Err(broken) = done {
            drop(successor);
            self.resume(server, admin, shared).await;
            return Err(broken);
        }
        server.leave();
        admin.leave();
        drop(shared);
        self.reloader.access.leave_made();
        self.snapshots.leave().await;
        service_manager::replaced_by(pid).await;
        successor.leave(&held.signals()).await;
        self.successor = Some(successor);
        tracing::info!(pid, "upgraded: the new process serves, and this one drains");
        Ok(ended_by)
    }

    /// Handles to the sockets of all listeners.
    async fn share(&self) -> io::Result<Arc<[SharedListener]>> {
        let mut all = self.server.share().await?;
        all.extend(self.admin.share().await?);
        Ok(all.into())
    }

    /// Where ending this process would end the new one, there is no upgrade.
    fn check_environment(&self) -> Result<(), String> {
        let own = process::id();
        if !*self.is_open.borrow() {
            return Err("it does not serve yet".to_owned());
        }
        if own == 1 {
            let why = "this is process 1, with which its container ends: replace the container";
            return Err(why.to_owned());
        }
        let is_of_systemd = env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid == own.to_string());
        if is_of_systemd && env::var_os("NOTIFY_SOCKET").is_none() {
            let why =
                "systemd would end the new process with this one: the unit needs `Type=notify`";
            return Err(why.to_owned());
        }
        Ok(())
    }

    /// Writes the buckets, bans and grants as of now, what other machines have charged, and the history.
    async fn save_buckets(&self, files: [File; 3]) -> Result<[File; 3], String> {
        let (history, gateway) = (self.history.clone(), Arc::clone(&self.gateway));
        let (ruleset, now) = (gateway.ruleset(), self.clock.now());
        let saved = spawn_blocking(move || {
            let [file, known, steps] = files;
            // First: what is charged in between counts twice, rather than not at all.
            let mut units = KnownUnits::new();
            let trackers = ruleset.buckets().filter_map(|(_, one)| one.tracker());
            trackers.for_each(|tracker| tracker.add_known(&mut units));
            serde_json::to_writer(BufWriter::new(&known), &units)?;
            let tables = ruleset.buckets().map(|(id, one)| (id, &*one.table));
            let file = snapshot::write(file, &ruleset.secret, now, tables, ruleset.keys())?;
            history.write(BufWriter::new(&steps), &gateway, now)?;
            Ok([file, known, steps])
        });
        let saved = saved.await.map_err(io::Error::from).flatten();
        saved.map_err(|error| format!("the buckets cannot be written: {error}"))
    }

    /// Accepts clients again.
    async fn resume(
        &mut self,
        server: SuspendedListeners,
        admin: SuspendedListeners,
        shared: Arc<[SharedListener]>,
    ) {
        let deadline = self.reloader.shutdown.deadline.get();
        self.server.resume(server, &shared, deadline).await;
        self.admin.resume(admin, &shared, deadline).await;
    }
}

impl Broken {
    fn failed<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> Self + use<'_, E> {
        move |error| Self::Failed(format!("{what}: {error}"))
    }
}

impl HeldSignals {
    /// Awaits a step of an upgrade, or a signal that ends the process; with a `watch`, also a reload.
    /// Notes the other signals.
    async fn until<T>(
        &mut self,
        signals: &mut Signals,
        gateway: &Gateway,
        watch: Option<&mut FileWatcher>,
        step: impl Future<Output = Result<T, String>>,
    ) -> Result<T, Broken> {
        let mut step = std::pin::pin!(step);
        let can_reload = watch.is_some();
        let mut changed = std::pin::pin!(async {
            match watch {
                Some(watch) => watch.changed().await,
                None => pending().await,
            }
        });
        loop {
            let command = tokio::select! {
                biased;
                done = &mut step => return done.map_err(Broken::Failed),
                command = signals.next() => command,
                () = &mut changed => SignalCommand::Reload,
            };
            match command {
                SignalCommand::Reload if can_reload => return Err(Broken::Reload),
                SignalCommand::End(signal) => return Err(Broken::Ended(signal)),
                SignalCommand::Upgrade => {
                    tracing::warn!("SIGUSR2 is ignored: an upgrade is under way")
                }
                SignalCommand::Reload => self.has_to_reload = true,
                SignalCommand::Reopen => {
                    reopen(gateway);
                    self.has_to_reopen = true;
                }
            }
        }
    }

    /// The signals for the new process, which has not had them.
    fn signals(&self) -> Vec<Signal> {
        let reload = self.has_to_reload.then_some(Signal::HUP);
        let reopen = self.has_to_reopen.then_some(Signal::USR1);
        reload.into_iter().chain(reopen).collect()
    }
}
