//! Files that are no configuration, and the schema in the documentation, which `UPDATE_EXPECTED=1` writes.

use std::path::{Path, PathBuf};

use crate::support::client::run;

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_schema_in_the_documentation_is_current() {
    let path = root().join("docs/config.schema.json");
    let generated = run(BINARY, &["schema"]).stdout;
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, &generated).expect("docs/ can be written");
    }
    assert!(
        read(&path) == generated,
        "{} is old: run `sluicegate schema` again",
        path.display()
    );
}

#[test]
fn a_file_that_is_no_text_is_reported() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let file = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).expect("there is room for a file");
        path
    };
    let cases = [
        (
            directory.path().join("missing.yaml"),
            "there is no such file",
        ),
        (directory.path().to_owned(), "it is a directory"),
        (file("empty.yaml", b""), "the configuration is empty"),
        (
            file("latin-1.yaml", b"routes:\n- upstream: \xe9\n"),
            "it isn't UTF-8 text, from line 2 on",
        ),
        (
            file("large.yaml", &vec![b'#'; (16 << 20) + 1]),
            "it is larger than 16 MiB",
        ),
        (file("nul.yaml", b"routes: [\0]"), "unexpected character"),
    ];
    for (path, message) in cases {
        let checked = run(BINARY, &["check", path.to_str().expect("a text")]);
        assert_eq!(checked.code, Some(1), "{checked}");
        assert!(checked.stderr.contains(message), "{checked}");
        assert!(checked.stderr.ends_with("1 error\n"), "{checked}");
    }
}

/// A blank line ends a table; rows after it are shown as plain text.
#[test]
fn no_table_of_the_documentation_is_cut() {
    let text = read(&root().join("docs/configuration.md"));
    let lines: Vec<_> = text.lines().collect();
    let is_row = |line: &str| line.starts_with("| ");
    for (index, lines) in lines.windows(4).enumerate() {
        if let [before, "", row, next] = lines {
            // A table begins with its titles and a line below them.
            let is_cut = is_row(before) && is_row(row) && !next.starts_with("| ---");
            assert!(!is_cut, "line {}: {row}", index + 3);
        }
    }
}

#[test]
fn examples_pass_a_strict_check() {
    let files = std::fs::read_dir(root().join("examples")).expect("the folder is there");
    let files = files.map(|entry| entry.expect("it can be read").path());
    let examples = files.filter(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    for path in examples {
        let path = path.to_str().expect("a text");
        let checked = run(BINARY, &["check", "--deny-warnings", path]);
        assert_eq!(checked.code, Some(0), "{checked}");
    }
}
