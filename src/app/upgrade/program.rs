//! The program that this process runs, as it was started.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{PROTOCOL, VARIABLE};

/// Runs a program with the shell's own standard input, which a program in the background doesn't have.
const IN_THE_BACKGROUND: &str = r#"exec 3<&0; "$0" "$@" <&3 3<&- &"#;

/// The program, its arguments and its directory.
#[derive(Clone, Debug)]
pub(in crate::app) struct Program {
    /// A file with this name is the next version, also if the name was a link.
    pub(in crate::app) path: PathBuf,
    arguments: Vec<OsString>,
    directory: PathBuf,
}

impl Program {
    /// The program of this process. To be called before its file is replaced.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(in crate::app) fn of_this_process() -> io::Result<Self> {
        let directory = env::current_dir()?;
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_default();
        let path = named(&name.into(), &directory, &env::current_exe()?);
        Ok(Self {
            path,
            arguments: arguments.collect(),
            directory,
        })
    }

    /// Starts the program, which talks to this process over its standard input. If it `is_detached`, the
    /// child is a shell that ends at once; the program is the other process of the shell's group.
    pub(super) fn start(&self, input: OwnedFd, is_detached: bool) -> io::Result<Child> {
        let mut command = if is_detached {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", IN_THE_BACKGROUND]).arg(&self.path);
            shell.process_group(0);
            shell
        } else {
            Command::new(&self.path)
        };
        command
            .args(&self.arguments)
            .current_dir(&self.directory)
            .env(VARIABLE, PROTOCOL)
            .stdin(Stdio::from(input))
            .spawn()
    }
}

/// The path by which `running` was called, since that may be a link which will lead to another version;
/// or else the path of its file.
fn named(name: &PathBuf, directory: &Path, running: &Path) -> PathBuf {
    let places = if name.components().count() > 1 {
        vec![directory.join(name)]
    } else {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = env::split_paths(&path);
        folders
            .map(|folder| directory.join(folder).join(name))
            .collect()
    };
    let is_it = |place: &PathBuf| fs::canonicalize(place).is_ok_and(|file| file == running);
    places
        .into_iter()
        .find(is_it)
        .unwrap_or_else(|| running.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_that_was_called_is_followed_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("it is there");
        let (file, link) = (folder.join("v1"), folder.join("current"));
        fs::write(&file, "").expect("writable");
        symlink(&file, &link).expect("a link");
        assert_eq!(
            named(&"./current".into(), &folder, &file),
            folder.join("./current")
        );
        assert_eq!(named(&link, Path::new("/"), &file), link);
        // The name it was called by isn't a path of it.
        assert_eq!(named(&"other".into(), &folder, &file), file);
        assert_eq!(named(&"/bin/sh".into(), &folder, &file), file);
    }
}
