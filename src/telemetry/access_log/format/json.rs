//! A line as JSON (RFC 8259), with the fields that are asked for.

use std::sync::Arc;
use std::time::Duration;

use super::Formatter;
use super::escape::{escape, hex, special};
use super::values::{address, digits, milliseconds, number, version};
use crate::telemetry::access_log::{LogField, LoggedHeader, LoggedKey, Record};
use crate::visible;

impl Formatter {
    /// Appends the line of a request as JSON.
    pub(super) fn json(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        let start = out.len();
        for index in 0..self.fields.len() {
            self.json_field(self.fields[index], out, record);
        }
        // Each field begins with a comma; that of the first becomes the brace.
        match out.get_mut(start) {
            Some(comma) => *comma = b'{',
            None => out.push(b'{'),
        }
        out.extend_from_slice(b"}\n");
    }

    /// Appends a field with its comma, unless the request has no such field.
    fn json_field(&mut self, field: LogField, out: &mut Vec<u8>, record: &Record<'_>) {
        match field {
            LogField::Time => {
                out.extend_from_slice(b",\"time\":\"");
                out.extend_from_slice(self.second(record.time, "%Y-%m-%dT%H:%M:%S").as_bytes());
                out.push(b'.');
                digits::<6>(out, record.time.as_micros() % 1_000_000);
                out.extend_from_slice(b"Z\"");
            }
            LogField::ClientIp => {
                out.extend_from_slice(b",\"client_ip\":\"");
                address(out, record.client_ip);
                out.push(b'"');
            }
            LogField::Client => client(out, record.client),
            LogField::Method => plain(out, b",\"method\":\"", record.method),
            LogField::Host => json_text(out, b",\"host\":\"", record.texts.host),
            LogField::Path => json_text(out, b",\"path\":\"", record.texts.path),
            LogField::Version => plain(out, b",\"version\":\"", version(record.version)),
            LogField::Status => {
                out.extend_from_slice(b",\"status\":");
                out.extend_from_slice(record.status.as_str().as_bytes());
            }
            LogField::Bytes => count(out, b",\"bytes\":", Some(record.bytes)),
            LogField::DurationMs => time(out, b",\"duration_ms\":", Some(record.duration)),
            LogField::DelayMs => time(out, b",\"delay_ms\":", record.delay),
            LogField::PendingMs => time(out, b",\"pending_ms\":", record.pending),
            LogField::UpstreamMs => time(out, b",\"upstream_ms\":", record.upstream_time),
            LogField::Attempts => {
                let several = Some(record.attempts).filter(|&attempts| attempts > 1);
                count(out, b",\"attempts\":", several);
            }
            LogField::Costs => costs(out, record.costs),
            LogField::Route => text(out, b",\"route\":\"", record.route),
            LogField::Upstream => text(out, b",\"upstream\":\"", record.upstream),
            LogField::Endpoint => text(out, b",\"endpoint\":\"", record.endpoint),
            LogField::Error => text(out, b",\"error\":\"", record.error),
            LogField::Policy => text(out, b",\"policy\":\"", record.limits.policy),
            LogField::Decision => {
                text(out, b",\"decision\":\"", record.limits.decision.as_str());
            }
            LogField::Banned if record.limits.is_banned => {
                out.extend_from_slice(b",\"banned\":true")
            }
            LogField::Banned => {}
            LogField::Granted => {
                let policies = record.limits.granted.iter();
                let policies = policies.map(|policy| policy.as_bytes());
                json_list(out, b",\"granted\":[\"", policies);
            }
            LogField::Key => key(out, record.limits.key),
            LogField::Remaining => count(out, b",\"remaining\":", record.limits.remaining),
            LogField::RetryAfterMs => time(out, b",\"retry_after_ms\":", record.limits.retry_after),
            LogField::Referer => text(out, b",\"referer\":\"", record.texts.referer),
            LogField::UserAgent => text(out, b",\"user_agent\":\"", record.texts.user_agent),
            LogField::RequestId => text(out, b",\"request_id\":\"", record.texts.request_id),
            LogField::TraceId => text(out, b",\"trace_id\":\"", record.texts.trace_id),
            LogField::TlsVersion => text(out, b",\"tls_version\":\"", record.tls_version),
            LogField::Headers => headers(out, record.headers),
        }
    }
}

/// A text in which nothing has to be escaped.
fn plain(out: &mut Vec<u8>, opening: &[u8], text: &[u8]) {
    out.extend_from_slice(opening);
    out.extend_from_slice(text);
    out.push(b'"');
}

/// The client's name, then its columns.
fn client(out: &mut Vec<u8>, client: &[(&str, &str)]) {
    for (column, value) in client.iter().filter(|(_, value)| !value.is_empty()) {
        // A column has letters, digits and `_.-` only.
        let separator = if column.is_empty() { "" } else { ":" };
        let opening = format!(",\"client{separator}{column}\":\"");
        json_text(out, opening.as_bytes(), value.as_bytes());
    }
}

