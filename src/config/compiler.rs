//! State of one compilation: what is wrong, and the files beside the configuration.

use std::io;
use std::path::{Path, PathBuf};

use super::finding::invalid;
use super::value::FilePath;
use super::{Code, Finding, Located, NodeId, file_errors};
use crate::admin::reload_history::ListTexts;
use crate::files::{self, VersionedFile};

/// The largest certificate file that is read, in bytes.
pub(super) const MAX_CERTIFICATE_FILE: u64 = 16 << 20;

/// Handling of missing files with keys and secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyFiles {
    /// A missing or empty file is an error.
    Needed,
    /// Something stands in for a missing file, and for what a file would keep secret: nothing is
    /// forwarded.
    Optional,
    /// As `Optional`, but no file is read.
    Unread,
}

/// The path of a file, and what it holds.
pub(super) type FileContent = (PathBuf, Vec<u8>);

/// State of one compilation.
pub(super) struct Compiler<'a> {
    directory: &'a Path,
    pub(super) key_files: KeyFiles,
    pub(super) findings: Vec<Finding>,
    pub(super) files: Vec<VersionedFile>,
    /// The lists that conditions read.
    pub(super) lists: ListTexts,
}

impl<'a> Compiler<'a> {
    /// Creates the state for a configuration whose relative paths start at `directory`.
    pub(super) fn new(directory: &'a Path, key_files: KeyFiles) -> Self {
        Compiler {
            directory,
            key_files,
            findings: Vec::new(),
            files: Vec::new(),
            lists: ListTexts::default(),
        }
    }

    /// Resolves a path of the configuration.
    pub(super) fn resolve(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }

    /// Reads a file that the configuration names, and whose changes matter. `None` with a finding, if
    /// files are needed.
    pub(super) fn read(&mut self, file: &Located<FilePath>, largest: u64) -> Option<FileContent> {
        self.read_as(file, largest, self.key_files)
    }

    /// Like [`read`](Self::read), of a file that may be needed even if others are not.
    pub(super) fn read_as(
        &mut self,
        file: &Located<FilePath>,
        largest: u64,
        need: KeyFiles,
    ) -> Option<FileContent> {
        if self.key_files == KeyFiles::Unread {
            return None;
        }
        let path = self.resolve(file.as_path());
        self.files.push(VersionedFile::new(path.clone()));
        match files::read(&path, largest) {
            Ok(content) => Some((path, content)),
            Err(error) => {
                if need == KeyFiles::Needed {
                    self.unreadable(&path, file.node, &error);
                }
                None
            }
        }
    }

    /// Reports a file that the configuration names and that cannot be read.
    pub(super) fn unreadable(&mut self, path: &Path, node: NodeId, error: &io::Error) {
        let (message, help) = file_errors::explain(path, error);
        let finding = Finding::error(node, Code::Unreadable, message).help(help);
        self.findings.push(finding);
    }

    /// The value, or `None` with a finding about a setting that its layer cannot use.
    pub(super) fn usable<T, E: ToString>(
        &mut self,
        node: NodeId,
        value: Result<T, E>,
    ) -> Option<T> {
        self.found(value.map_err(|error| invalid(node, error.to_string())))
    }

    /// The value, or `None` with the finding.
    pub(super) fn found<T>(&mut self, value: Result<T, Finding>) -> Option<T> {
        value.map_err(|finding| self.findings.push(finding)).ok()
    }
}
