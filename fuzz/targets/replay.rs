//! Lines of access logs: each is decided once or counted as unreadable, in a bounded report.

use std::cell::RefCell;
use std::sync::LazyLock;

use traffic::{LogFormat, Options};

use super::fixture;
use crate::config::Loaded;
use crate::replay::replay;

/// The most requests of an input.
const MOST_LINES: usize = 200;

static LOADED: LazyLock<Loaded> = LazyLock::new(|| fixture::loaded(include_str!("replay.yaml")));

/// The first byte chooses the format.
pub(super) fn run(data: &[u8]) {
    let Some((&choice, log)) = data.split_first() else {
        return;
    };
    let lines = log.split(|&byte| byte == b'\n');
    let lines = lines.filter(|line| !line.trim_ascii().is_empty()).count();
    if lines > MOST_LINES {
        return;
    }
    let options = Options {
        format: [None, Some(LogFormat::Combined), Some(LogFormat::Json)][usize::from(choice) % 3],
        host: None,
    };
    let decided = RefCell::new(Vec::new());
    let report = replay(fixture::rules(&LOADED), &options, log, |line| {
        serde_json::to_vec(line).expect("decisions are JSON");
        decided.borrow_mut().push(line.line);
        Ok(())
    });
    let mut decided = decided.into_inner();
    assert!(decided.len() <= lines, "more decisions than lines");
    decided.sort_unstable();
    assert!(
        decided.is_sorted_by(|one, other| one < other),
        "a line is decided twice"
    );
    if let Ok(report) = report {
        let text = report.to_string();
        assert!(
            text.len() < 64 * 1024 + 4 * log.len(),
            "{} bytes",
            text.len()
        );
        serde_json::to_vec(&report).expect("reports are JSON");
    }
}
