//! The origin of a configuration, which a reload reads again, and the result of a check.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::clock::Timestamp;
use crate::config::load::{Broken, read, read_from, try_check};
use crate::config::{Compiled, Loaded, Problem, Report, Severity, compile, lint};
use crate::proxy::ruleset::RulesetSpec;
use crate::proxy::ruleset::build::memory_bytes;
use crate::proxy::ruleset::reload_diff::BucketChange;

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
        let (compiled, report) = match checked {
            Ok((compiled, report)) => (Some(compiled), report),
            Err(report) => (None, report),
        };
        Checked { report, compiled }
    }

    /// Reads and checks the configuration, with the files that it includes. Variables come from the
    /// process environment.
    ///
    /// # Errors
    /// Reports all that was found when some of it is an error.
    pub fn load(&self) -> Result<Loaded, Report> {
        self.try_load().map_err(|broken| broken.report)
    }

    /// Reads a file with errors, unless they are in `admin`: to reach a proxy that refused to reload
    /// it. `None` if what it states there can't be known.
    pub fn load_stated(&self) -> Option<Loaded> {
        self.file()?;
        self.try_load().map_or_else(|broken| broken.stated, Some)
    }

    fn try_load(&self) -> Result<Loaded, Box<Broken>> {
        let name = self.name();
        let (text, main) = match self {
            Self::File(path) => (read(path, &name)?, path.as_path()),
            Self::Text { text, .. } => (text.clone(), Path::new("")),
        };
        try_check(&name, text, &|name| std::env::var(name).ok(), Some(main))
    }

    /// Reads, checks and compiles the configuration.
    ///
    /// # Errors
    /// As [`load`](Self::load), and what is wrong with the files that it names.
    pub fn compile(&self) -> Result<Compiled, Report> {
        compile(&self.load()?)
    }

    /// The name that reports use.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text { name, .. } => name.clone(),
        }
    }

    /// The path; `None` for a text.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text { .. } => None,
        }
    }
}

/// The result of a check.
#[derive(Debug)]
pub struct Checked {
    /// All problems: errors, or else warnings.
    pub report: Report,
    /// The configuration, unless it has errors.
    pub compiled: Option<Compiled>,
}

/// The result of a check as machines read it: in `check --json`, and in answers of the admin API.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    /// The name of the file.
    pub file: String,
    /// The result in a word.
    pub verdict: CheckVerdict,
    /// The number of errors.
    pub errors: usize,
    /// The number of warnings.
    pub warnings: usize,
    /// The first 1000 problems: errors, then warnings, in the order of the file.
    pub findings: Vec<Problem>,
    /// The memory that buckets take at most; absent for an invalid file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The outcome for the buckets of another configuration; absent unless one was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buckets: Option<Vec<BucketChange>>,
}

/// The result of a check in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// No problems.
    Sound,
    /// Warnings only.
    Usable,
    /// Errors: the configuration cannot run.
    Invalid,
}

impl CheckReport {
    /// The result for the limits of a configuration, which are absent if it is invalid, with what
    /// becomes of the buckets of another one.
    pub fn new(
        report: &Report,
        rules: Option<&RulesetSpec>,
        buckets: Option<Vec<BucketChange>>,
    ) -> Self {
        CheckReport {
            file: report.source_name().to_owned(),
            verdict: match (rules, report.problems.is_empty()) {
                (None, _) => CheckVerdict::Invalid,
                (Some(_), false) => CheckVerdict::Usable,
                (Some(_), true) => CheckVerdict::Sound,
            },
            errors: report.count(Severity::Error),
            warnings: report.count(Severity::Warning),
            findings: report.reported().to_vec(),
            memory_bytes: rules.map(memory_bytes),
            buckets,
        }
    }
}
