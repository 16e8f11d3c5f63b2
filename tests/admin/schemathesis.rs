//! The whole API, driven by Schemathesis from its OpenAPI document: no answer is a server error, and
//! each is one that the document has.
//!
//! `scripts/test` installs Schemathesis into the target directory (`scripts/schemathesis`).

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::admin::{READER, TOKENS, WRITER};
use crate::support::gateway::Gateway;
use crate::support::now;

/// The simplest text of one character is `0`, so that generated requests often name these.
const CONFIG: &str = "upstreams: { \"0\": { endpoints: [http://127.0.0.1:9] } }
policies:
  \"0\": { key: constant, quota: 5/300d, penalty: { strikes: 2, within: 1m, for: [1m] } }
  per-key: { key: \"header:x-key\", quota: 2/300d, mode: shadow }
  slots: { algorithm: concurrency, max: 3 }
  off: { quota: 1/1h, mode: disabled }
routes:
  - { name: items, match: { path: \"/items/{id}\", methods: [GET] }, upstream: \"0\", limits: [\"0\", per-key, slots] }
  - { upstream: echo }
";

/// The longest run on a busy machine. One minute is usual:
/// streams are read for two seconds each.
const LONGEST: Duration = Duration::from_secs(300);

/// The program that `scripts/schemathesis` installs.
fn schemathesis() -> PathBuf {
    let temporary = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let target = temporary.parent().expect("it is in the target directory");
    let program = target.join("schemathesis/bin/schemathesis");
    assert!(
        program.exists(),
        "{} is missing: ./scripts/schemathesis installs it (./scripts/test does so)",
        program.display()
    );
    program
}

/// Waits until it ends.
#[track_caller]
fn end_of(child: &mut Child) -> ExitStatus {
    let started = now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if started.elapsed() > LONGEST {
            child.kill().expect("a child");
            panic!("Schemathesis does not end within {LONGEST:?}");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Sends up to 800 requests with this token, the same each time.
#[track_caller]
fn drive(token: &str, phases: &str) {
    let gateway = Gateway::start(&format!("{TOKENS}{CONFIG}"));
    let report = gateway.dir().join("report");
    let output = fs::File::create(&report).expect("the directory is writable");
    let settings = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/admin/schemathesis.toml");
    let mut child = Command::new(schemathesis())
        .current_dir(gateway.dir())
        .args(["--config-file", settings, "run"])
        .arg(format!("http://{}/v1/openapi.json", gateway.admin))
        .args(["-H", &format!("Authorization: Bearer {token}")])
        // Many wrong tokens from one address get 429 instead of 401. openapi.rs asks each operation without one.
        .args(["--checks", "all", "--exclude-checks", "ignored_auth"])
        .args(["--phases", phases, "--max-examples", "8"])
        .args(["--seed", "1", "--generation-database", "none"])
        .args(["--workers", "1", "--request-timeout", "10"])
        .args([
            "--continue-on-failure",
            "--no-shrink",
            "--no-color",
            "--warnings",
            "off",
        ])
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("another handle"))
        .stderr(output)
        .spawn()
        .expect("Schemathesis starts");
    let status = end_of(&mut child);
    let report = fs::read_to_string(&report).expect("a report");
    // A failure shows the request, which may be long.
    let lines = report.lines().map(|line| line.chars().take(500).collect());
    let lines: Vec<String> = lines.collect();
    assert!(status.success(), "{}", lines.join("\n"));
    assert!(report.contains("No issues found"), "{}", lines.join("\n"));
}

#[test]
fn a_writer_meets_no_answer_that_the_document_lacks() {
    drive(WRITER, "coverage,fuzzing,stateful");
}

#[test]
fn a_reader_meets_no_answer_that_the_document_lacks() {
    drive(READER, "coverage,fuzzing");
}

#[test]
fn a_stranger_meets_no_answer_that_the_document_lacks() {
    drive("unknown", "fuzzing");
}
