//! Import circles: files of the source that use each other, directly or through others, can only be
//! understood together. Where a name is re-exported, the file counts that defines it; tests don't count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::source::{expand, rust_files, tokens};

/// The most files in a circle.
const LARGEST: usize = 6;

#[test]
fn no_import_circle_is_large() {
    let imports = Imports::of(Path::new(env!("CARGO_MANIFEST_DIR")));
    let mut large = imports.circles();
    large.retain(|circle| circle.len() > LARGEST);
    assert!(large.is_empty(), "more than {LARGEST} files: {large:#?}");
}

/// The imports of a source tree, by module path such as `limiter::cell`.
struct Imports {
    modules: BTreeMap<String, BTreeSet<String>>,
}

/// A `use` of one name.
struct Use {
    source: String,
    is_export: bool,
    /// The module that the path names, and the name in it.
    target: (String, Option<String>),
}

impl Imports {
    fn of(root: &Path) -> Self {
        let files = source_files(root);
        let modules: BTreeSet<&str> = files.keys().map(String::as_str).collect();
        let uses: Vec<Use> = files
            .iter()
            .flat_map(|(source, text)| uses(source, text, &modules))
            .collect();
        let exports: BTreeMap<_, _> = uses
            .iter()
            .filter(|one| one.is_export)
            .filter_map(|one| {
                let name = one.target.1.as_deref()?;
                Some(((one.source.as_str(), name), one.target.0.as_str()))
            })
            .collect();
        let mut imports: BTreeMap<String, BTreeSet<String>> = files
            .keys()
            .map(|name| (name.clone(), BTreeSet::new()))
            .collect();
        for one in uses.iter().filter(|one| !one.is_export) {
            let (target, name) = &one.target;
            let name = name.as_deref().unwrap_or_default();
            let mut target = target.as_str();
            let mut seen = BTreeSet::new();
            while let Some(next) = exports.get(&(target, name)).filter(|_| seen.insert(target)) {
                target = next;
            }
            if target != one.source
                && let Some(targets) = imports.get_mut(&one.source)
            {
                targets.insert(target.to_owned());
            }
        }
        Self { modules: imports }
    }

    /// Groups of files that reach each other, the largest first.
    fn circles(&self) -> Vec<Vec<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> = self
            .modules
            .keys()
            .map(|name| (name.as_str(), self.reached_from(name)))
            .collect();
        let mut circles = BTreeSet::new();
        for (name, others) in reached
            .iter()
            .filter(|(name, others)| others.contains(*name))
        {
            let circle = others.iter().filter(|other| reached[*other].contains(name));
            circles.insert(circle.copied().collect::<Vec<_>>());
        }
        let mut circles = Vec::from_iter(circles);
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    fn reached_from<'a>(&'a self, start: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut ahead = vec![start];
        while let Some(name) = ahead.pop() {
            let next = self.modules.get(name).into_iter().flatten();
            ahead.extend(
                next.map(String::as_str)
                    .filter(|name| reached.insert(*name)),
            );
        }
        reached
    }
}

/// The text before the tests of each file, by module path. A crate counts as a module, as its alias in
/// `src/lib.rs` has it.
fn source_files(root: &Path) -> BTreeMap<String, String> {
    let mut files = Vec::new();
    rust_files(&root.join("src"), &mut files);
    rust_files(&root.join("crates"), &mut files);
    let files = files.into_iter().filter_map(|file| {
        let relative = file.strip_prefix(root).expect("listed below the root");
        let path = relative.with_extension("").display().to_string();
        let parts: Vec<_> = path.split('/').collect();
        let text = fs::read_to_string(&file).expect("a listed file is readable");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        match parts[..] {
            _ if parts.contains(&"tests") => None,
            ["src", ref module @ ..] => Some((module.join("::"), code.to_owned())),
            ["crates", name, "src", ref module @ ..] => {
                let name = name.replace('-', "_");
                let inner = module.iter().filter(|part| **part != "lib");
                let module = [&*name].into_iter().chain(inner.copied());
                let code = code.replace("crate::", &format!("crate::{name}::"));
                Some((Vec::from_iter(module).join("::"), code))
            }
            _ => None,
        }
    });
    files.collect()
}

