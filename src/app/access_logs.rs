//! The access log in force, and those before it that requests in flight still write to.

use std::sync::Arc;
use std::time::Duration;

use super::StartupError;
use crate::proxy::Ruleset;
use crate::proxy::ruleset::build::BuildContext;
use crate::telemetry::access_log::{AccessLog, AccessLogSpec, WriterHandle};

/// Returns the log that `spec` asks for: the running one if it is the same, or a new one.
///
/// # Errors
/// When its file cannot be opened, or its thread not be started.
pub(super) fn provide(
    spec: Option<&AccessLogSpec>,
    context: &BuildContext,
    running: Option<&Ruleset>,
) -> Result<Option<Arc<AccessLog>>, StartupError> {
    let Some(spec) = spec else {
        return Ok(None);
    };
    let running = running.and_then(|ruleset| ruleset.access_log.as_ref());
    if let Some(same) = running.filter(|log| log.spec() == spec) {
        return Ok(Some(Arc::clone(same)));
    }
    let log = AccessLog::open(spec, context.workers, &context.registry).map_err(
        StartupError::system(format!("the access log {}", spec.target)),
    )?;
    Ok(Some(Arc::new(log)))
}

/// The writers that may still have something to write.
#[derive(Debug, Default)]
pub(super) struct Writers(Vec<WriterHandle>);

impl Writers {
    /// Takes note of the log of a ruleset that now runs, and forgets the logs that have ended.
    pub(super) fn note(&mut self, ruleset: &Ruleset) {
        self.0.retain(|writing| !writing.has_ended());
        let log = ruleset.access_log.as_ref();
        let unknown = log.filter(|log| !self.0.iter().any(|writing| writing.writes_for(log)));
        self.0.extend(unknown.map(|log| log.writer_handle()));
    }

    /// Ends them all, each within `deadline`; the first that takes longer is the last that is waited for.
    pub(super) fn close(&self, deadline: Duration) {
        self.0.iter().for_each(WriterHandle::stop);
        let _ = self.0.iter().all(|writing| writing.wait(deadline));
    }
}
