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

#[test]
fn the_fuzzer_runs_the_crates_that_are_shipped() {
    let shipped = packages("Cargo.lock");
    let names: BTreeSet<_> = shipped.iter().map(|(name, _)| name).collect();
    let fuzzed = packages("fuzz/Cargo.lock");
    let fuzzed: Vec<_> = fuzzed
        .iter()
        .filter(|(name, _)| names.contains(name))
        .collect();
    assert!(fuzzed.len() > 200, "{} crates", fuzzed.len());
    let others: Vec<_> = fuzzed
        .iter()
        .filter(|one| !shipped.contains(**one))
        .collect();
    assert!(
        others.is_empty(),
        "copy Cargo.lock to fuzz/, and run scripts/fuzz: {others:?}"
    );
}
