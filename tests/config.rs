//! Configurations as files: those in `valid/` load, those in `invalid/` give the report in the
//! `.txt` beside them. A new case is a new file; `UPDATE_EXPECTED=1` writes the reports.
//!
//! Comments at the top of a file set it up: `# env: NAME=value` sets a variable, and
//! `# schema: rejects` says that the JSON Schema already finds the mistake.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sluicegate::config::{self, Loaded, Report};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn fixtures(kind: &str) -> Vec<PathBuf> {
    let directory = root().join("tests/fixtures/config").join(kind);
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .expect("the fixtures are there")
        .map(|entry| entry.expect("the directory can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn name(path: &Path) -> String {
    path.file_name().expect("it is a file").to_string_lossy().into_owned()
}

fn parse(path: &Path) -> Result<Loaded, Report> {
    let text = read(path);
    let variables: HashMap<_, _> = text
        .lines()
        .filter_map(|line| line.trim_start_matches('\u{feff}').strip_prefix("# env: ")?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    config::parse(&name(path), text, &|name| variables.get(name).cloned())
}

#[test]
fn valid_files_load_without_warnings() {
    for path in fixtures("valid") {
        match parse(&path) {
            Ok(loaded) => assert!(loaded.warnings.problems.is_empty(), "{}", loaded.warnings),
            Err(report) => panic!("{report}"),
        }
    }
}

#[test]
fn invalid_files_give_the_expected_report() {
    let mut wrong = Vec::new();
    for path in fixtures("invalid") {
        let report = match parse(&path) {
            Ok(loaded) => loaded.warnings,
            Err(report) => report,
        };
        let found = format!("{report}\n");
        let expected = path.with_extension("txt");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&expected, found).expect("the fixtures can be written");
        } else if std::fs::read_to_string(&expected).ok().as_ref() != Some(&found) {
            wrong.push(format!("{}:\n{found}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
