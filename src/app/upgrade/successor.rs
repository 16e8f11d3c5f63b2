//! The new process, as the old one sees it.

use std::env;
use std::fs::File;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::process::Child;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::channel::{Channel, MAX_FILES};
use super::{
    Inheritance, NewMessage, OldMessage, PROMPT, PROVEN, Program, READY, RESTORED,
    RESTORED_A_SECOND, Ready, Settings,
};
use crate::server::SharedListener;

/// How long a process that breaks off may take to end by itself.
const LAST_WORDS: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A process that is to take over. Ended when dropped, unless it has.
#[derive(Debug)]
pub(in crate::app) struct Successor {
    /// The process, or the shell that has started it; none once it has taken over.
    child: Option<Child>,
    /// systemd waits for the end of its own children alone. The process becomes one as soon as the shell
    /// in between has ended, and the two are a group of processes.
    is_detached: bool,
    pid: Pid,
    channel: Arc<Channel>,
}

impl Successor {
    /// Starts the program.
    ///
    /// # Errors
    ///
    /// The system's error, with the path.
    pub(in crate::app) fn start(program: &Program) -> Result<Self, String> {
        let start = || {
            let (channel, input) = Channel::pair()?;
            let is_detached = env::var_os("NOTIFY_SOCKET").is_some();
            let child = program.start(input, is_detached)?;
            Ok(Self {
                pid: Pid::from_child(&child),
                child: Some(child),
                is_detached,
                channel: Arc::new(channel),
            })
        };
        start()
            .map_err(|error: io::Error| format!("cannot start {}: {error}", program.path.display()))
    }

    /// The id of the process.
    pub(in crate::app) fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Passes on the listeners, and waits until the process can take over. That may take as long as Redis
    /// may beside.
    ///
    /// # Errors
    ///
    /// The problem, in words.
    pub(in crate::app) async fn prepare(
        &mut self,
        inheritance: Inheritance,
        shared: Arc<[SharedListener]>,
        redis: Duration,
    ) -> Result<Ready, String> {
        let channel = Arc::clone(&self.channel);
        let message = self.exchange(move || {
            send_all(&channel, inheritance, &shared)?;
            Ok(channel.receive(READY + redis)?.0)
        });
        match message.await? {
            NewMessage::Ready(ready) => {
                let pid = i32::try_from(ready.pid).ok().and_then(Pid::from_raw);
                self.pid = pid.ok_or("the new process has no process id")?;
                Ok(ready)
            }
            _ => Err("the new process sent `Serving` before it had the buckets".to_owned()),
        }
    }

    /// Passes on the buckets, which these files have, and waits until the process serves.
    ///
    /// # Errors
    ///
    /// The problem, in words.
    pub(in crate::app) async fn restore(
        &mut self,
        files: [File; 3],
        settings: Settings,
    ) -> Result<(), String> {
        let channel = Arc::clone(&self.channel);
        let message = self.exchange(move || {
            let lengths = files.iter().map(|file| Ok(file.metadata()?.len()));
            let bytes: u64 = lengths.sum::<io::Result<_>>()?;
            let more = bytes / RESTORED_A_SECOND;
            let files = files.each_ref().map(AsFd::as_fd);
            channel.send(&OldMessage::Buckets(settings), &files, PROMPT)?;
            Ok(channel.receive(RESTORED + Duration::from_secs(more))?.0)
        });
        match message.await? {
            NewMessage::Serving => Ok(()),
            _ => Err("the new process sent `Ready` twice".to_owned()),
        }
    }

    /// Waits until the process has served for [`PROVEN`].
    ///
    /// # Errors
    ///
    /// It has ended.
    pub(in crate::app) async fn proven(&mut self) -> Result<(), String> {
        match timeout(PROVEN, self.channel.closed()).await {
            Ok(Ok(())) => Err(self.last_words().await),
            _ => Ok(()),
        }
    }

    /// Leaves everything to the process, with these signals.
    pub(in crate::app) async fn leave(&mut self, signals: &[Signal]) {
        // A shell has ended by now, and is not left behind as a zombie.
        let _ = self.child.take().map(|mut child| child.try_wait());
        let channel = Arc::clone(&self.channel);
        // One that has ended needs nothing more.
        let _ = spawn_blocking(move || channel.send(&OldMessage::Yours, &[], PROMPT)).await;
        for signal in signals {
            let _ = kill_process(self.pid, *signal);
        }
    }

    /// Waits until the process has ended, under systemd: that starts the service anew once this process has
    /// ended as well. Elsewhere never returns, because the rest of the drain keeps nothing from starting.
    pub(in crate::app) async fn ended(&self) {
        if !self.is_detached || self.channel.closed().await.is_err() {
            pending::<()>().await;
        }
    }

    /// Waits for the end of a process that has closed its socket, so that it can log why. Returns what is known.
    async fn last_words(&mut self) -> String {
        let ended = async {
            loop {
                match self.try_wait() {
                    Ok(None) => sleep(LOOK_EVERY).await,
                    Ok(Some(status)) => return status,
                    Err(error) => return format!(" ({error})"),
                }
            }
        };
        match timeout(LAST_WORDS, ended).await {
            Ok(status) => format!("the new process has ended{status}; the log has what it said"),
            Err(_) => "the new process has closed its standard input".to_owned(),
        }
    }

    /// The exit status of the process, in brackets, if it has ended; empty under systemd, which alone learns it.
    fn try_wait(&mut self) -> io::Result<Option<String>> {
        let Some(child) = &mut self.child else {
            return Ok(None);
        };
        let status = child.try_wait()?.map(|status| format!(" ({status})"));
        if !self.is_detached {
            return Ok(status);
        }
        let is_gone = test_kill_process_group(Pid::from_child(child)) == Err(Errno::SRCH);
        Ok(is_gone.then(String::new))
    }

    /// Sends and receives on a thread that may wait.
    async fn exchange(
        &mut self,
        exchange: impl FnOnce() -> io::Result<NewMessage> + Send + 'static,
    ) -> Result<NewMessage, String> {
        let exchanged = spawn_blocking(exchange).await;
        let exchanged = exchanged.map_err(io::Error::from).flatten();
        let error = match exchanged {
            Ok(NewMessage::Failed(why)) => {
                // It logs the rest.
                self.last_words().await;
                return Err(format!("the new process has failed: {why}"));
            }
            Ok(message) => return Ok(message),
            Err(error) => error,
        };
        Err(match error.kind() {
            ErrorKind::TimedOut => "the new process takes too long".to_owned(),
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                self.last_words().await
            }
            _ => format!("the exchange with the new process failed: {error}"),
        })
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail if it has ended and was waited for.
            let _ = if self.is_detached {
                kill_process_group(Pid::from_child(&child), Signal::KILL).map_err(io::Error::from)
            } else {
                child.kill()
            };
            // What the kernel is doing for it may take a while. Without a thread it stays a zombie.
            let _ = thread::Builder::new().spawn(move || child.wait());
        }
    }
}

fn send_all(
    channel: &Channel,
    inheritance: Inheritance,
    shared: &[SharedListener],
) -> io::Result<()> {
    channel.send(&OldMessage::Start(inheritance), &[], PROMPT)?;
    for listener in shared {
        let message = OldMessage::Listener {
            name: listener.name.clone(),
            has_file: listener.has_file,
        };
        for some in listener.sockets.chunks(MAX_FILES) {
            let some: Vec<_> = some.iter().map(AsFd::as_fd).collect();
            channel.send(&message, &some, PROMPT)?;
        }
    }
    channel.send(&OldMessage::Complete, &[], PROMPT)
}
