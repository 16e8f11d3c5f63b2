//! Why a replay ends early.

use std::io;

/// Why a replay ended before the log did.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log is compressed.
    #[error("the log is compressed; pipe it: {tool} LOG | sluicegate replay -")]
    Compressed {
        /// The command that decompresses the file to stdout.
        tool: &'static str,
    },
    /// The log cannot be read any further.
    #[error("cannot read the log: {0}")]
    Read(io::Error),
    /// The output could not be written.
    #[error("cannot write: {0}")]
    Write(io::Error),
}
