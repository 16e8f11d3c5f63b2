//! A network of hosts for one test, each in a network namespace of its own.
//!
//! The test runs itself again in namespaces for network, mounts and processes. Whatever it starts or
//! makes there ends with it, even if it is killed, and no other process of the machine sees it.

use std::cell::Cell;
use std::env;
use std::net::Ipv4Addr;
use std::process::Command;

use crate::dice;
use crate::support::client::run as output_of;

/// Set in the process that runs inside.
const INSIDE: &str = "SLUICEGATE_HISTORIES_INSIDE";
/// Set to `required` where a test must not be skipped for want of permission.
const PERMISSION: &str = "SLUICEGATE_TEST_NAMESPACES";
/// Names of namespaces are in `/run`, which is the machine's until then.
const PREPARE: &str = "mount -t tmpfs tmpfs /run && ip link set lo up && exec \"$0\" \"$@\"";
/// An Ethernet address that no host has.
const NOWHERE: &str = "02:00:00:00:00:fe";

/// Runs the test of this path in a network of its own, with a seed.
pub fn isolated(path: &str, run: impl FnOnce(&World, u64)) {
    let (_, test) = path.split_once("::").expect("a path begins with the crate");
    if env::var_os(INSIDE).is_some() {
        return run(&World::new(), dice::seed(test));
    }
    let mut unshare = vec!["--net", "--mount", "--pid", "--fork", "--kill-child"];
    if !rustix::process::geteuid().is_root() {
        unshare.push("--map-root-user");
    }
    if let Err(reason) = permission(&unshare) {
        let is_required = env::var(PERMISSION).is_ok_and(|value| value == "required");
        assert!(
            !is_required,
            "{test} needs network namespaces, which this user can't make: {reason}\n\
             Run it as root, with CAP_NET_ADMIN and CAP_SYS_ADMIN in a container, \
             or without {PERMISSION}=required to skip it."
        );
        eprintln!("skipped: this user can't make network namespaces: {reason}");
        return;
    }
    let output = Command::new("unshare")
        .args(&unshare)
        // In a session of its own, no signal to the processes around it resumes a stopped one.
        .args(["setsid", "sh", "-c", PREPARE])
        .arg(env::current_exe().expect("the test is a file"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("util-linux is installed");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "{test} failed inside: {}",
        output.status
    );
}

/// Makes and forgets a network, or says why it can't.
fn permission(unshare: &[&str]) -> Result<(), String> {
    let try_out = PREPARE.replace(
        "exec \"$0\" \"$@\"",
        "ip link add br0 type bridge && ip netns add a",
    );
    let tried = output_of("unshare", &[unshare, &["sh", "-c", &try_out]].concat());
    if tried.code == Some(0) {
        Ok(())
    } else {
        Err(tried.to_string())
    }
}

/// A bridge with hosts. The test itself has the address 198.18.0.1, in the range for tests of networks
/// (RFC 2544).
pub struct World {
    hosts: Cell<u8>,
}

/// The address of the test.
pub const HERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

impl World {
    fn new() -> Self {
        ip("link add br0 type bridge");
        ip(&format!("address add {HERE}/24 dev br0"));
        ip("link set br0 up");
        Self {
            hosts: Cell::new(1),
        }
    }

    /// One more host.
    pub fn host(&self) -> Host {
        let number = self.hosts.get() + 1;
        self.hosts.set(number);
        let host = Host {
            name: format!("h{number}"),
            address: Ipv4Addr::new(198, 18, 0, number),
        };
        let Host { name, address } = &host;
        ip(&format!("netns add {name}"));
        ip(&format!(
            "link add {name} type veth peer name eth0 netns {name}"
        ));
        ip(&format!("link set {name} master br0 up"));
        ip(&format!("-n {name} address add {address}/24 dev eth0"));
        ip(&format!("-n {name} link set lo up"));
        ip(&format!("-n {name} link set eth0 up"));
        host
    }
}

/// A machine of this network.
#[derive(Clone, Debug)]
pub struct Host {
    name: String,
    pub address: Ipv4Addr,
}

impl Host {
    /// Words of a shell that runs `exec`'s arguments here, as the same process.
    pub fn exec(&self) -> String {
        format!("exec nsenter --net=/run/netns/{}", self.name)
    }

    /// A program that runs here.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name));
        command.arg(program);
        command
    }

    /// From now on, all packets to `other` get lost, silently.
    pub fn lose_packets_to(&self, other: &Self) {
        let Self { name, .. } = self;
        let to = other.address;
        ip(&format!(
            "-n {name} neighbour replace {to} lladdr {NOWHERE} dev eth0 nud permanent"
        ));
    }

    /// No packet passes between the two any more.
    pub fn part_from(&self, other: &Self) {
        self.lose_packets_to(other);
        other.lose_packets_to(self);
    }

    /// Packets pass again, in both directions.
    pub fn join(&self, other: &Self) {
        for (from, to) in [(self, other), (other, self)] {
            // It may not know the other, which is as good.
            let to = to.address.to_string();
            let words = ["-n", &from.name, "neighbour", "delete", &to, "dev", "eth0"];
            output_of("ip", &words);
        }
    }
}

#[track_caller]
fn ip(words: &str) {
    let words: Vec<_> = words.split(' ').collect();
    let output = output_of("ip", &words);
    assert_eq!(output.code, Some(0), "ip {words:?}: {output}");
}
