//! `sluicegate check NEW --against OLD`: what a reload from one configuration to the other makes of
//! the buckets.

use std::fmt::Write;
use std::path::Path;

use crate::config::{Report, compile_rules, load};
use crate::proxy::ruleset::RulesetSpec;
use crate::proxy::ruleset::reload_diff::{BucketOutcome, ShrunkTable, TableChange, compare};

/// Says of every policy of either what becomes of its buckets when `new` takes the place of the
/// configuration in `old`.
pub(super) fn compared(old: &Path, new: &RulesetSpec) -> Result<String, Report> {
    let before = compile_rules(&load(old)?)?;
    let mut text = format!("after {}:\n", old.display());
    for (succession, shrunk) in compare(&before, new) {
        let line = line(&succession, shrunk.as_ref());
        writeln!(text, "  {}", line.trim_end()).expect("a string takes everything");
    }
    Ok(text)
}

fn line(succession: &TableChange, shrunk: Option<&ShrunkTable>) -> String {
    let TableChange {
        name,
        key,
        outcome: fate,
    } = succession;
    let (word, mut why) = match fate {
        BucketOutcome::Kept => ("survives", String::new()),
        BucketOutcome::Rescaled { quotas: [old, new] } if old == new => {
            ("rescaled", format!("{new}, with other settings"))
        }
        BucketOutcome::Rescaled { quotas: [old, new] } => {
            ("rescaled", format!("{old} becomes {new}"))
        }
        BucketOutcome::KeyChanged { key } => ("reset", format!("the key becomes {key}")),
        BucketOutcome::AlgorithmChanged {
            algorithms: [old, new],
        } => ("reset", format!("{old} becomes {new}")),
        BucketOutcome::StoreChanged { stores: [old, new] } => {
            ("reset", format!("{old} becomes {new}"))
        }
        BucketOutcome::ZeroQuota => ("reset", "a quota of 0 has nothing to use".to_owned()),
        BucketOutcome::Removed => ("ends", String::new()),
        BucketOutcome::Added => ("new", String::new()),
    };
    if let Some(ShrunkTable { keys: [old, new] }) = shrunk {
        let comma = if why.is_empty() { "" } else { ", " };
        why.push_str(&format!("{comma}room for {new} keys instead of {old}"));
    }
    format!("{word:<9} {name} ({key})  {why}")
}
