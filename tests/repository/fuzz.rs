//! The fuzzer is a package of its own, with a lock file of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The packages of a lock file.
fn packages(lock: &str) -> BTreeSet<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(lock);
    let text = fs::read_to_string(path).expect("readable");
    let value = |line: &str, key: &str| Some(line.strip_prefix(key)?.trim_matches('"').to_owned());
    let packages = text.split("[[package]]\n").skip(1).map(|package| {
        let mut lines = package.lines();
        let mut next = |key| {
            lines
                .next()
                .and_then(|line| value(line, key))
                .expect("its name")
        };
        (next("name = "), next("version = "))
    });
    packages.collect()
}

/// The packages that the manifest names.
fn dependencies() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = fs::read_to_string(path).expect("readable");
    let (_, rest) = manifest
        .split_once("\n[dependencies]\n")
        .expect("it has some");
    let lines = rest.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| {
        let (name, value) = line.split_once(" = ")?;
        let renamed = value.split_once("package = \"").map(|(_, rest)| rest);
        let renamed = renamed.and_then(|rest| rest.split('"').next());
        (!name.starts_with('#')).then(|| renamed.unwrap_or(name).to_owned())
    });
    names.collect()
}

#[test]
fn the_fuzzer_runs_the_crates_that_are_shipped() {
    let shipped = packages("Cargo.lock");
    let fuzzed = packages("fuzz/Cargo.lock");
    let named = dependencies();
    assert!(named.len() > 40, "{named:?}");
    let is_missing = |one: &&String| !fuzzed.iter().any(|(name, _)| name == *one);
    let missing: Vec<_> = named.iter().filter(is_missing).collect();
    assert!(
        missing.is_empty(),
        "run `cargo update --workspace` in fuzz/: {missing:?}"
    );
    let is_shipped = |one: &&(String, String)| shipped.iter().any(|(name, _)| *name == one.0);
    let shared: Vec<_> = fuzzed.iter().filter(is_shipped).collect();
    let others: Vec<_> = shared
        .iter()
        .filter(|one| !shipped.contains(**one))
        .collect();
    assert!(
        others.is_empty(),
        "in fuzz/, run `cargo update --precise` with their versions: {others:?}"
    );
}
