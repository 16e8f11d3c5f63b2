//! A line in the combined log format, as nginx writes it.

use super::Formatter;
use super::escape::{escape, hex, special};
use super::values::{address, number, version};
use crate::telemetry::access_log::Record;

impl Formatter {
    /// Appends the line of a request in the combined log format.
    pub(super) fn combined(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        address(out, record.client_ip);
        let time = self.second(record.time, " - - [%d/%b/%Y:%H:%M:%S +0000] \"");
        out.extend_from_slice(time.as_bytes());
        // A token, in which nothing has to be escaped.
        out.extend_from_slice(record.method);
        combined_text(out, b" ", record.texts.path);
        out.push(b' ');
        out.extend_from_slice(version(record.version));
        out.extend_from_slice(b"\" ");
        out.extend_from_slice(record.status.as_str().as_bytes());
        out.push(b' ');
        number(out, record.bytes);
        combined_text(out, b" \"", record.texts.referer);
        combined_text(out, b"\" \"", record.texts.user_agent);
        out.extend_from_slice(b"\"\n");
    }
}

/// Appends what comes before a text, and the text as nginx does: nothing that is quoted can end the
/// quotes or the line, or be a control character.
fn combined_text(out: &mut Vec<u8>, before: &[u8], text: &[u8]) {
    out.extend_from_slice(before);
    if text.is_empty() {
        return out.push(b'-');
    }
    static SPECIAL: [bool; 256] = special(0x7f);
    escape(out, text, &SPECIAL, |out, byte| {
        out.extend_from_slice(b"\\x");
        hex(out, byte);
    });
}
