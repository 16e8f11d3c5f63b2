//! Texts that options name: a file, or stdin as `-`.

use std::io::{self, Read};
use std::path::Path;

use crate::files;

/// True for the name of stdin.
pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The text of a file of up to `max` bytes, or of stdin for `-`.
///
/// # Errors
/// Says why `what` cannot be read. It never has the text.
pub(super) fn read(path: &Path, max: u64, what: &str) -> Result<String, String> {
    let bytes = if is_stdin(path) {
        read_stdin(max)
    } else {
        files::read(path, max)
    };
    let wrong = |why: &str| format!("cannot read the {what} from {}: {why}", path.display());
    let bytes = bytes.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => wrong(&format!("it has more than {} KiB", max >> 10)),
        _ => wrong(&error.to_string()),
    })?;
    String::from_utf8(bytes).map_err(|_| wrong("it isn't UTF-8"))
}

fn read_stdin(max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let stdin = io::stdin().lock();
    stdin.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        Err(io::ErrorKind::FileTooLarge.into())
    } else {
        Ok(bytes)
    }
}
