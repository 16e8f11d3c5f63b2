//! The section "Where to add" of docs/architecture.md names files that exist.

use std::fs;
use std::path::Path;

/// The paths in backticks of the section: those with a slash, or with the ending of a source file.
fn named_paths(page: &str) -> Vec<&str> {
    let section = page
        .split("\n## ")
        .find(|part| part.starts_with("Where to add"));
    let section = section.expect("the page has a section \"Where to add\"");
    let in_backticks = section.split('`').skip(1).step_by(2);
    in_backticks
        .filter(|text| text.contains('/') || text.ends_with(".rs"))
        .filter(|text| !text.starts_with("src/"))
        .collect()
}

#[test]
fn every_file_that_is_named_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/architecture.md")).expect("the page is there");
    let named = named_paths(&page);
    assert!(named.len() > 50, "the section names {} paths", named.len());
    let missing: Vec<_> = named
        .into_iter()
        .filter(|path| {
            let is_outside = |folder| path.starts_with(folder);
            let is_outside = ["crates/", "docs/", "tests/"].iter().any(is_outside);
            let folder = if is_outside { "" } else { "src" };
            !root.join(folder).join(path).exists()
        })
        .collect();
    assert_eq!(
        missing, [""; 0],
        "named in docs/architecture.md, but not there"
    );
}
