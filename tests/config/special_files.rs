//! Pipes as files: a pipe without another end keeps neither a command nor the proxy waiting, and
//! one with another end works.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::support::client::{Output, get, run};
use crate::support::gateway::Gateway;
use crate::support::wait_for;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");
const ECHO: &str = "shutdown: { delay: 0s }\nroutes: [{ upstream: echo }]\n";

/// A directory with a configuration, `c.yaml`, and a pipe, `pipe`.
fn directory(config: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("c.yaml"), config).expect("written");
    let path = directory.path().join("pipe");
    pipe(&path);
    (directory, path)
}

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
}

/// Runs a script of bash in a directory, for at most 60 s; `$0` is the program.
fn shell(directory: &TempDir, script: &str) -> Output {
    let path = directory.path().to_str().expect("a text path");
    let script = format!("cd {path}; {script}");
    run("timeout", &["60", "bash", "-c", &script, BINARY])
}

#[test]
fn a_configuration_in_a_pipe_without_a_writer_is_refused() {
    let (directory, _) = directory(ECHO);
    for command in [
        "check pipe",
        "run --config pipe",
        "explain GET / --config pipe",
    ] {
        let output = shell(&directory, &format!("$0 {command}"));
        assert_eq!(output.code, Some(1), "{output}");
        assert!(
            output.stderr.contains("it is a pipe without a writer"),
            "{output}"
        );
    }
}

#[test]
fn a_configuration_that_a_command_writes_is_read() {
    let (directory, _) = directory(ECHO);
    for script in [
        "$0 check <(cat c.yaml)",
        "$0 check <(sleep 0.2; cat c.yaml)",
        "cat c.yaml | $0 check /dev/stdin",
        "$0 check /dev/stdin < c.yaml",
        "cat c.yaml > pipe & $0 check pipe; wait",
    ] {
        let output = shell(&directory, script);
        assert_eq!(output.code, Some(0), "{script}: {output}");
    }
}

#[test]
fn a_log_is_replayed_from_a_pipe_however_it_is_named() {
    let (directory, _) = directory(ECHO);
    let line = r#"1.2.3.4 - - [10/Oct/2025:13:55:36 +0000] "GET / HTTP/1.1" 200 1 "-" "-""#;
    let lines = [line; 3].join("\n");
    fs::write(directory.path().join("log"), format!("{lines}\n")).expect("written");
    for script in [
        "$0 replay log --config c.yaml",
        "$0 replay <(cat log) --config c.yaml",
        "$0 replay <(head -1 log; sleep 0.2; tail -2 log) --config <(cat c.yaml)",
        "$0 replay - --config c.yaml < log",
        "cat log | $0 replay - --config c.yaml",
        "cat log | $0 replay /dev/stdin --config c.yaml",
        "(sleep 0.2; cat log) > pipe & $0 replay pipe --config c.yaml; wait",
    ] {
        let output = shell(&directory, script);
        let says_three = output.stdout.contains("3 requests");
        assert!(output.code == Some(0) && says_three, "{script}: {output}");
    }
}

