//! `include`: further files with routes, policies and upstreams.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;

use crate::config::file_errors::{self, MAX_TEXT};
use crate::config::sections::prelude::*;
use crate::files::{self, FileVersion, VersionedFile};
use crate::visible;

/// The most files that a configuration includes.
const MAX_FILES: usize = 1_000;

by_form! {
    /// A file, or a list of files.
    pub enum Include("Include", "the path of a file, or a list: `[conf.d/*.yaml, last.yaml]`") {
        /// One path or pattern.
        One(FilePath) = "scalar",
        /// Several, in this order.
        Several(List<FilePath>) = "sequence",
    }
}

/// The included files.
#[derive(Default)]
pub(crate) struct Included {
    /// Their paths and texts, in order.
    pub(crate) texts: Vec<(String, String)>,
    /// The paths and patterns, in the versions that were read.
    pub(crate) files: Vec<VersionedFile>,
    /// Files that cannot be read, and patterns without files.
    pub(crate) findings: Vec<Finding>,
    /// The files that were read, the main one too.
    seen: HashSet<FileVersion>,
    bytes: u64,
}

impl Included {
    /// Reads the files that these texts of the file `main` name, each once; none for a text that is
    /// no file. `bytes` are the main file's.
    pub(crate) fn read(texts: &[(NodeId, &str)], main: Option<&Path>, bytes: usize) -> Self {
        let mut included = Self {
            seen: main.and_then(FileVersion::of).into_iter().collect(),
            bytes: bytes as u64,
            ..Self::default()
        };
        // Another text is reported where it is decoded.
        let texts = texts.iter();
        let paths = texts.filter_map(|(node, text)| Some((*node, text.parse().ok()?)));
        for (node, path) in paths {
            if let Err((message, help)) = included.pattern(&path, main, node) {
                included
                    .findings
                    .push(Finding::error(node, Code::Unreadable, message).help(help));
            }
        }
        included
    }

    /// Reads the files of a path or pattern, or returns a message and advice.
    fn pattern(
        &mut self,
        pattern: &FilePath,
        main: Option<&Path>,
        node: NodeId,
    ) -> Result<(), (String, String)> {
        let Some(main) = main else {
            return refused("only a file can include files", "put here what they hold");
        };
        let pattern = pattern.as_path();
        let above = pattern.parent().unwrap_or(Path::new("")).to_string_lossy();
        if above.contains(['*', '?']) {
            let help = "write an item for each directory: `[a/*.yaml, b/*.yaml]`";
            return refused("`*` and `?` can't stand in a directory's name", help);
        }
        let pattern = main.with_file_name(pattern);
        let found = files::list(&pattern);
        let listed = found.as_ref().ok().cloned().unwrap_or_default();
        self.files
            .push(VersionedFile::found(pattern.clone(), listed));
        let found = found.map_err(|error| file_errors::explain(&pattern, &error))?;
        if found.is_empty() {
            let path = std::path::absolute(&pattern).unwrap_or(pattern);
            let finding = warn_no_effect(node, "no file matches this pattern");
            self.findings
                .push(finding.help(file_errors::missing(&path)));
        }
        found.iter().try_for_each(|path| self.file(path))
    }

    fn file(&mut self, path: &Path) -> Result<(), (String, String)> {
        if FileVersion::of(path).is_some_and(|version| !self.seen.insert(version)) {
            return Ok(());
        }
        if self.texts.len() == MAX_FILES {
            return refused("more than 1,000 files are included", "join some of them");
        }
        let name = visible::text(&path.display().to_string());
        let room = MAX_TEXT.saturating_sub(self.bytes);
        let read = files::replaceable(path).and_then(|()| files::read(path, room));
        let bytes = match read {
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                let message = format!("with {name}, all files have more than 16 MiB");
                return refused(&message, "is it the right file?");
            }
            Err(error) if error.kind() == ErrorKind::IsADirectory => {
                let message = format!("{name} is a directory");
                return refused(&message, &format!("write `{name}/*.yaml`"));
            }
            read => read.map_err(|error| file_errors::explain(path, &error))?,
        };
        self.bytes += bytes.len() as u64;
        let text = file_errors::text(bytes)
            .or_else(|(message, help)| refused(&format!("{name}: {message}"), help))?;
        self.texts.push((name, text));
        Ok(())
    }
}

fn refused<T>(message: &str, help: &str) -> Result<T, (String, String)> {
    Err((message.to_owned(), help.to_owned()))
}
