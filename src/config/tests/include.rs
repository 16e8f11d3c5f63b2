//! Included files: whatever stands where in which file, each problem names its place there.

use std::fs;

use proptest::prelude::*;

use crate::config::{self, Audience, Colour};

/// A file: the lines before its mistake, with letters of several bytes, and if it ends with a line break.
fn file() -> impl Strategy<Value = (Vec<String>, bool)> {
    let line = prop_oneof!["# [a-zü🦀]{0,20}", Just(String::new())];
    (prop::collection::vec(line, 0..5), any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_problem_is_in_its_file(main in file(), files in prop::collection::vec(file(), 1..6)) {
        let directory = tempfile::tempdir().expect("a directory");
        let text = |(before, is_ended): &(Vec<String>, bool), rest: &str| {
            let end = if *is_ended { "\n" } else { "" };
            before.iter().map(|line| format!("{line}\n")).collect::<String>() + rest + end
        };
        let path = |name: &str| directory.path().join(name);
        fs::write(path("main.yaml"), text(&main, "include: '*.inc'\nroutes: [{ upstream: gone }]"))
            .expect("written");
        for (number, file) in files.iter().enumerate() {
            let rest = format!("routes: [{{ 'ü': 1, upstream: gone-{number} }}] # ü");
            fs::write(path(&format!("{number}.inc")), text(file, &rest)).expect("written");
        }
        let report = config::Source::File(path("main.yaml")).load().expect_err("mistakes");
        let found: Vec<_> = report.problems.iter().filter(|one| one.path.ends_with("upstream"))
            .map(|one| {
                let place = one.place.as_ref().expect("a place");
                (one.path.clone(), place.file.as_deref().map(str::to_owned), place.line, place.column)
            })
            .collect();
        let mut expected = vec![("routes[0].upstream".to_owned(), None, main.0.len() + 2, 22)];
        expected.extend(files.iter().enumerate().map(|(number, file)| {
            let name = path(&format!("{number}.inc")).display().to_string();
            (format!("routes[{}].upstream", number + 1), Some(name), file.0.len() + 1, 30)
        }));
        prop_assert_eq!(found, expected);
        let shown = report.render(Colour::Plain, Audience::Owner);
        for number in 0..files.len() {
            let line = format!("| routes: [{{ ***: ***, upstream: gone-{number} }}]");
            prop_assert!(shown.contains(&line), "no {} in\n{}", line, shown);
        }
    }
}
