//! The command line as shells and supervisors use it: options that exclude each other, closed
//! outputs.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::support::client::{get, run};
use crate::support::gateway::with_free_ports;
use crate::support::{DEADLINE, wait_for};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

fn sluicegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command.args(arguments).env_remove("SLUICEGATE_CONFIG");
    command
}

#[test]
fn an_address_beside_a_file_is_a_usage_error() {
    for option in [
        ["--listen", "127.0.0.1:0"],
        ["--admin", "127.0.0.1:0"],
        ["--key", "client_ip"],
        ["--limit", "1/1s"],
        ["--upstream", "echo"],
    ] {
        let arguments = ["run", "--config", "/dev/null", option[0], option[1]];
        let output = sluicegate(&arguments).output().expect("the binary starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{option:?}: {said}");
        assert!(said.contains("cannot be used with"), "{option:?}: {said}");
    }
}

#[test]
fn a_wrong_value_of_an_option_is_reported_at_the_option() {
    let right = [
        ("--upstream", "http://127.0.0.1:1"),
        ("--limit", "5/1s"),
        ("--key", "client_ip"),
        ("--listen", "127.0.0.1:0"),
        ("--admin", "127.0.0.1:0"),
    ];
    for (option, wrong, said) in [
        ("--upstream", "127.0.0.1:1", "start with `http://`"),
        ("--limit", "5rps", "`5rps` has no window"),
        ("--limit", "five", "`five`"),
        ("--key", "foo:bar", "known parts: `client_ip`"),
        ("--listen", "nowhere", "`nowhere`"),
        ("--admin", "nowhere", "`nowhere`"),
    ] {
        let values = right.map(|(name, value)| [name, if name == option { wrong } else { value }]);
        let arguments = [&["run"], values.as_flattened()].concat();
        let output = sluicegate(&arguments).output().expect("the binary starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        let place = format!(" --> {option}\n");
        assert!(told.contains(said) && told.contains(&place), "{told}");
        assert!(
            !told.contains("routes[0]") && told.contains("error: "),
            "{told}"
        );
    }
}

#[test]
fn a_forgotten_option_or_method_is_named() {
    for (arguments, said) in [
        (
            &["run", "gate.yaml"][..],
            "sluicegate run --config gate.yaml",
        ),
        (&["gate.yaml"], "sluicegate run --config gate.yaml"),
        (&["reload"], "kill -HUP $(pidof sluicegate)"),
        (&["start"], "sluicegate run --config FILE"),
        (&["stop"], "kill $(pidof sluicegate)"),
        (&["validate"], "sluicegate check FILE"),
        (&["explain", "http://a/"], "the method comes first"),
    ] {
        let output = sluicegate(arguments).output().expect("the binary starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(said), "{told}");
    }
    let output = sluicegate(&["chekc"]).output().expect("the binary starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("'check'") && !told.contains("--config"),
        "{told}"
    );
}

#[test]
fn commands_that_judge_a_configuration_fail_without_one() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("log"), "\n").expect("the directory is writable");
    for arguments in [
        "check",
        "check --format json",
        "check --format sarif",
        "explain POST http://localhost/login --expect allowed",
        "replay log",
        "status",
    ] {
        let arguments: Vec<_> = arguments.split(' ').collect();
        let mut command = sluicegate(&arguments);
        let output = command.current_dir(dir.path()).output();
        let output = output.expect("the binary starts");
        assert!(!output.status.success(), "{output:?}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(
            said.contains("neither ./sluicegate.yaml nor /etc/sluicegate/sluicegate.yaml exists"),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn commands_with_a_closed_stdout_end_with_their_own_exit_code() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let sound = "routes: [{ upstream: echo }]\n";
    for (name, text) in [
        ("sound.yaml", sound),
        ("wrong.yaml", "routes: [{}]\n"),
        ("log", "\n"),
    ] {
        fs::write(dir.path().join(name), text).expect("the directory is writable");
    }
    for (code, arguments) in [
        (0, "check sound.yaml"),
        (0, "check sound.yaml --against sound.yaml"),
        (0, "check --explain unused"),
        (1, "check wrong.yaml sound.yaml"),
        (1, "run --config wrong.yaml"),
        (1, "replay log --config wrong.yaml"),
        (2, "replay nothing --config sound.yaml"),
        (0, "explain GET http://a/ --config sound.yaml"),
        (1, "explain GET http://a/ --config wrong.yaml"),
        (2, "explain GET http://[ --config sound.yaml"),
        (0, "schema"),
    ] {
        let arguments: Vec<_> = arguments.split(' ').collect();
        let mut command = sluicegate(&arguments);
        let nobody = || {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            writer
        };
        let status = command
            .current_dir(dir.path())
            .stdout(nobody())
            .stderr(nobody())
            .status();
        let status = status.expect("the binary starts");
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("it is our child");
        self.0.wait().expect("it is our child");
    }
}

/// Waits for the next line, or the end.
fn wait_until_readable(log: &BufReader<ChildStderr>) {
    if !log.buffer().is_empty() {
        return;
    }
    let mut pipe = [PollFd::new(log.get_ref(), PollFlags::IN)];
    let deadline = Timespec::try_from(DEADLINE).expect("seconds");
    let ready = poll(&mut pipe, Some(&deadline)).expect("a pipe can be polled");
    assert!(ready > 0, "nothing is logged within {DEADLINE:?}");
}

/// A proxy that echoes, the addresses of its two listeners, and its log from then on.
fn logging_to_a_pipe(dir: &Path, level: &str) -> (Running, [SocketAddr; 2], impl Read) {
    let text =
        with_free_ports("shutdown: { delay: 0s }\nworkers: 1\nroutes: [{ upstream: echo }]\n");
    fs::write(dir.join("sluicegate.yaml"), text).expect("the directory is writable");
    let mut command = sluicegate(&["run", "--config", "sluicegate.yaml"]);
    command.current_dir(dir).stderr(Stdio::piped());
    command.env("SLUICEGATE_LOG", level);
    let mut process = Running(command.spawn().expect("the binary starts"));
    let mut log = BufReader::new(process.0.stderr.take().expect("stderr is a pipe"));

    let address = |of: &str| -> SocketAddr {
        let mut line = String::new();
        while !line.contains(of) {
            line.clear();
            wait_until_readable(&log);
            log.read_line(&mut line).expect("the log is text");
            assert!(!line.is_empty(), "it ends before {of}");
        }
        let address = line.split_once("address=").expect("it has an address").1;
        let address = address.split_whitespace().next();
        address
            .and_then(|text| text.parse().ok())
            .expect("it is one")
    };
    let addresses = ["admin listening", "listening"].map(address);
    wait_for("/readyz", || {
        (get(addresses[0], "/readyz").status == 200).then_some(())
    });
    (process, addresses, log)
}

#[test]
fn the_proxy_keeps_running_without_a_reader_of_its_log() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (mut process, [admin, listener], log) = logging_to_a_pipe(dir.path(), "info");
    drop(log);

    // What follows would be logged.
    let pid = Pid::from_child(&process.0);
    fs::write(dir.path().join("sluicegate.yaml"), "nonsense").expect("the directory is writable");
    kill_process(pid, Signal::HUP).expect("the process lives");
    wait_for("the reload", || {
        let metrics = get(admin, "/metrics").text();
        let failed = !metrics.contains("sluicegate_config_reloads_total{result=\"failure\"} 0");
        failed.then_some(())
    });
    assert_eq!(get(listener, "/").status, 200);
    kill_process(pid, Signal::TERM).expect("the process lives");
    let status = wait_for("the end", || process.0.try_wait().expect("it is our child"));
    assert!(status.success(), "{status}");
}

#[test]
fn no_request_waits_for_the_reader_of_the_log() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (mut process, [_, listener], mut log) = logging_to_a_pipe(dir.path(), "debug");
    // Each connection of HTTP/2 takes some 2 KiB in the log: far more than a pipe holds.
    let url = format!("http://{listener}/");
    let options = "-s -m 20 -o /dev/null -w %{http_code} --http2-prior-knowledge";
    let arguments: Vec<_> = options.split(' ').chain([&*url]).collect();
    for _ in 0..100 {
        let answered = run("curl", &arguments);
        assert_eq!(answered.stdout, "200", "{answered}");
    }
    let pid = Pid::from_child(&process.0);
    kill_process(pid, Signal::TERM).expect("the process lives");
    let status = wait_for("the end", || process.0.try_wait().expect("it is our child"));
    assert!(status.success(), "{status}");
    let mut unread = Vec::new();
    log.read_to_end(&mut unread)
        .expect("it is there to be read");
    assert!(unread.len() > 32 << 10, "{} bytes", unread.len());
    assert_eq!(unread.last(), Some(&b'\n'), "no line is cut");
}
