//! Completions and manual pages cover the commands that `--help` lists.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::client::run;

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");

/// The commands of `sluicegate --help`.
fn commands() -> Vec<String> {
    let help = run(BINARY, &["--help"]).stdout;
    let list = help.split("Commands:\n").nth(1).expect("a list");
    let lines = list.lines().take_while(|line| !line.is_empty());
    let commands = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands = commands.filter(|name| !matches!(*name, "" | "help"));
    commands.map(str::to_owned).collect()
}

#[test]
fn each_shell_gets_a_script_with_all_commands() {
    let commands = commands();
    assert!(commands.len() >= 12, "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = run(BINARY, &["completions", shell]);
        assert_eq!(script.code, Some(0), "{script}");
        for name in &commands {
            assert!(script.stdout.contains(name.as_str()), "{shell}: {name}");
        }
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let complete = "eval \"$($0 completions bash)\"
        try() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
            _sluicegate sluicegate \"${@: -1}\" \"${@: -2:1}\"; echo \"${COMPREPLY[@]}\"; }
        try sluicegate heal; try sluicegate check --deny";
    let completed = run("bash", &["-c", complete, BINARY]);
    assert_eq!(
        completed.stdout, "healthcheck\n--deny-warnings\n",
        "{completed}"
    );
}

#[test]
fn each_command_has_a_manual_page() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let pages = dir.path().join("share/man1");
    let written = run(BINARY, &["man", pages.to_str().expect("a plain path")]);
    assert_eq!(written.code, Some(0), "{written}");
    for name in commands() {
        let page = fs::read_to_string(pages.join(format!("sluicegate-{name}.1")));
        let page = page.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    assert!(pages.join("sluicegate.1").exists());
    assert!(pages.join("sluicegate-keys-lookup.1").exists());
    let file = dir.path().join("file");
    fs::write(&file, "").expect("the directory is writable");
    let mut command = Command::new(BINARY);
    let refused = command
        .arg("man")
        .arg(&file)
        .stderr(Stdio::piped())
        .output();
    let refused = refused.expect("the binary starts");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("cannot write: "), "{told}");
}
