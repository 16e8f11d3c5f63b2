//! How a line is written: JSON, or the combined log format.

use std::{io::Write, net::IpAddr, time::Duration};

use http::Version;

use super::{Format, Record};
use crate::clock::Timestamp;

/// Writes lines of one format; keeps the last second as text, as most lines share it.
#[derive(Debug)]
pub(super) struct Formatter {
    format: Format,
    second: Option<i64>,
    second_text: String,
}

impl Formatter {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            second: None,
            second_text: String::new(),
        }
    }

    /// Appends one line with its newline.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        match self.format {
            Format::Json => self.json(out, record),
            Format::Combined => self.combined(out, record),
        }
    }

    fn json(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(self.second(record.time, "%Y-%m-%dT%H:%M:%S").as_bytes());
        out.push(b'.');
        number(out, record.time.as_micros() % 1_000_000, 6);
        out.extend_from_slice(b"Z\",\"client_ip\":\"");
        address(out, record.client_ip);
        out.push(b'"');
        json_text(out, "method", record.method);
        json_text(out, "host", record.host);
        json_text(out, "path", record.path);
        json_text(out, "version", version(record.version));
        json_key(out, "status");
        number(out, record.status.into(), 1);
        json_key(out, "bytes");
        number(out, record.bytes, 1);
        json_key(out, "duration_ms");
        milliseconds(out, record.duration);
        for (key, part) in [("delay_ms", record.delay), ("upstream_ms", record.upstream)] {
            if let Some(part) = part {
                json_key(out, key);
                milliseconds(out, part);
            }
        }
        for (key, text) in [
            ("route", record.route),
            ("policy", record.policy),
            ("decision", record.decision.as_bytes()),
            ("referer", record.referer),
            ("user_agent", record.user_agent),
            ("request_id", record.request_id),
        ] {
            if !text.is_empty() {
                json_text(out, key, text);
            }
        }
        out.extend_from_slice(b"}\n");
    }

    fn combined(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        address(out, record.client_ip);
        out.extend_from_slice(b" - - [");
        out.extend_from_slice(self.second(record.time, "%d/%b/%Y:%H:%M:%S").as_bytes());
        out.extend_from_slice(b" +0000] \"");
        combined_text(out, record.method);
        out.push(b' ');
        combined_text(out, record.path);
        out.push(b' ');
        out.extend_from_slice(version(record.version));
        out.extend_from_slice(b"\" ");
        number(out, record.status.into(), 1);
        out.push(b' ');
        number(out, record.bytes, 1);
        for text in [record.referer, record.user_agent] {
            out.extend_from_slice(b" \"");
            combined_text(out, text);
            out.push(b'"');
        }
        out.push(b'\n');
    }

    /// Returns the whole second in UTC, written as `strftime` says.
    fn second(&mut self, time: Timestamp, strftime: &str) -> &str {
        let second = i64::try_from(time.as_micros() / 1_000_000).unwrap_or(i64::MAX);
        if self.second != Some(second) {
            let time = jiff::Timestamp::from_second(second).unwrap_or(jiff::Timestamp::MAX);
            self.second = Some(second);
            self.second_text = time.strftime(strftime).to_string();
        }
        &self.second_text
    }
}

fn version(version: Version) -> &'static [u8] {
    match version {
        Version::HTTP_10 => b"HTTP/1.0",
        Version::HTTP_2 => b"HTTP/2.0",
        Version::HTTP_3 => b"HTTP/3.0",
        _ => b"HTTP/1.1",
    }
}

fn address(out: &mut Vec<u8>, address: IpAddr) {
    write!(out, "{address}").expect("writing to a Vec cannot fail");
}

/// Appends a number in decimal, with zeros in front up to `width` digits.
fn number(out: &mut Vec<u8>, mut n: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    while n > 0 {
        start -= 1;
        digits[start] = b'0' + (n % 10) as u8;
        n /= 10;
    }
    out.extend_from_slice(&digits[start.min(digits.len() - width)..]);
}

fn milliseconds(out: &mut Vec<u8>, duration: Duration) {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    number(out, micros / 1_000, 1);
    out.push(b'.');
    number(out, micros % 1_000, 3);
}

fn json_key(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn json_text(out: &mut Vec<u8>, key: &str, text: &[u8]) {
    json_key(out, key);
    out.push(b'"');
    // Nearly all texts are ASCII, and known to be so at a glance.
    if text.is_ascii() {
        json_escape(out, text);
    } else {
        for chunk in text.utf8_chunks() {
            json_escape(out, chunk.valid().as_bytes());
            if !chunk.invalid().is_empty() {
                // What is no text cannot stand in JSON.
                out.extend_from_slice("\u{fffd}".as_bytes());
            }
        }
    }
    out.push(b'"');
}

/// RFC 8259 section 7.
fn json_escape(out: &mut Vec<u8>, text: &[u8]) {
    let special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    escape(out, text, special, |out, byte| match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        byte => {
            out.extend_from_slice(b"\\u00");
            hex(out, byte);
        }
    });
}