fn uses(source: &str, text: &str, modules: &BTreeSet<&str>) -> Vec<Use> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    for at in (0..tokens.len()).filter(|at| tokens[*at].text == "use") {
        let before = at.checked_sub(1).map_or("", |before| &tokens[before].text);
        let mut ends = Vec::new();
        expand(&tokens, at + 1, &[], &mut ends);
        found.extend(ends.into_iter().filter_map(|path| {
            Some(Use {
                source: source.to_owned(),
                is_export: ["pub", ")"].contains(&before),
                target: resolve(source, &path, modules)?,
            })
        }));
    }
    found
}

/// The module that a path names, and the name in it; `None` for other crates.
fn resolve(
    source: &str,
    path: &[String],
    modules: &BTreeSet<&str>,
) -> Option<(String, Option<String>)> {
    let here: Vec<&str> = source.split("::").collect();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let supers = path.iter().take_while(|part| **part == "super").count();
    let full = match path[..] {
        ["crate", ref rest @ ..] => rest.to_vec(),
        ["self", ref rest @ ..] => [&here, rest].concat(),
        ["super", ..] => [
            here.get(..here.len().checked_sub(supers)?)?,
            &path[supers..],
        ]
        .concat(),
        [first, ..] if modules.contains([source, first].join("::").as_str()) => {
            [&here, &path[..]].concat()
        }
        _ => return None,
    };
    let full = match full[..] {
        // `src/http.rs` has the crate, and beside it the modules of the crate.
        ["http", "http1", ref rest @ ..] => [&["http1"][..], rest].concat(),
        ["http", module, ..] if modules.contains(format!("http1::{module}").as_str()) => {
            [&["http1"][..], &full[1..]].concat()
        }
        _ => full,
    };
    (1..=full.len()).rev().find_map(|length| {
        let module = full[..length].join("::");
        let name = full.get(length).map(|name| (*name).to_owned());
        modules.contains(module.as_str()).then_some((module, name))
    })
}

/// The circles of a tree of these files.
fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let root = tempfile::tempdir().expect("a temporary directory");
    for (file, text) in files {
        let path = root.path().join("src").join(file);
        fs::create_dir_all(path.parent().expect("a file has a parent")).expect("it is writable");
        fs::write(path, text).expect("it is writable");
    }
    fs::create_dir_all(root.path().join("crates")).expect("it is writable");
    let imports = Imports::of(root.path());
    let circles = imports.circles();
    let owned = |circle: Vec<&str>| circle.into_iter().map(str::to_owned).collect();
    circles.into_iter().map(owned).collect()
}

#[test]
fn files_that_use_each_other_are_a_circle() {
    let found = circles_of(&[
        ("a.rs", "use crate::b::{B, Other};"),
        ("b.rs", "mod inner;\nuse inner::Inner;"),
        ("b/inner.rs", "use super::super::a::A as First;"),
        ("c.rs", "use crate::a::A;"),
    ]);
    assert_eq!(found, [["a", "b", "b::inner"]]);
}

#[test]
fn a_name_counts_where_it_is_defined() {
    let found = circles_of(&[
        (
            "a.rs",
            "mod low; mod high;\npub use low::Low;\npub(super) use high::High;",
        ),
        ("a/low.rs", "pub struct Low;"),
        ("a/high.rs", "use super::Low;"),
    ]);
    assert_eq!(found, [[""; 0]; 0]);
}

#[test]
fn tests_and_comments_are_no_import() {
    let found = circles_of(&[
        (
            "a.rs",
            "// use crate::b::B;\n#[cfg(test)]\nmod tests { use crate::b::B; }",
        ),
        ("b.rs", "use crate::a::A;"),
        ("a/tests.rs", "use crate::b::B;"),
    ]);
    assert_eq!(found, [[""; 0]; 0]);
}
