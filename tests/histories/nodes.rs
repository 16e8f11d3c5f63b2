//! Programs on hosts: redis-server, sentinels and proxies.

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use redis::Value;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use crate::support::client::get;
use crate::support::gateway::Gateway;
use crate::support::synchronised::after_rounds;
use crate::support::wait_for;
use crate::world::Host;

/// The port of each server, since each has a host of its own.
const REDIS_PORT: u16 = 6_379;
const SETTINGS: &str = "redis.conf";

/// A redis-server, or a sentinel.
pub struct Redis {
    process: Child,
    pub host: Host,
    dir: TempDir,
    options: &'static [&'static str],
}

impl Redis {
    /// Starts a server without persistence, with further lines of its configuration.
    pub fn start(host: Host, settings: &str) -> Self {
        let settings = format!("save \"\"\nrepl-diskless-sync-delay 0\n{settings}\n");
        Self::launch(host, &settings, &[])
    }

    /// Starts a sentinel that watches `main`, and decides together with others.
    pub fn sentinel(host: Host, main: &Self, quorum: usize) -> Self {
        let watched = format!(
            "sentinel monitor main {} {REDIS_PORT} {quorum}\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n",
            main.host.address
        );
        Self::launch(host, &watched, &["--sentinel"])
    }

    fn launch(host: Host, settings: &str, options: &'static [&'static str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let own = format!(
            "bind {} 127.0.0.1\nport {REDIS_PORT}\nprotected-mode no\ndir {}\nlogfile log\n",
            host.address,
            dir.path().display()
        );
        fs::write(dir.path().join(SETTINGS), own + settings).expect("the directory is writable");
        let server = Self {
            process: run(&host, &dir, options),
            host,
            dir,
            options,
        };
        server.wait_until_it_answers();
        server
    }

    fn wait_until_it_answers(&self) {
        wait_for("redis-server", || self.command(&["PING"]).ok());
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is our own process");
        self.process.wait().expect("it was started here");
    }

    /// Starts it again, empty, after [`kill`](Self::kill).
    pub fn start_again(&mut self) {
        self.process = run(&self.host, &self.dir, self.options);
        self.wait_until_it_answers();
    }

    /// Suspends it, until [`resume`](Self::resume).
    pub fn pause(&self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::STOP).expect("it is our own process");
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("it is our child");
    }

    pub fn resume(&self) {
        kill_process(Pid::from_child(&self.process), Signal::CONT).expect("it is our own process");
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.host.address, REDIS_PORT))
    }

    /// The answer to a command.
    pub fn command(&self, words: &[&str]) -> redis::RedisResult<Value> {
        let client = redis::Client::open(format!("redis://{}", self.address()))?;
        let mut connection =
            client.get_connection_with_timeout(std::time::Duration::from_secs(2))?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut connection)
    }

    /// The answer to a command as text, empty if there is none.
    pub fn text(&self, words: &[&str]) -> String {
        let answer = self.command(words).ok();
        let text = answer.and_then(|answer| redis::from_redis_value(answer).ok());
        text.unwrap_or_default()
    }

    /// A part of `INFO`.
    pub fn info(&self, section: &str) -> String {
        self.text(&["INFO", section])
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(host: &Host, dir: &TempDir, options: &[&str]) -> Child {
    host.command("redis-server")
        .arg(dir.path().join(SETTINGS))
        .args(options)
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("nsenter redis-server: {error}"))
}

/// A proxy on a host of its own, at the same address whenever it starts.
pub struct Proxy {
    pub gateway: Gateway,
    pub host: Host,
    /// Runs before it in its shell, for example to set its clock.
    commands: String,
}

/// The ports of each proxy.
const PORTS: [u16; 2] = [8_080, 9_090];

impl Proxy {
    /// Starts it, and waits until it is ready.
    pub fn start(host: Host, config: &str) -> Self {
        Self::start_after(host, "", config)
    }

    /// Starts it in a shell that first runs `commands`.
    pub fn start_after(host: Host, commands: &str, config: &str) -> Self {
        let commands = format!("{commands}\n{} \"$0\" \"$@\"", host.exec());
        let gateway = Gateway::start_after(&commands, &on_host(&host, config));
        Self {
            gateway,
            host,
            commands,
        }
    }

    /// Starts it again in its directory, after its end.
    pub fn start_again(self) -> Self {
        Self {
            gateway: self.gateway.start_again_after(&self.commands),
            ..self
        }
    }

    /// Puts another configuration into force.
    pub fn reload(&self, config: &str) {
        self.gateway.reload(&on_host(&self.host, config));
    }

    /// Writes another configuration, for the next start.
    pub fn replace_config(&self, config: &str) {
        self.gateway.replace_config(&on_host(&self.host, config));
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.host.address, PORTS[0]))
    }

    /// Waits until it has no fault of the store.
    pub fn wait_up(&self) {
        wait_for("the store to be up", || {
            let ready = get(self.gateway.admin, "/readyz");
            let is_up = self.gateway.metric("sluicegate_store_up") != Some(0.0);
            (ready.status == 200 && ready.text().contains("redis: up") && is_up).then_some(())
        });
    }

    /// The number of calls so far that requests waited for, and that Redis didn't answer.
    pub fn unanswered_calls(&self) -> u64 {
        let metrics = get(self.gateway.admin, "/metrics").text();
        let unanswered = metrics.lines().filter_map(|line| {
            let rest = line.strip_prefix("sluicegate_store_requests_total{op=\"call\",result=")?;
            let (result, count) = rest.split_once("} ")?;
            (result != "\"ok\"").then(|| count.parse::<u64>().ok())?
        });
        unanswered.sum()
    }

    /// Waits until it has exchanged charges once more, in a round that began after this call.
    pub fn wait_until_round(&self) {
        after_rounds(&self.gateway, 2);
    }

    /// Waits until Redis has answered one more request, which clients send meanwhile.
    pub fn wait_until_redis_decides(&self) {
        let series = "sluicegate_store_requests_total{op=\"call\",result=\"ok\"}";
        let calls = || self.gateway.metric(series).unwrap_or_default();
        let before = calls();
        wait_for("Redis to decide", || (calls() > before).then_some(()));
    }
}

fn on_host(host: &Host, config: &str) -> String {
    let address = host.address;
    let [port, admin] = PORTS;
    format!(
        "listeners: [{{ address: \"{address}:{port}\" }}]
admin: {{ address: \"{address}:{admin}\", tokens: {{ read: [reader-0123456789], write: [writer-0123456789] }} }}
{config}"
    )
}
