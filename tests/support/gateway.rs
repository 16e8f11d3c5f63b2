//! The real binary, started with a configuration text in a directory of its own and ended on drop.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, thread};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use super::{client, wait_for};

/// The program under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");
/// The line that it logs for SIGUSR1, which has no other effect unless the access log was moved away.
const ECHO_LINE: &str = "SIGUSR1: the access log is opened again";
/// Its arguments in the directory of its configuration.
pub const RUN: [&str; 3] = ["run", "--config", CONFIG];
const CONFIG: &str = "sluicegate.yaml";

/// A running proxy.
pub struct Gateway {
    process: Child,
    /// The process that has replaced it, and how many have.
    successor: Option<Pid>,
    upgrades: usize,
    dir: TempDir,
    log: Arc<Mutex<String>>,
    log_is_read: Arc<AtomicBool>,
    /// The reader of stderr has seen its end.
    log_has_ended: Arc<AtomicBool>,
    address: SocketAddr,
    /// The address of its admin listener.
    pub admin: SocketAddr,
}

impl Gateway {
    /// Starts the proxy with `config`, and waits until it serves. Adds listeners on free ports of
    /// 127.0.0.1 unless `config` names its own.
    pub fn start(config: &str) -> Self {
        Self::start_with(directory_of(config), RUN)
    }

    /// Starts the proxy in a shell that first runs `commands`, such as `ulimit`.
    pub fn start_after(commands: &str, config: &str) -> Self {
        Self::spawn(directory_of(config), shell_after(commands))
    }

