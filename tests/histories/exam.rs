//! The verdict about a run.

use std::fs;
use std::path::Path;

use crate::check::{Liveness, Promise, Seen};
use crate::history::{History, Span};
use crate::table::Row;

/// Fails unless all promises hold and nothing else is wrong, and notes the worst that was seen.
pub fn examine(
    row: &Row,
    history: &History,
    promises: &[Promise],
    liveness: &Liveness,
    mut wrong: Vec<String>,
) {
    let mut seen = Seen::default();
    wrong.extend(liveness.check(history, promises));
    for promise in promises {
        match promise.check(history) {
            Ok(worst) => seen = seen.max(worst),
            Err(violation) => wrong.push(violation.to_string()),
        }
    }
    println!(
        "{} requests, {} faults, the longest stall {} ms",
        history.events.len(),
        history.faults.len(),
        history.stall / 1_000
    );
    fail_if(&wrong, history);
    row.note(seen.worst, &seen.to_string());
}

/// Fails with what is wrong, and writes the history to a file.
pub fn fail_if(wrong: &[String], history: &History) {
    if !wrong.is_empty() {
        let (first, file) = (&wrong[..wrong.len().min(20)], write(history));
        panic!(
            "{} are wrong:\n{}\nThe history is in {file}.",
            wrong.len(),
            first.join("\n")
        );
    }
}

/// Writes a history to a file, and returns its name.
fn write(history: &History) -> String {
    let first = history.events.first().map_or(0, |event| event.sent);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("history-{first}.txt"));
    let events = history
        .events
        .iter()
        .map(|event| (event.sent, format!("{event:?}\n")));
    let faults = history.faults.iter().map(|fault| {
        let Span { from, until } = fault.span;
        (from, format!("{} from {from} until {until}\n", fault.what))
    });
    let mut lines: Vec<_> = events.chain(faults).collect();
    lines.sort();
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    fs::write(&file, text).expect("the target folder is writable");
    file.display().to_string()
}
