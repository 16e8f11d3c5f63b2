//! Links between the pages of the documentation lead somewhere.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The anchor of a title, as GitHub makes it: lower case, without punctuation, spaces as `-`.
fn anchor(title: &str) -> String {
    let letters = title.trim().to_lowercase();
    let letters = letters
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    letters.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The lines of a page outside of its blocks of code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchors of all titles. The second of one name gets `-1`, and so on.
fn anchors(page: &str) -> HashSet<String> {
    let mut counts = HashMap::<String, usize>::new();
    let titles = prose(page).filter(|line| line.starts_with('#'));
    let anchors = titles.map(|title| {
        let anchor = anchor(title.trim_start_matches('#'));
        let count = counts.entry(anchor.clone()).or_default();
        *count += 1;
        match *count {
            1 => anchor,
            count => format!("{anchor}-{}", count - 1),
        }
    });
    anchors.collect()
}

/// The targets of links: `[text](target)`. Long links are broken after the text.
fn targets(page: &str) -> Vec<String> {
    let text: Vec<_> = prose(page).collect();
    let text = text.join(" ");
    let parts = text.split("](").skip(1);
    let targets = parts.filter_map(|part| part.split_once(')').map(|(target, _)| target));
    targets.map(|target| target.trim().to_owned()).collect()
}

fn pages(root: &Path) -> Vec<PathBuf> {
    let docs = fs::read_dir(root.join("docs")).expect("the folder is there");
    let docs = docs.map(|entry| entry.expect("it can be read").path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "md");
    let own = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "crates/http1/README.md",
        "crates/limiter/README.md",
        "crates/readable/README.md",
        "crates/redis-client/README.md",
        "crates/traffic/README.md",
        "tests/recorded/README.md",
    ];
    let own = own.into_iter().map(|name| root.join(name));
    docs.filter(is_page).chain(own).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_title_of_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut count, mut dead) = (0, Vec::new());
    for path in pages(root) {
        let page = fs::read_to_string(&path).expect("the page is there");
        for target in targets(&page) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (file, title) = target.split_once('#').unwrap_or((&target, ""));
            let folder = path.parent().expect("it is in a folder");
            let file = match file {
                "" => path.clone(),
                file => folder.join(file),
            };
            let is_there = file.exists();
            let has_title = title.is_empty()
                || fs::read_to_string(&file).is_ok_and(|page| anchors(&page).contains(title));
            if !is_there || !has_title {
                dead.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(count > 200, "{count} links");
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}