    /// An echo proxy with this `on_limit`. `/few` has a limit of one an hour, `/else` no limit, and
    /// all other paths a limit of zero.
    pub fn refusing(on_limit: &str) -> Self {
        Self::start(&format!(
            "policies: {{ spam: {{ quota: 0/1h, on_limit: {on_limit} }}, few: {{ quota: 1/1h, on_limit: {on_limit} }} }}
routes:
  - {{ match: {{ path: \"/**\" }}, upstream: echo, limits: [spam] }}
  - {{ name: few, match: {{ path: /few }}, upstream: echo, limits: [few] }}
  - {{ match: {{ path: /else }}, upstream: echo }}
"
        ))
    }

    /// Starts the proxy, and closes the reading end of its log once it serves.
    pub fn start_with_closed_log(config: &str) -> Self {
        let gateway = Self::start(config);
        gateway.log_is_read.store(false, Ordering::Relaxed);
        // The reader ends with the line after that.
        gateway.replace_config("unknown: key\n");
        gateway.signal(Signal::HUP);
        wait_for("the log to lose lines", || {
            let lost = gateway.metric("sluicegate_log_dropped_lines_total");
            gateway.signal(Signal::HUP);
            lost.filter(|lines| *lines > 0.0)
        });
        gateway
    }

    /// Starts the binary with these arguments, in `dir`.
    pub fn start_with<S: AsRef<OsStr>>(
        dir: TempDir,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut binary = Command::new(BINARY);
        binary.args(arguments);
        Self::spawn(dir, binary)
    }

    /// Starts this program, in `dir`, with the configuration that is there.
    pub fn start_program(program: &Path, dir: TempDir) -> Self {
        let mut command = Command::new(program);
        command.args(RUN);
        Self::spawn(dir, command)
    }

    /// Has the process replaced by a new one, and waits until it has ended.
    pub fn upgrade(&mut self) {
        self.signal(Signal::USR2);
        let before = self.successor;
        let pid = wait_for("the new process", || {
            let log = self.received_log();
            let mut done = log
                .lines()
                .filter(|line| line.contains("the new process serves"));
            let pid = done.nth(self.upgrades)?.split_once("pid=")?.1;
            let pid = pid.split_whitespace().next()?.parse().ok()?;
            Pid::from_raw(pid)
        });
        match before {
            None => assert!(self.wait().success()),
            Some(before) => wait_for("the end of the old process", || {
                has_ended(before).then_some(())
            }),
        }
        self.successor = Some(pid);
        self.upgrades += 1;
    }

    /// The processes that it has started, and that have not ended and been waited for.
    pub fn children(&self) -> Vec<Pid> {
        let parent = self.pid().as_raw_nonzero().to_string();
        let output = client::run("ps", &["--no-headers", "--ppid", &parent, "-o", "pid"]);
        let pids = output.stdout.lines().map(|pid| pid.trim().parse().ok());
        pids.filter_map(|pid| Pid::from_raw(pid?)).collect()
    }

    /// Starts the proxy again, in the same directory, when it has ended.
    pub fn start_again(mut self) -> Self {
        assert!(!self.is_running(), "it ends first");
        let empty = tempfile::tempdir().expect("a temporary directory");
        Self::start_with(std::mem::replace(&mut self.dir, empty), RUN)
    }

    /// As [`start_again`](Self::start_again), in a shell that first runs `commands`.
    pub fn start_again_after(mut self, commands: &str) -> Self {
        assert!(!self.is_running(), "it ends first");
        let empty = tempfile::tempdir().expect("a temporary directory");
        Self::spawn(
            std::mem::replace(&mut self.dir, empty),
            shell_after(commands),
        )
    }

    /// Starts the proxy with `config`, and waits until its admin listener responds, ready or not.
    /// Its other listeners may not exist yet.
    pub fn start_unready(config: &str) -> Self {
        let mut binary = Command::new(BINARY);
        binary.args(RUN);
        Self::launch(directory_of(config), binary)
    }

    fn spawn(dir: TempDir, command: Command) -> Self {
        let mut gateway = Self::launch(dir, command);
        // The admin listener says `ready` last, when all others listen.
        wait_for("/readyz", || {
            (client::get(gateway.admin, "/readyz").status == 200).then_some(())
        });
        gateway.address = gateway.listeners(1)[0];
        gateway
    }

    fn launch(dir: TempDir, mut command: Command) -> Self {
        let mut process = command
            .current_dir(dir.path())
            .env_remove("SLUICEGATE_CONFIG")
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stderr = BufReader::new(process.stderr.take().expect("stderr is a pipe"));
        let log = Arc::new(Mutex::new(String::new()));
        let collected = Arc::clone(&log);
        let log_is_read = Arc::new(AtomicBool::new(true));
        let is_read = Arc::clone(&log_is_read);
        let log_has_ended = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::clone(&log_has_ended);
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if !is_read.load(Ordering::Relaxed) {
                    return;
                }
                let mut log = collected.lock().expect("no holder panics");
                log.push_str(&line);
                log.push('\n');
            }
            has_ended.store(true, Ordering::Release);
        });
        let none = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut gateway = Self {
            process,
            successor: None,
            upgrades: 0,
            dir,
            log,
            log_is_read,
            log_has_ended,
            address: none,
            admin: none,
        };
        gateway.admin = gateway.wait_until_announced("admin listening", 1)[0];
        gateway
    }

    /// Bytes of memory that the proxy occupies.
    pub fn resident(&self) -> usize {
        let pid = self.pid().as_raw_nonzero();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the proxy lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
        1024 * kib.expect("the kernel says how much")
    }

    /// The first listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS` of the first listener, followed by `path`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// The file that the proxy reads.
    pub fn config_path(&self) -> PathBuf {
        self.dir.path().join(CONFIG)
    }

    /// The directory of the configuration.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Replaces the configuration file, as an editor does: a new file under the old name.
    pub fn replace_config(&self, config: &str) {
        let new = self.dir.path().join("sluicegate.yaml.new");
        fs::write(&new, with_free_ports(config)).expect("the directory is writable");
        fs::rename(new, self.config_path()).expect("the directory is writable");
    }

    /// Replaces the configuration and waits until it is in force.
    pub fn reload(&self, config: &str) {
        let before = self.reloads("success");
        self.replace_config(config);
        wait_for("the reload", || {
            (self.reloads("success") > before).then_some(())
        });
    }

    /// The number of reloads with this result: `success` or `failure`.
    pub fn reloads(&self, result: &str) -> u64 {
        let series = format!("sluicegate_config_reloads_total{{result=\"{result}\"}}");
        self.metric(&series).unwrap_or(0.0) as u64
    }

    /// The value of a series, written as in the exposition.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let metrics = client::get(self.admin, "/metrics").text();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        Some(line.parse().expect("a metric is a number"))
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the process lives");
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        self.successor.unwrap_or(Pid::from_child(&self.process))
    }

    /// Every line that it has logged so far, for texts that must not be there and for counts. A text
    /// that must be there may be logged a moment later: [`Self::wait_for_log`].
    ///
    /// A thread of the proxy writes the log, and one of the test reads it. So this asks the proxy for
    /// one more line, and waits for it.
    pub fn log(&self) -> String {
        let echoes = |log: &str| log.matches(ECHO_LINE).count();
        let before = echoes(&self.received_log());
        if kill_process(self.pid(), Signal::USR1).is_ok() {
            wait_for("the log so far", || {
                let is_echoed = echoes(&self.received_log()) > before;
                (is_echoed || self.has_exited()).then_some(())
            });
        }
        if self.has_exited() {
            wait_for("the end of the log", || {
                self.log_has_ended.load(Ordering::Acquire).then_some(())
            });
        }
        let log = self.received_log();
        let lines = log.split_inclusive('\n');
        lines.filter(|line| !line.contains(ECHO_LINE)).collect()
    }

