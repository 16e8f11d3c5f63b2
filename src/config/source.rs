//! The origin of a configuration, which a reload reads again.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::load::read_from;
use super::{Checked, Compiled, Loaded, Report, compile, lint, load, parse};
use crate::clock::Timestamp;

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
    /// The text that `input` has. Reports call it `name`; relative paths start at the working
    /// directory.
    ///
    /// # Errors
    /// Reports a text that cannot be read, is too large, or is no UTF-8.
    pub fn read(name: &str, input: impl Read) -> Result<Self, Report> {
        Ok(Self::Text {
            text: read_from(input, name)?,
            name: name.to_owned(),
        })
    }

    /// Reads, checks and compiles the configuration, and warns of it at the instant `now`.
    pub fn check(&self, now: Timestamp) -> Checked {
        let checked = self.load().and_then(|loaded| {
            let compiled = compile(&loaded)?;
            Ok((compiled, lint(loaded, now)))
        });
        match checked {
            Ok((compiled, report)) => Checked {
                report,
                compiled: Some(compiled),
            },
            Err(report) => Checked {
                report,
                compiled: None,
            },
        }
    }

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
