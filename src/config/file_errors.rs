//! Messages on unreadable files: the reason, the absolute path, and advice.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// The most bytes of a configuration, with the files that it includes.
pub(super) const MAX_TEXT: u64 = 16 << 20;

/// The message and the advice.
pub(super) fn explain(path: &Path, error: &Error) -> (String, String) {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let shown = path.display();
    let (what, help) = match error.kind() {
        ErrorKind::NotFound => ("there is no such file", missing(&path)),
        ErrorKind::NotADirectory => ("a part of its path isn't a directory", missing(&path)),
        ErrorKind::IsADirectory => ("it is a directory", "name the file within".to_owned()),
        ErrorKind::PermissionDenied => (
            &*format!("permission denied for user {}", own_user()),
            format!("look at `ls -l {shown}`, and at the directories above it"),
        ),
        ErrorKind::FileTooLarge => ("it is too large", "is it the right file?".to_owned()),
        _ => (&*error.to_string(), format!("try `cat {shown}`")),
    };
    (format!("{shown} cannot be read: {what}"), help)
}

/// The user of this process: its name, if /etc/passwd has it, and its number.
fn own_user() -> String {
    let id = rustix::process::geteuid().to_string();
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut users = known.lines().map(|line| line.split(':'));
    let name = users.find_map(|mut user| {
        let name = user.next()?;
        (user.nth(1)? == id).then(|| name.to_owned())
    });
    name.map_or_else(|| id.clone(), |name| format!("{name} ({id})"))
}

/// Names the deepest existing directory on the way to a missing file.
pub(super) fn missing(path: &Path) -> String {
    let Some(there) = path.ancestors().skip(1).find(|above| above.is_dir()) else {
        return "look at the path".to_owned();
    };
    if Some(there) == path.parent() {
        let there = there.display();
        return format!("look at the name: its directory {there} is there");
    }
    let rest = path.strip_prefix(there).unwrap_or(path).components();
    let next: PathBuf = there.components().chain(rest.take(1)).collect();
    format!("look at the path: there is no directory {}", next.display())
}

/// The text of a file, or why it is none, with advice.
pub(super) fn text(bytes: Vec<u8>) -> Result<String, (String, &'static str)> {
    if is_utf16(&bytes) {
        let help = "save it as UTF-8, as `iconv -f UTF-16 -t UTF-8 FILE` prints it";
        return Err(("it is UTF-16, and not UTF-8".to_owned(), help));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|&&b| b == b'\n').count() + 1;
        let message = format!("it isn't UTF-8 text, from line {line} on");
        (message, "save it as UTF-8")
    })
}

/// True if a text begins with the byte order mark of UTF-16, or with two UTF-16 letters.
fn is_utf16(bytes: &[u8]) -> bool {
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => true,
        [a, b, c, d, ..] => matches!(
            [a, b, c, d].map(|byte| *byte == 0),
            [true, false, true, false] | [false, true, false, true]
        ),
        _ => false,
    }
}
