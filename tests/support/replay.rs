//! Runs `sluicegate replay` over a log and a configuration in a directory of their own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A configuration and a log in a directory of their own.
pub struct Replay {
    pub dir: TempDir,
    pub log: PathBuf,
}

impl Replay {
    pub fn new(config: &str, log: impl AsRef<[u8]>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("access.log");
        fs::write(&path, log).expect("the directory is writable");
        fs::write(dir.path().join("sluicegate.yaml"), config).expect("the directory is writable");
        Replay { dir, log: path }
    }

    pub fn run(&self, options: &[&str]) -> Output {
        replay(&self.log, &self.dir.path().join("sluicegate.yaml"), options)
    }

    #[track_caller]
    pub fn decisions(&self, options: &[&str]) -> Vec<Value> {
        decisions(&self.run(&[&["--decisions"], options].concat()))
    }

    #[track_caller]
    pub fn report(&self, options: &[&str]) -> Value {
        let output = self.run(&[&["--json"], options].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("a report")
    }

    #[track_caller]
    pub fn text(&self) -> String {
        let output = self.run(&[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }
}

pub fn replay(log: &Path, config: &Path, options: &[&str]) -> Output {
    let arguments = [
        OsStr::new("replay"),
        log.as_os_str(),
        OsStr::new("--config"),
    ];
    command(arguments)
        .arg(config)
        .args(options)
        .output()
        .expect("the binary starts")
}

pub fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command.args(arguments).env_remove("SLUICEGATE_CONFIG");
    command
}

#[track_caller]
pub fn decisions(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = output.stdout.split_inclusive(|&byte| byte == b'\n');
    lines
        .map(|line| serde_json::from_slice(line).expect("a JSON line"))
        .collect()
}

#[track_caller]
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// A JSON line; `more` begins with a comma.
pub fn line(time: &str, path: &str, more: &str) -> String {
    format!(
        "{{\"time\":{time},\"client_ip\":\"192.0.2.7\",\"method\":\"GET\",\"path\":\"{path}\"{more}}}\n"
    )
}
