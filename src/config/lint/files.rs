//! Files that the process writes.

use super::Finding;
use crate::config::compile::written_files;
use crate::config::{Code, Loaded};

/// Warns of files in missing directories: the process creates files, but no directories.
pub(super) fn missing_directories(loaded: &Loaded) -> Vec<Finding> {
    let findings = written_files(&loaded.config).filter_map(|(path, node)| {
        let path = std::path::absolute(loaded.resolve(path)).ok()?;
        let directory = path.parent().filter(|directory| !directory.is_dir())?;
        let message = format!(
            "there is no directory {} on this machine",
            directory.display()
        );
        let finding = Finding::warning(node, Code::MissingDirectory, message);
        Some(finding.help(format!(
            "make it before the start: `mkdir -p {}`",
            directory.display()
        )))
    });
    findings.collect()
}
