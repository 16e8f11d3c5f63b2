//! The origin of a configuration, which a reload reads again.

use std::path::{Path, PathBuf};

use super::{Compiled, Loaded, Report, compile, load, parse};

/// A file, or a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// A text with the name that reports use.
    Text {
        /// The name.
        name: String,
        /// The configuration.
        text: String,
    },
}

impl Source {
    /// Reads and checks the configuration.
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

    /// Reads, checks and compiles the configuration.
    ///
    /// # Errors
    /// As [`load`](Self::load), and what is wrong with the files that it names.
    pub fn compile(&self) -> Result<Compiled, Report> {
        compile(&self.load()?)
    }

    /// The path; `None` for a text.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text { .. } => None,
        }
    }
}