/// A text, unless it is empty.
fn text(out: &mut Vec<u8>, opening: &[u8], text: impl AsRef<[u8]>) {
    let text = text.as_ref();
    if !text.is_empty() {
        json_text(out, opening, text);
    }
}

/// A number, if there is one.
fn count(out: &mut Vec<u8>, opening: &[u8], count: Option<impl Into<u64>>) {
    if let Some(count) = count {
        out.extend_from_slice(opening);
        number(out, count.into());
    }
}

/// A time in milliseconds, if there is one.
fn time(out: &mut Vec<u8>, opening: &[u8], time: Option<Duration>) {
    if let Some(time) = time {
        out.extend_from_slice(opening);
        milliseconds(out, time);
    }
}

/// The key of a bucket: its hash, the value of its one part, or a list of those of all parts.
fn key(out: &mut Vec<u8>, key: LoggedKey<'_>) {
    match key {
        LoggedKey::None | LoggedKey::Readable([]) => {}
        LoggedKey::Hashed(hash) => {
            out.extend_from_slice(b",\"key\":\"k_");
            for byte in hash.to_be_bytes() {
                out.extend_from_slice(&[
                    LOWER[usize::from(byte >> 4)],
                    LOWER[usize::from(byte & 15)],
                ]);
            }
            out.push(b'"');
        }
        LoggedKey::Readable([value]) => json_text(out, b",\"key\":\"", value),
        LoggedKey::Readable(values) => {
            json_list(out, b",\"key\":[\"", values.iter().map(|value| &**value));
        }
    }
}

const LOWER: &[u8; 16] = b"0123456789abcdef";

/// Header fields by name: a text, or a list for several fields of one name. Then the names of those
/// that were cut.
fn headers(out: &mut Vec<u8>, headers: &[LoggedHeader<'_>]) {
    if headers.is_empty() {
        return;
    }
    let fields = || headers.chunk_by(|one, next| one.name == next.name);
    let mut opening: &[u8] = b",\"headers\":{\"";
    for field in fields() {
        plain(out, opening, field[0].name.as_bytes());
        opening = b",\"";
        match field {
            [header] => json_text(out, b":\"", header.value),
            several => json_list(out, b":[\"", several.iter().map(|header| header.value)),
        }
    }
    out.push(b'}');
    let cut = fields().filter(|field| field.iter().any(|header| header.is_cut));
    json_list(
        out,
        b",\"truncated\":[\"",
        cut.map(|field| field[0].name.as_bytes()),
    );
}

/// Costs that the response stated, by policy.
fn costs(out: &mut Vec<u8>, costs: &[(Arc<str>, u32)]) {
    for (place, (policy, units)) in costs.iter().enumerate() {
        let opening: &[u8] = match place {
            0 => b",\"costs\":{\"",
            _ => b",\"",
        };
        json_text(out, opening, policy.as_bytes());
        out.push(b':');
        number(out, (*units).into());
    }
    if !costs.is_empty() {
        out.push(b'}');
    }
}

/// Texts after an opening that has the quote of the first; nothing without texts.
fn json_list<'a>(out: &mut Vec<u8>, opening: &[u8], texts: impl Iterator<Item = &'a [u8]>) {
    let mut before = opening;
    for text in texts {
        json_text(out, before, text);
        before = b",\"";
    }
    if before != opening {
        out.push(b']');
    }
}

/// Appends what opens a text, the text and its closing quote.
fn json_text(out: &mut Vec<u8>, opening: &[u8], text: &[u8]) {
    out.extend_from_slice(opening);
    escaped(out, text);
    out.push(b'"');
}

/// Escapes what people would not see as it is: readers of JSON get the same text.
fn escaped(out: &mut Vec<u8>, text: &[u8]) {
    // Nearly all texts are ASCII that stands for itself.
    static SPECIAL: [bool; 256] = special(0x80);
    if !text.iter().any(|&byte| SPECIAL[usize::from(byte)]) {
        return out.extend_from_slice(text);
    }
    if text.is_ascii() {
        return json_escape(out, text);
    }
    for chunk in text.utf8_chunks() {
        for (letter, is_marked) in visible::marked(chunk.valid()) {
            let (mut bytes, mut units) = ([0; 4], [0; 2]);
            if letter.is_ascii() || !is_marked {
                json_escape(out, letter.encode_utf8(&mut bytes).as_bytes());
                continue;
            }
            for unit in letter.encode_utf16(&mut units) {
                out.extend_from_slice(b"\\u");
                for byte in unit.to_be_bytes() {
                    hex(out, byte);
                }
            }
        }
        if !chunk.invalid().is_empty() {
            // What is no text cannot stand in JSON.
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// RFC 8259 section 7.
fn json_escape(out: &mut Vec<u8>, text: &[u8]) {
    static SPECIAL: [bool; 256] = special(0x100);
    escape(out, text, &SPECIAL, |out, byte| match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        byte => {
            out.extend_from_slice(b"\\u00");
            hex(out, byte);
        }
    });
}
