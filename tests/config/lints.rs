//! Warnings as `check` shows and explains them.

use std::path::PathBuf;
use std::process::{Command, Output};

const PAGE: &str = include_str!("../../docs/lints.md");

/// The sections of the page, each with its code.
fn sections() -> Vec<(&'static str, &'static str)> {
    let sections = PAGE.split("\n## ").skip(1);
    sections
        .map(|section| {
            let (title, text) = section.split_once('\n').expect("a title");
            (title.trim_matches('`'), text)
        })
        .collect()
}

fn check(arguments: &[&str]) -> Output {
    let binary = env!("CARGO_BIN_EXE_sluicegate");
    let output = Command::new(binary).arg("check").args(arguments).output();
    output.expect("the binary starts")
}

fn fixture(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/fixtures/config")
        .join(name)
        .display()
        .to_string()
}

#[test]
fn check_shows_the_code_and_the_memory_and_succeeds() {
    let output = check(&[&fixture("lints/forgeable-key.yaml")]);
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success());
    assert!(err.contains("warning[forgeable-key]: "), "{err}");
    assert!(
        out.ends_with("usable; its buckets take up to 44 MiB\n"),
        "{out}"
    );

    let output = check(&[&fixture("valid/smallest.yaml")]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(
        out.contains("smallest.yaml: sound; its buckets take up to "),
        "{out}"
    );

    let output = check(&[&fixture("invalid/names.yaml")]);
    assert_eq!(
        (output.status.code(), output.stdout.is_empty()),
        (Some(1), true)
    );
}

#[test]
fn check_explains_every_code() {
    for (code, text) in sections() {
        let output = check(&["--explain", code]);
        assert!(output.status.success());
        let explained = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            explained.trim_end(),
            format!("`{code}`\n{}", text.trim_end())
        );
    }
    assert_eq!(check(&["--explain", "nonsense"]).status.code(), Some(2));
}

#[test]
fn explain_says_which_buckets_are_in_redis_and_no_password() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let path = directory.path().join("sluicegate.yaml");
    let text = "store: { redis: { url: redis://bob:hunter2@a, secret: hunter2 and some more } }\n\
                limits: [{ quota: 100/1s, store: redis }, { quota: 500/1m }, { quota: 5000/1h, store: redis, sync: 250ms }]\nroutes: [{ upstream: echo }]\n";
    std::fs::write(&path, text).expect("the directory is writable");
    let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(["explain", "GET", "http://localhost/", "--config"])
        .arg(&path)
        .output()
        .expect("the binary starts");
    let out = String::from_utf8_lossy(&output.stdout);
    let stores: Vec<_> = out
        .lines()
        .filter(|line| line.starts_with("  store"))
        .collect();
    let synchronised = "  store   memory, synchronised through redis every 250ms";
    assert_eq!(stores, ["  store   redis", synchronised], "{out}");
    assert!(!format!("{output:?}").contains("hunter2"), "{output:?}");
}