/// As nginx does: nothing that is quoted can end the quotes or the line, or be a control character.
fn combined_text(out: &mut Vec<u8>, text: &[u8]) {
    if text.is_empty() {
        return out.push(b'-');
    }
    let special = |byte: u8| byte == b'"' || byte == b'\\' || !(0x20..0x7f).contains(&byte);
    escape(out, text, special, |out, byte| {
        out.extend_from_slice(b"\\x");
        hex(out, byte);
    });
}

/// Appends `text`, with its special bytes replaced.
fn escape(
    out: &mut Vec<u8>,
    mut text: &[u8],
    special: impl Fn(u8) -> bool,
    replace: impl Fn(&mut Vec<u8>, u8),
) {
    while let Some(at) = text.iter().position(|&byte| special(byte)) {
        out.extend_from_slice(&text[..at]);
        replace(out, text[at]);
        text = &text[at + 1..];
    }
    out.extend_from_slice(text);
}

fn hex(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record<'a>(path: &'a [u8], user_agent: &'a [u8]) -> Record<'a> {
        Record {
            time: Timestamp::from_micros(1_795_236_060_007_999),
            client_ip: [192, 0, 2, 7].into(),
            method: b"GET",
            host: b"api.example.com",
            path,
            version: Version::HTTP_11,
            status: 429,
            bytes: 180,
            duration: Duration::from_micros(1_204),
            delay: None,
            upstream: None,
            route: b"search",
            policy: b"per-key",
            decision: "limited",
            referer: b"",
            user_agent,
            request_id: b"",
        }
    }

    fn line(format: Format, record: &Record<'_>) -> String {
        let mut out = Vec::new();
        Formatter::new(format).write(&mut out, record);
        String::from_utf8(out).expect("lines are UTF-8")
    }

    #[test]
    fn json_has_what_replay_reads() {
        let line = line(Format::Json, &record(b"/v1/search?q=a", b"curl/8.5.0"));
        assert_eq!(
            line,
            "{\"time\":\"2026-11-21T04:41:00.007999Z\",\"client_ip\":\"192.0.2.7\",\"method\":\"GET\",\
             \"host\":\"api.example.com\",\"path\":\"/v1/search?q=a\",\"version\":\"HTTP/1.1\",\
             \"status\":429,\"bytes\":180,\"duration_ms\":1.204,\"route\":\"search\",\
             \"policy\":\"per-key\",\"decision\":\"limited\",\"user_agent\":\"curl/8.5.0\"}\n"
        );
    }

    #[test]
    fn json_says_how_long_a_request_had_to_wait() {
        let delayed = Record {
            delay: Some(Duration::from_micros(250_500)),
            upstream: Some(Duration::from_millis(3)),
            ..record(b"/", b"")
        };
        let line = line(Format::Json, &delayed);
        let said = "\"duration_ms\":1.204,\"delay_ms\":250.500,\"upstream_ms\":3.000,";
        assert!(line.contains(said), "{line}");
    }

    #[test]
    fn combined_is_what_nginx_writes() {
        let line = line(Format::Combined, &record(b"/v1/search?q=a", b"curl/8.5.0"));
        assert_eq!(
            line,
            "192.0.2.7 - - [21/Nov/2026:04:41:00 +0000] \"GET /v1/search?q=a HTTP/1.1\" 429 180 \
             \"-\" \"curl/8.5.0\"\n"
        );
    }

    #[test]
    fn any_byte_gives_json_that_reads_back() {
        let all: Vec<u8> = (0..=255).collect();
        let line = line(Format::Json, &record(b"/", &all));
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let text = value["user_agent"].as_str().expect("a string");
        assert_eq!(text, String::from_utf8_lossy(&all));
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn no_byte_breaks_out_of_the_quotes_of_combined() {
        let all: Vec<u8> = (0..=255).collect();
        let line = line(Format::Combined, &record(b"/", &all));
        assert_eq!(line.matches('"').count(), 6);
        assert!(
            line.trim_end()
                .bytes()
                .all(|byte| (0x20..0x7f).contains(&byte))
        );
        assert!(line.contains("\\x22") && line.contains("\\x5C") && line.contains("\\x0A"));
    }

    #[test]
    fn a_new_second_is_written_anew() {
        let mut formatter = Formatter::new(Format::Json);
        let mut second = |micros| {
            formatter
                .second(Timestamp::from_micros(micros), "%S")
                .to_owned()
        };
        assert_eq!(
            (second(0), second(999_999), second(1_000_000)),
            ("00".into(), "00".into(), "01".into())
        );
    }

    #[test]
    fn numbers_keep_their_width() {
        let write = |n, width| {
            let mut out = Vec::new();
            number(&mut out, n, width);
            String::from_utf8(out).expect("digits")
        };
        assert_eq!(
            [write(0, 1), write(7, 3), write(u64::MAX, 1)],
            ["0", "007", "18446744073709551615"]
        );
    }
}
