//! Files of a megabyte of mistakes: each is reported, and none takes long. Quadratic time anywhere
//! would take minutes here.

use std::fmt::Write;

use crate::config::{self, Report};

const MANY: usize = 12_000;

fn mistakes(text: String) -> Report {
    match config::parse("many.yaml", text, &|_| None) {
        Ok(loaded) => config::compile_rules(&loaded).expect_err("mistakes"),
        Err(report) => report,
    }
}

#[test]
fn very_many_unknown_names_are_reported_and_the_first_compared() {
    let mut text = "policies:\n".to_owned();
    for number in 0..MANY {
        writeln!(text, "  policy{number}x: {{ key: client_ip, quota: 5/s }}").expect("grows");
    }
    text.push_str("routes:\n");
    for number in 0..MANY {
        writeln!(text, "  - {{ upstream: echo, limits: [polisy{number}x] }}").expect("grows");
    }
    let report = mistakes(text);
    let unknown = |message: &str| message.starts_with("there is no policy");
    let unknown: Vec<_> = report
        .problems
        .iter()
        .filter(|problem| unknown(&problem.message))
        .map(|problem| problem.help.as_deref().expect("advice"))
        .collect();
    assert_eq!(unknown.len(), MANY);
    let compared = |help: &&&str| help.starts_with("did you mean `policy");
    assert_eq!(unknown.iter().filter(compared).count(), 100);
    assert!(
        unknown[MANY - 1].ends_with("and 11936 more"),
        "{}",
        unknown[MANY - 1]
    );
}

#[test]
fn very_many_brackets_in_a_line_are_one_error() {
    let report = mistakes(format!("x-a: {}", "[".repeat(200_000)));
    assert_eq!(report.problems.len(), 1, "{report}");
    let report = mistakes(format!("x-a: {}", "[]:".repeat(200_000)));
    assert!(report.problems.len() == 1, "{report}");
}

#[test]
fn very_many_mistakes_in_a_line_have_their_columns() {
    let mut text = "# \u{1f600}\nx-a: { \u{e4}: 1 }\npolicies: {".to_owned();
    for number in 0..MANY {
        write!(text, "p{number:05}: {{ quota: 5/s, kei: \u{e4} }}, ").expect("grows");
    }
    text.push_str("}\nroutes: [{ upstream: echo }]\n");
    let report = mistakes(text);
    let columns = report
        .problems
        .iter()
        .filter(|one| one.message.contains("`kei`"));
    let columns: Vec<_> = columns
        .map(|one| one.place.as_ref().expect("a place").column)
        .collect();
    let first = "policies: {p00000: { quota: 5/s, ".len() + 1;
    let each = "p00000: { quota: 5/s, kei: \u{e4} }, ".chars().count();
    let expected: Vec<_> = (0..MANY).map(|number| first + number * each).collect();
    assert_eq!(columns, expected);
}
