//! A process that takes over from one that drains: it has all buckets and bans, and owns their file.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::admin::AdminClient;
use crate::support::client::{Connection, get, get_with};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step};
use crate::support::wait_for;

const TOKEN: &str = "reader-0123456789";
const KEYS: usize = 100;

/// A policy of one request for each `x-key`, whose second refusal bans for a day, on these addresses. `/slow` hangs.
fn config(listener: &str, admin: &str, snapshot: &Path, origin: &Origin) -> String {
    format!(
        "listeners: [{{ address: \"{listener}\" }}]
admin: {{ address: \"{admin}\", tokens: {{ read: [{TOKEN}] }} }}
shutdown: {{ delay: 1s, deadline: 1h }}
store: {{ memory: {{ snapshot: {{ path: \"{}\", every: 1d }} }} }}
policies:
  few: {{ key: header:x-key, quota: 1/1h, penalty: {{ strikes: 2, within: 1h, for: [1d] }} }}
routes:
  - {{ match: {{ path: /slow }}, upstream: \"{}\" }}
  - {{ upstream: echo, limits: [few] }}
",
        snapshot.display(),
        origin.url()
    )
}

fn start(config: &str) -> Gateway {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("sluicegate.yaml"), config).expect("the directory is writable");
    Gateway::start_with(dir, ["run", "--config", "sluicegate.yaml"])
}

/// The status of a request with this key, and the seconds after which it says to come back.
fn ask(address: SocketAddr, key: &str) -> (u16, u64) {
    let answer = get_with(address, "/", &format!("x-key: {key}\r\n"));
    let wait = answer.header("retry-after");
    let wait = wait.map_or(0, |seconds| seconds.parse().expect("seconds"));
    (answer.status, wait)
}

fn snapshot_in(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join("buckets")
}

fn problems(gateway: &Gateway) -> String {
    let status = AdminClient::new(gateway, TOKEN).read("/v1/status");
    status["problems"].to_string()
}

fn saves(gateway: &Gateway) -> u64 {
    let series = "sluicegate_snapshots_total{result=\"success\"}";
    gateway.metric(series).unwrap_or(0.0) as u64
}

#[test]
fn a_successor_on_the_freed_ports_has_every_charge_and_ban_and_keeps_the_file() {
    let origin = Origin::start(|_| vec![Step::Hang]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let snapshot = snapshot_in(&dir);
    let mut old = start(&config("127.0.0.1:0", "127.0.0.1:0", &snapshot, &origin));
    let (address, admin) = (old.address(), old.admin);
    let mut slow = Connection::open(address);
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("the slow request", || {
        (!origin.requests().is_empty()).then_some(())
    });
    for key in 0..KEYS {
        assert_eq!(ask(address, &key.to_string()).0, 200);
    }
    assert_eq!(ask(address, "0").0, 429, "the first strike");
    assert!(ask(address, "0").1 > 3_600, "banned");

    old.signal(Signal::TERM);
    // In the delay all is served and charged as before.
    assert_eq!(ask(address, "late").0, 200);
    wait_for("free ports", || {
        let refuses = |address| TcpStream::connect(address).is_err();
        (refuses(address) && refuses(admin)).then_some(())
    });
    let own = config(&address.to_string(), &admin.to_string(), &snapshot, &origin);
    let new = start(&own);
    assert!(old.is_running(), "it still has a request");
    assert!(ask(address, "0").1 > 3_600, "the ban holds");
    let refused = (1..KEYS).filter(|key| ask(address, &key.to_string()).0 == 429);
    assert_eq!(refused.count(), KEYS - 1);
    assert_eq!(ask(address, "late").0, 429);

    assert_eq!(ask(address, "new").0, 200);
    let saved = saves(&new);
    new.replace_config(&own.replace("every: 1d", "every: 23h"));
    wait_for("another save", || (saves(&new) > saved).then_some(()));
    assert_eq!(problems(&new), "[]");
    // The old one ends after the new one has saved.
    old.signal(Signal::TERM);
    old.wait();
    old.wait_for_log("another process saves buckets there now");
    new.signal(Signal::KILL);
    let mut new = new;
    new.wait();
    let third = start(&own);
    assert_eq!(ask(third.address(), "new").0, 429, "its file is its own");
    assert!(ask(third.address(), "0").1 > 3_600);
}

#[test]
fn without_a_successor_the_file_has_what_was_charged_at_the_end() {
    let origin = Origin::start(|_| vec![Step::Hang]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let snapshot = snapshot_in(&dir);
    let own = config("127.0.0.1:0", "127.0.0.1:0", &snapshot, &origin);
    let own = own.replace("deadline: 1h", "deadline: 20s");
    let mut old = start(&own);
    let address = old.address();
    // Connected, and served when listening has ended already.
    let mut before = Connection::open(address);
    old.signal(Signal::TERM);
    wait_for("a free port", || {
        TcpStream::connect(address).is_err().then_some(())
    });
    before.exchange("GET / HTTP/1.1\r\nHost: a\r\nx-key: last\r\n\r\n");
    assert!(old.wait().success());
    let new = start(&own);
    assert_eq!(ask(new.address(), "last").0, 429);
}

#[test]
fn two_processes_with_one_file_say_so_and_the_second_takes_it_over() {
    let origin = Origin::plain();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let snapshot = snapshot_in(&dir);
    let own = config("127.0.0.1:0", "127.0.0.1:0", &snapshot, &origin);
    let mut first = start(&own);
    wait_for("a save", || (saves(&first) > 0).then_some(()));
    let second = start(&own);
    second.wait_for_log("another process saves its buckets there");
    assert!(
        problems(&second).contains("another process owns"),
        "{}",
        problems(&second)
    );
    assert_eq!(saves(&second), 0);
    assert_eq!(ask(second.address(), "mine").0, 200);
    first.signal(Signal::INT);
    assert!(first.wait().success());
    wait_for("a save by the second", || {
        (saves(&second) > 0 && problems(&second) == "[]").then_some(())
    });
}

#[test]
fn a_process_whose_address_is_in_use_leaves_the_snapshot_alone() {
    let origin = Origin::plain();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let snapshot = snapshot_in(&dir);
    let first = start(&config("127.0.0.1:0", "127.0.0.1:0", &snapshot, &origin));
    wait_for("a save", || (saves(&first) > 0).then_some(()));
    fs::write(&snapshot, "not whole").expect("the directory is writable");
    let taken = first.address().to_string();
    let second = config(&taken, "127.0.0.1:0", &snapshot, &origin);
    fs::write(dir.path().join("second.yaml"), second).expect("the directory is writable");
    let path = dir.path().join("second.yaml");
    let output = crate::support::client::run(
        env!("CARGO_BIN_EXE_sluicegate"),
        &["run", "--config", path.to_str().expect("text")],
    );
    assert_ne!(output.code, Some(0));
    assert!(output.stderr.contains("address in use"), "{output}");
    let left = fs::read(&snapshot).expect("it is still there");
    assert_eq!(left, b"not whole");
    assert_eq!(get(first.address(), "/").status, 200);
}
