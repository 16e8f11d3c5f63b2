//! Where a configuration comes from, so that it can be read again.

use std::path::{Path, PathBuf};

use super::{Compiled, Loaded, Report, compile, load, parse};

/// A file, or a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// This file.
    File(PathBuf),
    /// This text, which reports call by its name.
    Text {
        /// What it is called.
        name: String,
        /// The configuration.
        text: String,
    },
}

impl Source {
    /// Reads and checks it.
    ///
    /// # Errors
    /// Reports all that was found when some of it is an error.
    pub fn load(&self) -> Result<Loaded, Report> {
        match self {
            Self::File(path) => load(path),
            Self::Text { name, text } => {
                parse(name, text.clone(), &|variable| std::env::var(variable).ok())
            }
        }
    }

    /// Reads, checks and compiles it.
    ///
    /// # Errors
    /// As [`load`](Self::load), and what is wrong with the files that it names.
    pub fn compile(&self) -> Result<Compiled, Report> {
        compile(&self.load()?)
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text { .. } => None,
        }
    }
}