    /// What has been read of stderr so far. Lines may be on their way.
    fn received_log(&self) -> String {
        let log = self.log.lock();
        log.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What has been read of its log, locked against the thread that reads stderr.
    pub fn log_reader(&self) -> Arc<Mutex<String>> {
        Arc::clone(&self.log)
    }

    /// Waits for a line with this text, and returns it.
    pub fn wait_for_log(&self, text: &str) -> String {
        self.wait_for_line(text, |line| line.contains(text))
    }

    /// Waits for a line like this, and returns it.
    pub fn wait_for_line(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        wait_for(what, || {
            let log = self.received_log();
            log.lines().find(|line| is_it(line)).map(str::to_owned)
        })
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the end of the process", || {
            self.process.try_wait().expect("it is our child")
        })
    }

    /// Returns true once the process has ended, whether or not its status was asked for.
    fn has_exited(&self) -> bool {
        if let Some(successor) = self.successor {
            return has_ended(successor);
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(self.pid()), options), Ok(None))
    }

    /// Returns true while the process runs.
    pub fn is_running(&mut self) -> bool {
        if let Some(successor) = self.successor {
            return !has_ended(successor);
        }
        self.process.try_wait().expect("it is our child").is_none()
    }

    /// The addresses of its first `count` listeners, in the order of the configuration.
    pub fn listeners(&mut self, count: usize) -> Vec<SocketAddr> {
        self.wait_until_announced("listening", count)
    }

    fn wait_until_announced(&mut self, message: &str, count: usize) -> Vec<SocketAddr> {
        wait_for("the listeners", || {
            let found = self.announced(message);
            let whole = found.len() >= count;
            assert!(
                whole || self.is_running(),
                "the proxy ended:\n{}",
                self.received_log()
            );
            whole.then_some(found)
        })
    }

    /// The addresses in the lines that say `message`, in the order of their `listener=` field.
    fn announced(&self, message: &str) -> Vec<SocketAddr> {
        let log = self.received_log();
        let lines = log.lines().filter_map(|line| line.split_once(message));
        let is_admin = message.starts_with("admin");
        let lines = lines.filter(|(before, _)| is_admin || !before.ends_with("admin "));
        let mut found: Vec<(usize, SocketAddr)> = lines
            .filter_map(|(_, fields)| {
                let field = |name: &str| {
                    fields
                        .split_whitespace()
                        .find_map(|word| word.strip_prefix(name))
                };
                let listener = field("listener=")
                    .and_then(|number| number.parse().ok())
                    .unwrap_or(0);
                Some((listener, field("address=")?.parse().ok()?))
            })
            .collect();
        // Stable: lines without a number are in the order of the configuration.
        found.sort_by_key(|(listener, _)| *listener);
        found.into_iter().map(|(_, address)| address).collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let (Some(successor), true) = (self.successor, self.is_running()) {
            let _ = kill_process(successor, Signal::KILL);
        } else if self.is_running() {
            self.process.kill().expect("it is our child");
            self.process.wait().expect("it is our child");
        }
        if thread::panicking() {
            eprintln!("the proxy wrote:\n{}", self.received_log());
        }
    }
}

/// A shell that runs `commands`, and becomes the proxy.
fn shell_after(commands: &str) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("{commands}; exec \"$0\" \"$@\""), BINARY])
        .args(RUN);
    shell
}

/// Returns true if the process is gone, or waits for its parent to notice.
pub fn has_ended(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

/// A directory with `config` in it.
pub fn directory_of(config: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join(CONFIG), with_free_ports(config)).expect("the directory is writable");
    dir
}

/// Adds listeners on free ports to a `config` without listeners.
pub fn with_free_ports(config: &str) -> String {
    let mut text = config.to_owned();
    for (key, value) in [
        ("listeners:", "[{ address: 127.0.0.1:0 }]"),
        ("admin:", "{ address: 127.0.0.1:0 }"),
    ] {
        if !config.lines().any(|line| line.starts_with(key)) {
            text = format!("{key} {value}\n{text}");
        }
    }
    text
}
