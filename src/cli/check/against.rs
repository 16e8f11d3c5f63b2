//! `sluicegate check NEW --against OLD`: what a reload from one configuration to the other makes of
//! the buckets.

use std::path::Path;

use crate::config::{Report, compile_rules, load};
use crate::proxy::ruleset::RulesetSpec;
use crate::proxy::ruleset::reload_diff::{BucketChange, compare};

/// Says of every policy of either what becomes of its buckets when `new` takes the place of the
/// configuration in `old`.
pub(super) fn compared(old: &Path, new: &RulesetSpec) -> Result<Vec<BucketChange>, Report> {
    let before = compile_rules(&load(old)?)?;
    Ok(compare(&before, new))
}
