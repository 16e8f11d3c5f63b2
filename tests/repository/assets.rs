//! The files of the pages name no file that is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin")
}

/// All files below a folder, relative to it.
fn files(folder: &Path, prefix: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).expect("a readable folder");
    let names = entries.flat_map(|entry| {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = format!("{prefix}{}", name.expect("a plain name"));
        if path.is_dir() {
            files(&path, &format!("{name}/"))
        } else {
            BTreeSet::from([name])
        }
    });
    names.collect()
}

/// Texts in double quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// The file that an import of `name` means.
fn resolve(name: &str, import: &str) -> String {
    let mut path: Vec<_> = name.split('/').collect();
    path.pop();
    for step in import.split('/') {
        match step {
            "." => {}
            ".." => drop(path.pop()),
            step => path.push(step),
        }
    }
    path.join("/")
}

#[test]
fn pages_and_scripts_name_files_that_exist_and_nothing_is_inline() {
    let folder = root().join("dashboard");
    let there = files(&folder, "");
    for name in &there {
        let text = fs::read_to_string(folder.join(name)).expect("a text");
        for asset in quoted(&text).filter_map(|text| text.strip_prefix("/assets/")) {
            assert!(there.contains(asset), "{name}: {asset}");
        }
        let imports = text
            .lines()
            .filter(|line| name.ends_with(".js") && line.contains(" from \""));
        for import in imports.flat_map(quoted) {
            let wanted = resolve(name, import);
            assert!(there.contains(&wanted), "{name}: {wanted}");
        }
        for inline in [
            "<style",
            " style=\"",
            "<script>",
            " onclick=\"",
            "innerHTML",
            "eval(",
        ] {
            assert!(!text.contains(inline), "{name}: {inline}");
        }
        assert!(
            !text.contains("//cdn") && text.lines().count() <= 400,
            "{name}"
        );
    }
}
