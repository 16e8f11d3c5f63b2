//! nginx, HAProxy and Caddy with configurations of their own, killed on drop.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::origin::free_address;
use super::wait_for;

/// Text of a configuration, and the address that takes its place.
pub type Replacement<'a> = (&'a str, SocketAddr);

/// Where a configuration listens, and the same for another address.
type Listen = (&'static str, fn(SocketAddr) -> String);

/// A running proxy.
pub struct OtherProxy {
    process: Child,
    /// Where it listens.
    pub address: SocketAddr,
    _directory: TempDir,
}

impl Drop for OtherProxy {
    fn drop(&mut self) {
        // Each of these is one process, as it is started here.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl OtherProxy {
    /// Starts nginx with this text in its `http` block. The text listens on port 80.
    pub fn nginx(text: &str, replacements: &[Replacement<'_>]) -> Self {
        let listen: Listen = ("listen 80;", |address| format!("listen {address};"));
        Self::start("nginx", text, listen, replacements, nginx)
    }

    /// Starts HAProxy with this text after its `global` and `defaults`. The text binds port 80.
    pub fn haproxy(text: &str, replacements: &[Replacement<'_>]) -> Self {
        let listen: Listen = ("bind :80", |address| format!("bind {address}"));
        Self::start("haproxy", text, listen, replacements, haproxy)
    }

    /// Starts Caddy with this text after its global options. The text has a site on port 80.
    pub fn caddy(text: &str, replacements: &[Replacement<'_>]) -> Self {
        let listen: Listen = (":80 {", |address| {
            format!(":{} {{\n\tbind {}", address.port(), address.ip())
        });
        Self::start("caddy", text, listen, replacements, caddy)
    }

    fn start(
        name: &str,
        text: &str,
        (port_80, listen): Listen,
        replacements: &[Replacement<'_>],
        command: impl Fn(&Path, &str) -> Command,
    ) -> Self {
        let mut text = text.to_owned();
        for (wanted, address) in replacements {
            assert!(text.contains(wanted), "{name}: no {wanted}");
            text = text.replace(wanted, &address.to_string());
        }
        assert!(text.contains(port_80), "{name}: no {port_80}");
        let directory = tempfile::tempdir().expect("a temporary directory");
        // Another process may take the port before the proxy does: then the next one is tried.
        let (process, address) = wait_for(name, || {
            let address = free_address();
            let text = text.replacen(port_80, &listen(address), 1);
            let mut process = command(directory.path(), &text)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap_or_else(|error| panic!("{name}: {error}; ./scripts/test installs it"));
            let listens = wait_for("the proxy to listen or to end", || {
                if process.try_wait().expect("it was started here").is_some() {
                    return Some(false);
                }
                TcpStream::connect(address).ok().map(|_| true)
            });
            listens.then_some((process, address))
        });
        Self {
            process,
            address,
            _directory: directory,
        }
    }
}

/// A program that Debian installs in `/usr/sbin`.
fn system_program(name: &str) -> Command {
    let mut command = Command::new(name);
    let search = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{search}:/usr/sbin"));
    command
}

fn nginx(directory: &Path, text: &str) -> Command {
    let path = |name: &str| directory.join(name).display().to_string();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|kind| format!("{kind}_temp_path {};\n", path(kind)));
    let config = format!(
        "daemon off;\nmaster_process off;\npid {};\nerror_log {};\nevents {{}}\n\
         http {{\naccess_log off;\nproxy_http_version 1.1;\n{}{text}}}\n",
        path("pid"),
        path("error.log"),
        temporary.concat(),
    );
    fs::write(path("nginx.conf"), config).expect("the directory is writable");
    let mut command = system_program("nginx");
    command.args([
        "-e",
        &path("error.log"),
        "-p",
        &path(""),
        "-c",
        &path("nginx.conf"),
    ]);
    command
}

fn haproxy(directory: &Path, text: &str) -> Command {
    let file = directory.join("haproxy.cfg");
    let config = format!(
        "global\n    nbthread 1\ndefaults\n    mode http\n    timeout connect 5s\n    \
         timeout client 30s\n    timeout server 30s\n{text}"
    );
    fs::write(&file, config).expect("the directory is writable");
    let mut command = system_program("haproxy");
    command.args(["-db", "-f"]).arg(file);
    command
}

fn caddy(directory: &Path, text: &str) -> Command {
    let file = directory.join("Caddyfile");
    let config = format!("{{\n\tadmin off\n\tauto_https off\n}}\n{text}");
    fs::write(&file, config).expect("the directory is writable");
    let mut command = Command::new("caddy");
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(file)
        .env("HOME", directory);
    command
}
