//! The table of bounds in docs, and what runs have seen of them.

use std::fs;
use std::path::{Path, PathBuf};

/// How the table begins.
const HEAD: &str = "| mode | faults | admitted at most | seen |\n| --- | --- | --- | --- |\n";

/// A row of the table.
pub struct Row {
    pub mode: &'static str,
    pub faults: &'static str,
    pub bound: &'static str,
}

/// All rows, in the order of docs/choosing-a-store.md.
pub const ROWS: [&Row; 20] = [
    &EXACT,
    &RESTARTED,
    &FAILOVER,
    &SPLIT,
    &CLUSTER,
    &LOCAL,
    &ADMIT,
    &QUOTA,
    &ALGORITHM,
    &SKEW,
    &SYNC,
    &SYNC_ALONE,
    &QUOTA_SYNC,
    &SKEW_SYNC,
    &SKEW_WINDOWS,
    &PERMITS,
    &BANS,
    &GRANTS,
    &RESTART,
    &CRASH,
];

pub const EXACT: Row = Row {
    mode: "exact, `on_store_error: refuse`",
    faults: "proxies cut off, stopped, killed; Redis stopped",
    bound: "Q",
};
pub const RESTARTED: Row = Row {
    mode: "exact",
    faults: "Redis restarts empty",
    bound: "Q, and Q for each restart",
};
pub const FAILOVER: Row = Row {
    mode: "exact, Sentinel",
    faults: "the master dies",
    bound: "Q, and what wasn't replicated",
};
pub const SPLIT: Row = Row {
    mode: "exact, Sentinel",
    faults: "two masters",
    bound: "2 Q",
};
pub const CLUSTER: Row = Row {
    mode: "exact, Cluster",
    faults: "a master dies",
    bound: "Q, and what wasn't replicated",
};
pub const LOCAL: Row = Row {
    mode: "exact, `on_store_error: local`",
    faults: "proxies without Redis",
    bound: "Q, and Q for each of them",
};
pub const ADMIT: Row = Row {
    mode: "exact, `on_store_error: admit`",
    faults: "proxies without Redis",
    bound: "Q by all others",
};
pub const QUOTA: Row = Row {
    mode: "exact",
    faults: "rolling change of the quota",
    bound: "the largest Q",
};
pub const QUOTA_SYNC: Row = Row {
    mode: "synchronised",
    faults: "rolling change of the quota",
    bound: "that, of the largest Q",
};
pub const ALGORITHM: Row = Row {
    mode: "exact",
    faults: "rolling change of the algorithm",
    bound: "the sum of both",
};
pub const SKEW: Row = Row {
    mode: "exact",
    faults: "clocks of proxies set, up to 2 h apart",
    bound: "Q",
};
pub const SYNC: Row = Row {
    mode: "synchronised",
    faults: "none",
    bound: "Q + (n - 1)(a(D) + w)",
};
pub const SYNC_ALONE: Row = Row {
    mode: "synchronised",
    faults: "proxies without Redis, killed; Redis restarts empty",
    bound: "that, Q for each without Redis, and what a killed one hadn't reported",
};
pub const SKEW_SYNC: Row = Row {
    mode: "synchronised, `gcra`, `token_bucket`, `sliding_window`",
    faults: "clocks of proxies set, up to 2 h apart",
    bound: "that",
};
pub const SKEW_WINDOWS: Row = Row {
    mode: "synchronised, `fixed_window`",
    faults: "clocks of proxies up to 1.4 s apart",
    bound: "that, in windows of each machine's clock",
};
pub const PERMITS: Row = Row {
    mode: "exact, `concurrency`",
    faults: "proxies cut off, stopped, killed; Redis stopped, restarted empty",
    bound: "`max`",
};
pub const BANS: Row = Row {
    mode: "exact, `penalty`",
    faults: "proxies cut off, killed; Redis stopped, restarted empty",
    bound: "nothing after half a second and a round trip; each machine keeps the end that it knows",
};
pub const GRANTS: Row = Row {
    mode: "exact, granted units",
    faults: "proxies cut off, stopped, killed; Redis stopped",
    bound: "Q and the grant",
};
pub const RESTART: Row = Row {
    mode: "memory, snapshot",
    faults: "restart",
    bound: "Q",
};
pub const CRASH: Row = Row {
    mode: "memory, snapshot",
    faults: "crash",
    bound: "Q, and what came after the last snapshot",
};

impl Row {
    /// The row without what was seen.
    fn promise(&self) -> String {
        format!("| {} | {} | {} | ", self.mode, self.faults, self.bound)
    }

    /// Notes the worst of a run: a number, and how it is written. `target/histories.md` has the
    /// worst of all runs.
    pub fn note(&self, worst: u64, text: &str) {
        println!("{}, {}: {text}", self.mode, self.faults);
        let is_this = |row: &&Row| (row.mode, row.faults) == (self.mode, self.faults);
        let place = ROWS.iter().position(is_this);
        let place = place.expect("the table has all rows");
        let folder = folder();
        fs::create_dir_all(&folder).expect("the target folder is writable");
        let file = folder.join(format!("{place:02}"));
        let before = fs::read_to_string(&file).unwrap_or_default();
        let before = before
            .split_once('\t')
            .and_then(|(worst, _)| worst.parse().ok());
        if before.is_none_or(|before: u64| worst >= before) {
            fs::write(&file, format!("{worst}\t{text}")).expect("the target folder is writable");
        }
        fs::write(folder.with_extension("md"), table(&folder)).expect("it is writable");
    }
}

fn folder() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tmp.parent()
        .expect("it is in the target folder")
        .join("histories")
}

fn table(folder: &Path) -> String {
    let rows = ROWS.iter().enumerate().map(|(place, row)| {
        let seen = fs::read_to_string(folder.join(format!("{place:02}"))).unwrap_or_default();
        let (_, seen) = seen.split_once('\t').unwrap_or(("", "-"));
        format!("{}{seen} |\n", row.promise())
    });
    format!("{HEAD}{}", rows.collect::<String>())
}

#[test]
fn docs_have_the_bounds_that_are_checked() {
    let docs = include_str!("../../docs/choosing-a-store.md");
    let (_, section) = docs.split_once(HEAD).expect("the table of bounds");
    let rows: Vec<_> = section
        .lines()
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(rows.len(), ROWS.len());
    for (line, row) in rows.iter().zip(ROWS) {
        let promise = row.promise();
        assert!(line.starts_with(&promise), "{line}\nis not\n{promise}");
    }
}
