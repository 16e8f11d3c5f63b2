//! The owner of a snapshot file: the one process that saves buckets there, by a lock.

use std::thread;
use std::time::Duration;

use strum::EnumIs;

use crate::admin::status_problem::StatusProblem;
use crate::config::SnapshotSpec;
use crate::files::FileVersion;
use crate::store::snapshot::{self, SnapshotLock};

/// How long a start waits for a process that saves for the last time.
const LAST_SAVE_OF_ANOTHER: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The process that saves in the file.
#[derive(Debug, EnumIs)]
pub(super) enum Owner {
    /// This one. Without a lock if the system has none for the file.
    This(Option<SnapshotLock>),
    /// Another one.
    Other,
    /// This one has saved this version, and left the file to a successor.
    HandedOver(Option<FileVersion>),
}

impl Owner {
    /// Tries to own the file of `spec`, which is about to be read. Waits for a process that has just freed its ports and
    /// saves for the last time.
    pub(super) fn at_start(spec: Option<&SnapshotSpec>) -> Self {
        let looks = LAST_SAVE_OF_ANOTHER.div_duration_f32(LOOK_EVERY) as u32;
        for _ in 0..looks {
            let owner = Self::of(spec);
            if !owner.is_other() {
                return owner;
            }
            thread::sleep(LOOK_EVERY);
        }
        Self::of(spec)
    }

    /// Tries to own the file of `spec`.
    pub(super) fn of(spec: Option<&SnapshotSpec>) -> Self {
        let Some(spec) = spec else {
            return Self::This(None);
        };
        match snapshot::lock(&spec.path) {
            Ok(Some(lock)) => Self::This(Some(lock)),
            Ok(None) => Self::Other,
            Err(error) => {
                // If there can be no file at all, saving says so.
                tracing::debug!(path = %spec.path.display(), %error, "the snapshot cannot be locked");
                Self::This(None)
            }
        }
    }

    /// Leaves the file, which this process has just saved, to a successor.
    pub(super) fn hand_over(&mut self, spec: Option<&SnapshotSpec>) {
        if let (Self::This(_), Some(spec)) = (&self, spec) {
            *self = Self::HandedOver(FileVersion::of(&spec.path));
        }
    }

    /// Returns true if this process may save. Takes over the file if its owner has ended.
    pub(super) fn may_save(&mut self, spec: &SnapshotSpec, problem: &StatusProblem) -> bool {
        let path = spec.path.display();
        let handed_over = match self {
            Self::This(Some(_)) => return true,
            // The directory may be there, or writable, by now.
            Self::This(None) | Self::Other => None,
            Self::HandedOver(version) => Some(version.take()),
        };
        *self = Self::of(Some(spec));
        match handed_over {
            Some(version) if self.is_other() || version != FileVersion::of(&spec.path) => {
                tracing::info!(%path, "another process saves buckets there now: what was charged here since is not saved");
                *self = Self::HandedOver(version);
                false
            }
            None if self.is_other() => {
                if problem.set(format!("buckets aren't saved: another process owns {path}")) {
                    tracing::warn!(
                        %path,
                        "another process saves its buckets there, so this one saves none until that ends (`fuser {path}.lock` \
                         names it); two that run side by side need a file each"
                    );
                }
                false
            }
            _ => true,
        }
    }
}
