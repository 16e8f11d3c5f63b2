//! Files that the process writes.

use super::{Finding, NodeId};
use crate::config::diagnostic::Code;
use crate::config::load::Loaded;
use crate::telemetry::access_log::LogTarget;

/// Warns of files in missing directories: the process creates files, but no directories.
pub(super) fn missing_directories(loaded: &Loaded) -> Vec<Finding> {
    let config = &loaded.config;
    let log = config
        .access_log
        .as_ref()
        .and_then(|log| match &log.path.value {
            LogTarget::File(path) => Some((path.as_path(), log.path.node)),
            LogTarget::Stdout => None,
        });
    let snapshot = config.store.memory.snapshot.as_ref();
    let snapshot = snapshot.map(|snapshot| (snapshot.path.as_path(), snapshot.path.node));
    let written = log.into_iter().chain(snapshot);
    let findings = written.filter_map(|(path, node): (_, NodeId)| {
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