#[test]
fn other_files_may_not_be_pipes_without_a_writer() {
    for config in [
        "listeners: [{ address: \"127.0.0.1:0\", tls: { certificates: [{ certificate: pipe, key: pipe }] } }]
routes: [{ upstream: echo }]\n",
        "upstreams: { a: { endpoints: [\"https://localhost\"], tls: { ca: pipe } } }\nroutes: [{ upstream: a }]\n",
        "store: { redis: { url: \"rediss://localhost\", tls: { ca: pipe } } }
policies: { a: { quota: 1/1m, store: redis } }\nroutes: [{ upstream: echo, limits: [a] }]\n",
        "jwt: { keys: [{ jwks_file: pipe }] }
policies: { a: { quota: 1/1m, key: \"jwt:sub\" } }\nroutes: [{ upstream: echo, limits: [a] }]\n",
    ] {
        let (directory, _) = directory(config);
        let output = shell(&directory, "$0 check c.yaml");
        assert_eq!(output.code, Some(1), "{output}");
        assert!(output.stderr.contains("it is a pipe without a writer"), "{output}");
    }
}

#[test]
fn an_access_log_in_a_pipe_without_a_reader_stops_the_start_with_the_reason() {
    let config = format!(
        "access_log: {{ path: pipe }}\nadmin: {{ address: \"127.0.0.1:0\" }}\nlisteners: [{{ address: \"127.0.0.1:0\" }}]\n{ECHO}"
    );
    let (directory, _) = directory(&config);
    let output = shell(&directory, "$0 run --config c.yaml");
    assert_eq!(output.code, Some(1), "{output}");
    assert!(
        output.stderr.contains("it is a pipe without a reader"),
        "{output}"
    );
}

#[test]
fn a_reload_refuses_a_log_pipe_without_a_reader_and_writes_to_one_with_a_reader() {
    let mut gateway = Gateway::start(ECHO);
    let path = gateway.dir().join("pipe");
    pipe(&path);
    let config = format!("access_log: {{ path: \"{}\" }}\n{ECHO}", path.display());
    gateway.replace_config(&config);
    gateway.wait_for_log("it is a pipe without a reader");
    assert_eq!(get(gateway.address(), "/").status, 200);

    let name = path.clone();
    let reader = thread::spawn(move || {
        let mut line = String::new();
        let pipe = OpenOptions::new().read(true).open(name).expect("a writer");
        BufReader::new(pipe).read_line(&mut line).expect("a line");
        line
    });
    wait_for("the reload", || {
        gateway.signal(Signal::HUP);
        (gateway.reloads("success") > 0).then_some(())
    });
    get(gateway.address(), "/line");
    let line = reader.join().expect("it reads");
    assert!(line.contains("\"path\":\"/line\""), "{line}");
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
}

/// A pipe with a silent writer: reads wait for long.
fn silent_pipe(path: &Path) -> fs::File {
    pipe(path);
    // Opening it for both directions does not wait: fifo(7).
    let both = OpenOptions::new().read(true).write(true).open(path);
    both.expect("a pipe")
}

#[test]
fn a_reload_that_waits_keeps_no_signal_from_ending_the_proxy() {
    let mut gateway = Gateway::start(ECHO);
    let path = gateway.dir().join("pipe");
    let mut writer = silent_pipe(&path);
    writer.write_all(b"routes:").expect("written");
    fs::rename(&path, gateway.config_path()).expect("renamed");
    gateway.signal(Signal::HUP);
    // The reader has emptied the pipe.
    wait_for("the reload to begin", || {
        (rustix::io::ioctl_fionread(&writer).expect("a pipe") == 0).then_some(())
    });
    assert_eq!(get(gateway.address(), "/").status, 200);
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
}

#[test]
fn a_start_that_waits_is_ended_by_a_signal() {
    let (directory, path) = directory(ECHO);
    fs::remove_file(&path).expect("removed");
    let mut writer = silent_pipe(&path);
    writer.write_all(b"routes:").expect("written");
    let mut command = Command::new(BINARY);
    command.current_dir(directory.path());
    command
        .args(["run", "--config", "pipe"])
        .stderr(Stdio::null());
    let mut process = command.spawn().expect("the binary starts");
    wait_for("the start to begin", || {
        (rustix::io::ioctl_fionread(&writer).expect("a pipe") == 0).then_some(())
    });
    let pid = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(pid, Signal::TERM).expect("it lives");
    let status = wait_for("the end", || process.try_wait().expect("our child"));
    assert!(status.success(), "{status}");
}

#[test]
fn a_snapshot_takes_the_place_of_files_only() {
    let mut gateway = Gateway::start(ECHO);
    let path = gateway.dir().join("pipe");
    pipe(&path);
    gateway.reload(&format!(
        "store: {{ memory: {{ snapshot: {{ path: \"{}\" }} }} }}\n{ECHO}",
        path.display()
    ));
    gateway.wait_for_log("buckets cannot be saved");
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
    let kind = fs::metadata(&path).expect("it is there").file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind));
}
