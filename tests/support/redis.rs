//! A private redis-server on a free port, without persistence, that ends with the test.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::Value;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::origin::free_address;
use super::wait_for;

/// The delay of a task on a busy machine.
pub const SLACK: Duration = Duration::from_secs(5);
/// A second, and the delay of a busy machine.
pub const SOON: Duration = Duration::from_secs(12);
/// A socket in the directory of a server.
const SOCKET: &str = "socket";

/// A running server.
pub struct RedisServer {
    process: Child,
    dir: TempDir,
    options: Vec<String>,
    /// Its address.
    pub address: SocketAddr,
}

impl RedisServer {
    /// Starts a server without persistence, and waits until it accepts connections.
    pub fn start() -> Self {
        Self::with_options(&[])
    }

    /// Starts a server with further options, in the form of the command line: `["--requirepass",
    /// "x"]`.
    pub fn with_options(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        // Another process may take the port before the server does: then the next one is tried.
        let (process, address) = wait_for("a redis-server", || {
            let address = free_address();
            let process = run(&dir, address, &options)?;
            Some((process, address))
        });
        Self {
            process,
            dir,
            options,
            address,
        }
    }

    /// A single sentinel that watches `mymaster` at this address, with a short failover time-out.
    pub fn sentinel(master: SocketAddr) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = dir.path().join("sentinel.conf");
        let watched = format!(
            "sentinel monitor mymaster {} {} 1\nsentinel down-after-milliseconds mymaster 300\n\
             sentinel failover-timeout mymaster 2000\n",
            master.ip(),
            master.port()
        );
        let (process, address) = wait_for("a sentinel", || {
            let address = free_address();
            std::fs::write(&config, &watched).expect("the directory is writable");
            let process = Command::new("redis-server")
                .arg(&config)
                .args(["--sentinel", "--bind", "127.0.0.1"])
                .args(["--port", &address.port().to_string()])
                .args(["--unixsocket", SOCKET, "--dir"])
                .arg(dir.path())
                .stdout(Stdio::null())
                .spawn()
                .expect("redis-server is installed");
            Some((listening(process, &dir)?, address))
        });
        Self {
            process,
            dir,
            options: Vec::new(),
            address,
        }
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is our own process");
        self.process.wait().expect("it was started here");
    }

    /// Starts it again on the same port, empty, after [`kill`](Self::kill).
    pub fn start_again(&mut self) {
        self.process = wait_for("the redis-server again", || {
            run(&self.dir, self.address, &self.options)
        });
    }

    /// Suspends the server with its connections, until [`go_on`](Self::go_on).
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes a suspended server.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Its URL, without user and database.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it is our own process");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A foreign script that does not end by itself.
pub struct Endless(JoinHandle<()>);

impl Endless {
    /// Starts it on a server.
    pub fn on(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url()).expect("a URL");
        let mut script = redis::cmd("EVAL");
        script.arg("while true do end").arg(0);
        Self(thread::spawn(move || {
            let mut connection = client.get_connection().expect("it runs");
            let answer = script.query::<Value>(&mut connection);
            answer.expect_err("it is killed");
        }))
    }

    /// Kills it on its server.
    pub fn kill(self, server: &RedisServer) {
        command(server, &["SCRIPT", "KILL"]);
        self.0.join().expect("it was killed");
    }
}

/// A server that answers all bytes with the same text.
pub fn impostor(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1_024]);
            let _ = stream.write_all(answer);
        }
    });
    address
}

/// A server that accepts connections; `None` if it ended instead.
fn run(dir: &TempDir, address: SocketAddr, options: &[String]) -> Option<Child> {
    let process = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--save", "", "--appendonly", "no"])
        .args(["--unixsocket", SOCKET, "--dir"])
        .arg(dir.path())
        .args(options)
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("redis-server: {error}; ./scripts/test installs it"));
    listening(process, dir)
}

/// The process once it listens. It opens its Unix socket after its port, on which another process
/// may listen for a moment.
fn listening(mut process: Child, dir: &TempDir) -> Option<Child> {
    let socket = dir.path().join(SOCKET);
    wait_for("redis-server to listen or to end", || {
        if process.try_wait().expect("it was started here").is_some() {
            return Some(false);
        }
        UnixStream::connect(&socket).ok().map(|_| true)
    })
    .then_some(process)
}

/// Sends a command to a server.
pub fn command(server: &RedisServer, words: &[&str]) -> Value {
    try_command(server, words).expect("an answer")
}

/// As [`command`], for a server that may end its connections.
pub fn try_command(server: &RedisServer, words: &[&str]) -> redis::RedisResult<Value> {
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query(&mut client.get_connection()?)
}
