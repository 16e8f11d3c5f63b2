//! The section "Where to add" of docs/architecture.md names files that exist, and what is in them.

use std::fs;
use std::path::{Path, PathBuf};

/// The rows of the section's tables, and the items of its lists.
fn rows() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/architecture.md")).expect("the page is there");
    let mut sections = page.split("\n## ");
    let section = sections.find(|part| part.starts_with("Where to add"));
    let section = section.expect("the page has a section \"Where to add\"");
    let mut rows = vec![String::new()];
    for line in section.lines() {
        // The further lines of an item are indented.
        if line.starts_with("  ") {
            rows.last_mut().expect("a row").push_str(line);
        } else {
            rows.push(line.to_owned());
        }
    }
    rows
}

/// The texts of a row in backticks, without those that are code of several words.
fn in_backticks(row: &str) -> impl Iterator<Item = &str> {
    let texts = row.split('`').skip(1).step_by(2);
    texts.filter(|text| !text.contains(' ') && *text != "src/")
}

/// Where a text is, if it is a path: with a slash, or with the ending of a source file.
fn path(text: &str) -> Option<PathBuf> {
    let folders = ["crates/", "docs/", "tests/"];
    let is_outside = folders.iter().any(|folder| text.starts_with(folder));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(if is_outside { "" } else { "src" });
    (text.contains('/') || text.ends_with(".rs")).then(|| folder.join(text))
}

/// True if a file, or one in a folder, has the name as a word.
fn has_name(path: &Path, name: &str) -> bool {
    if path.is_dir() {
        let mut entries = fs::read_dir(path).expect("a folder");
        return entries.any(|entry| has_name(&entry.expect("an entry").path(), name));
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.split(|letter| !is_part(letter))
        .any(|word| word == name)
}

#[test]
fn every_file_that_is_named_exists() {
    let rows = rows();
    let named = rows.iter().flat_map(|row| in_backticks(row));
    let paths: Vec<_> = named.filter_map(path).collect();
    assert!(paths.len() > 50, "the section names {} paths", paths.len());
    let missing: Vec<_> = paths.iter().filter(|path| !path.exists()).collect();
    assert!(
        missing.is_empty(),
        "named in docs/architecture.md, but not there: {missing:?}"
    );
}

#[test]
fn every_name_is_in_a_file_of_its_row() {
    let rows = rows();
    let mut looked_for = 0;
    let missing = rows.iter().flat_map(|row| {
        let paths: Vec<_> = in_backticks(row).filter_map(path).collect();
        let names = in_backticks(row).filter(|text| path(text).is_none());
        let names: Vec<_> = names.collect();
        looked_for += names.len();
        let is_missing = |name: &&str| !paths.iter().any(|path| has_name(path, name));
        names.into_iter().filter(is_missing).collect::<Vec<_>>()
    });
    let missing: Vec<_> = missing.collect();
    assert_eq!(
        missing, [""; 0],
        "named in docs/architecture.md, but not in a file of the row"
    );
    assert!(looked_for > 15, "the section names {looked_for} things");
}
