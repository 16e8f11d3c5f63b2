//! `sluicegate top`: text, JSON, a screen, and a proxy that does not answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::Signal;

use crate::support::admin::{READER, TOKENS};
use crate::support::client::{Output, get_with};
use crate::support::gateway::Gateway;
use crate::support::wait_for;

const CONFIG: &str = "policies:
  per-key: { key: \"header:x-key\", quota: 1/300d }
routes: [{ upstream: echo, limits: [per-key] }]
";

fn start() -> Gateway {
    let tokens = TOKENS.replace("tokens:", "keys: readable, tokens:");
    Gateway::start(&format!("{tokens}{CONFIG}"))
}

fn ask(gateway: &Gateway, times: usize) {
    for _ in 0..times {
        get_with(gateway.address(), "/", "x-key: alice\r\n");
    }
}

fn command(gateway: &Gateway, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command
        .arg("top")
        .args(["--admin", &gateway.admin.to_string()])
        .args(arguments)
        .current_dir(gateway.dir())
        .env_remove("SLUICEGATE_CONFIG")
        .env("SLUICEGATE_ADMIN_TOKEN", READER)
        .stdin(Stdio::null());
    command
}

fn top(gateway: &Gateway, arguments: &[&str]) -> Output {
    let output = command(gateway, arguments).output();
    let output = output.expect("the binary starts");
    Output {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    }
}

#[test]
fn one_table_shows_who_is_limited_most() {
    let gateway = start();
    ask(&gateway, 4);
    let once = top(&gateway, &["--once"]);
    assert_eq!(once.code, Some(0), "{once}");
    let row = once.stdout.lines().find(|line| line.starts_with("alice"));
    let row: Vec<_> = row.expect("a row").split_whitespace().collect();
    assert_eq!(row[..4], ["alice", "127.0.0.1", "per-key", "3"]);
    assert!(
        row[4].ends_with('s') && row[5] == "-",
        "for some seconds: {row:?}"
    );
    for part in ["no problems", "POLICY", "1/300d", "UPSTREAM", "built in"] {
        assert!(once.stdout.contains(part), "{part}: {once}");
    }
    assert!(!once.stdout.contains('\u{1b}'), "{once}");
    // Without a terminal one answer is usual.
    for once in [&["--once"][..], &[]] {
        let json = top(&gateway, &[once, &["--json", "--limit", "1"]].concat());
        let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
        assert_eq!(json["items"][0]["limited"], 3);
    }
    let both = top(&gateway, &["--once", "--follow"]);
    assert_eq!(both.code, Some(2), "{both}");
}

/// Ends a command that goes on.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn answers_follow_once_a_second_and_requests_are_counted_meanwhile() {
    let gateway = start();
    let mut command = command(&gateway, &["--follow", "--json", "--by", "busiest"]);
    let child = command.stdout(Stdio::piped()).spawn();
    let mut running = Running(child.expect("the binary starts"));
    let out = running.0.stdout.take().expect("stdout is a pipe");
    let mut lines = BufReader::new(out).lines();
    wait_for("a counted request", || {
        let line = lines.next()?.ok()?;
        let answer: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        ask(&gateway, 1);
        (answer["items"][0]["requests"].as_u64()? >= 2).then_some(())
    });
}

/// The screen of `top` in a terminal of 80 columns and 24 rows, which `script` makes.
#[test]
fn a_screen_follows_the_proxy_says_if_it_is_gone_and_ends_with_q() {
    let gateway = start();
    ask(&gateway, 4);
    let binary = env!("CARGO_BIN_EXE_sluicegate");
    let top = format!(
        "stty cols 80 rows 24; {binary} top --admin {}",
        gateway.admin
    );
    let mut command = Command::new("script");
    command
        .args(["-qec", &top, "/dev/null"])
        .env("SLUICEGATE_ADMIN_TOKEN", READER)
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut running = Running(command.spawn().expect("`script` starts"));
    let mut keys = running.0.stdin.take().expect("stdin is a pipe");
    let mut out = running.0.stdout.take().expect("stdout is a pipe");
    let shown = Arc::new(Mutex::new(String::new()));
    let writer = Arc::clone(&shown);
    thread::spawn(move || {
        let mut bytes = [0; 4_096];
        while let Ok(length @ 1..) = out.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            writer.lock().expect("no panic").push_str(&text);
        }
    });
    let wait_for_text = |part: &str| {
        wait_for(part, || {
            shown.lock().expect("no panic").contains(part).then_some(())
        });
    };
    for part in ["alice", "per-key", "problems", "built", "quit"] {
        wait_for_text(part);
    }
    gateway.signal(Signal::KILL);
    wait_for_text("again:");
    keys.write_all(b"q").expect("a key");
    let ended = wait_for("its end", || running.0.try_wait().expect("a child"));
    assert!(ended.success(), "{ended}");
    let shown = shown.lock().expect("no panic");
    assert!(
        !shown.contains("\u{1b}[3"),
        "no colours are wanted: {shown:?}"
    );
}

#[test]
fn wrong_questions_and_a_missing_proxy_are_told() {
    let gateway = start();
    let unknown = top(&gateway, &["--once", "--policy", "per-kei"]);
    assert_eq!(unknown.code, Some(1), "{unknown}");
    assert!(
        unknown.stderr.contains("did you mean `per-key`?"),
        "{unknown}"
    );
    for wrong in [["--window", "2m"], ["--limit", "0"], ["--by", "most"]] {
        assert_eq!(top(&gateway, &wrong).code, Some(2), "{wrong:?}");
    }
    // Port 9 has no listener.
    let nobody = top(&gateway, &["--once", "--config", "nothing.yaml"]);
    assert_eq!(nobody.code, Some(0), "the options name the proxy: {nobody}");
}
