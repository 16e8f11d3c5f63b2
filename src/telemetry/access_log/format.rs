//! How a line is written: JSON, or the combined log format.

use std::{io::Write, net::IpAddr, sync::Arc, time::Duration};

use http::Version;

use super::{LineFormat, Record};
use crate::clock::Timestamp;

/// Writes lines of one format; keeps the last second as text, as most lines share it.
#[derive(Debug)]
pub(super) struct Formatter {
    format: LineFormat,
    second: Option<i64>,
    second_text: String,
}

impl Formatter {
    pub(super) fn new(format: LineFormat) -> Self {
        Self {
            format,
            second: None,
            second_text: String::new(),
        }
    }

    /// Appends one line with its newline.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        match self.format {
            LineFormat::Json => self.json(out, record),
            LineFormat::Combined => self.combined(out, record),
        }
    }

    fn json(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(self.second(record.time, "%Y-%m-%dT%H:%M:%S").as_bytes());
        out.push(b'.');
        digits::<6>(out, record.time.as_micros() % 1_000_000);
        out.extend_from_slice(b"Z\",\"client_ip\":\"");
        address(out, record.client_ip);
        // A token, in which nothing has to be escaped.
        out.extend_from_slice(b"\",\"method\":\"");
        out.extend_from_slice(record.method);
        json_text(out, b"\",\"host\":\"", record.host);
        json_text(out, b"\",\"path\":\"", record.path);
        out.extend_from_slice(b"\",\"version\":\"");
        out.extend_from_slice(version(record.version));
        out.extend_from_slice(b"\",\"status\":");
        out.extend_from_slice(record.status.as_str().as_bytes());
        out.extend_from_slice(b",\"bytes\":");
        number(out, record.bytes);
        out.extend_from_slice(b",\"duration_ms\":");
        milliseconds(out, record.duration);
        for (key, part) in [
            (&b",\"delay_ms\":"[..], record.delay),
            (b",\"pending_ms\":", record.pending),
            (b",\"upstream_ms\":", record.upstream_time),
        ] {
            if let Some(part) = part {
                out.extend_from_slice(key);
                milliseconds(out, part);
            }
        }
        if record.attempts > 1 {
            out.extend_from_slice(b",\"attempts\":");
            number(out, record.attempts.into());
        }
        costs(out, record.costs);
        for (key, text) in [
            (&b",\"route\":\""[..], record.route),
            (b",\"upstream\":\"", record.upstream),
            (b",\"endpoint\":\"", record.endpoint),
            (b",\"error\":\"", record.error.as_bytes()),
            (b",\"policy\":\"", record.policy),
            (b",\"decision\":\"", record.decision.as_bytes()),
            (b",\"referer\":\"", record.referer),
            (b",\"user_agent\":\"", record.user_agent),
            (b",\"request_id\":\"", record.request_id),
        ] {
            if !text.is_empty() {
                json_text(out, key, text);
                out.push(b'"');
            }
        }
        out.extend_from_slice(b"}\n");
    }

    fn combined(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        address(out, record.client_ip);
        let time = self.second(record.time, " - - [%d/%b/%Y:%H:%M:%S +0000] \"");
        out.extend_from_slice(time.as_bytes());
        // A token, in which nothing has to be escaped.
        out.extend_from_slice(record.method);
        combined_text(out, b" ", record.path);
        out.push(b' ');
        out.extend_from_slice(version(record.version));
        out.extend_from_slice(b"\" ");
        out.extend_from_slice(record.status.as_str().as_bytes());
        out.push(b' ');
        number(out, record.bytes);
        combined_text(out, b" \"", record.referer);
        combined_text(out, b"\" \"", record.user_agent);
        out.extend_from_slice(b"\"\n");
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

/// Costs that the response stated, by policy.
fn costs(out: &mut Vec<u8>, costs: &[(Arc<str>, u32)]) {
    for (place, (policy, units)) in costs.iter().enumerate() {
        let opening: &[u8] = match place {
            0 => b",\"costs\":{\"",
            _ => b",\"",
        };
        json_text(out, opening, policy.as_bytes());
        out.extend_from_slice(b"\":");
        number(out, (*units).into());
    }
    if !costs.is_empty() {
        out.push(b'}');
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
    match address {
        IpAddr::V4(address) => {
            let (mut text, mut end) = ([0; 16], 0);
            for octet in address.octets() {
                let (digits, length) = OCTETS[usize::from(octet)];
                text[end..end + 4].copy_from_slice(&digits);
                end += length;
            }
            // The last has no dot.
            out.extend_from_slice(&text[..end - 1]);
        }
        IpAddr::V6(address) => write!(out, "{address}").expect("writing to a Vec cannot fail"),
    }
}

/// Every octet with a dot behind it, and how long that is.
static OCTETS: [([u8; 4], usize); 256] = {
    let mut octets = [([b'.'; 4], 0); 256];
    let mut octet = 0;
    while octet < 256 {
        let (text, length) = &mut octets[octet];
        let mut power = 100;
        while power > 0 {
            if octet >= power || power == 1 {
                text[*length] = b'0' + (octet / power % 10) as u8;
                *length += 1;
            }
            power /= 10;
        }
        *length += 1;
        octet += 1;
    }
    octets
};

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the last digits of a number, with zeros in front.
fn digits<const COUNT: usize>(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; COUNT];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    out.extend_from_slice(&digits);
}

fn milliseconds(out: &mut Vec<u8>, duration: Duration) {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    number(out, micros / 1_000);
    out.push(b'.');
    digits::<3>(out, micros % 1_000);
}

/// Appends what opens a text, and the text, whose closing quote comes with what follows.
fn json_text(out: &mut Vec<u8>, opening: &[u8], text: &[u8]) {
    out.extend_from_slice(opening);
    // Nearly all texts are ASCII, and known to be so at a glance.
    if text.is_ascii() {
        return json_escape(out, text);
    }
    for chunk in text.utf8_chunks() {
        json_escape(out, chunk.valid().as_bytes());
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

/// The bytes that cannot stand in quotes: control characters, what ends quotes, and those from
/// `end` on.
const fn special(end: usize) -> [bool; 256] {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        special[byte] = byte < 0x20 || byte >= end;
        byte += 1;
    }
    special[b'"' as usize] = true;
    special[b'\\' as usize] = true;
    special
}

/// Appends `text`, with its special bytes replaced.
fn escape(
    out: &mut Vec<u8>,
    mut text: &[u8],
    special: &[bool; 256],
    replace: impl Fn(&mut Vec<u8>, u8),
) {
    while let Some(at) = text.iter().position(|&byte| special[usize::from(byte)]) {
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
    use http::StatusCode;

    use super::*;

    fn record<'a>(path: &'a [u8], user_agent: &'a [u8]) -> Record<'a> {
        Record {
            time: Timestamp::from_micros(1_795_236_060_007_999),
            client_ip: [192, 0, 2, 7].into(),
            method: b"GET",
            host: b"api.example.com",
            path,
            version: Version::HTTP_11,
            status: StatusCode::TOO_MANY_REQUESTS,
            bytes: 180,
            duration: Duration::from_micros(1_204),
            delay: None,
            pending: None,
            upstream_time: None,
            route: b"search",
            upstream: b"",
            endpoint: b"",
            attempts: 1,
            error: "",
            policy: b"per-key",
            decision: "limited",
            costs: &[],
            referer: b"",
            user_agent,
            request_id: b"",
        }
    }

    fn line(format: LineFormat, record: &Record<'_>) -> String {
        let mut out = Vec::new();
        Formatter::new(format).write(&mut out, record);
        String::from_utf8(out).expect("lines are UTF-8")
    }

    #[test]
    fn json_has_what_replay_reads() {
        let line = line(LineFormat::Json, &record(b"/v1/search?q=a", b"curl/8.5.0"));
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
            pending: None,
            upstream_time: Some(Duration::from_millis(3)),
            ..record(b"/", b"")
        };
        let line = line(LineFormat::Json, &delayed);
        let said = "\"duration_ms\":1.204,\"delay_ms\":250.500,\"upstream_ms\":3.000,";
        assert!(line.contains(said), "{line}");
    }

    #[test]
    fn json_names_the_endpoint_and_why_it_failed() {
        let failed = Record {
            upstream: b"api",
            endpoint: b"10.0.0.7:80",
            attempts: 2,
            error: "connect",
            ..record(b"/", b"")
        };
        let line = line(LineFormat::Json, &failed);
        let said = "\"route\":\"search\",\"upstream\":\"api\",\"endpoint\":\"10.0.0.7:80\",\"error\":\"connect\",";
        assert!(line.contains(said), "{line}");
        assert!(
            line.contains("\"duration_ms\":1.204,\"attempts\":2,"),
            "{line}"
        );
    }

    #[test]
    fn json_has_the_costs_that_the_response_stated() {
        let costs = [("tokens".into(), 57), ("a\"b".into(), 0)];
        let stated = Record {
            costs: &costs,
            ..record(b"/", b"")
        };
        let line = line(LineFormat::Json, &stated);
        let said = "\"duration_ms\":1.204,\"costs\":{\"tokens\":57,\"a\\\"b\":0},\"route\"";
        assert!(line.contains(said), "{line}");
    }

    #[test]
    fn combined_is_what_nginx_writes() {
        let line = line(
            LineFormat::Combined,
            &record(b"/v1/search?q=a", b"curl/8.5.0"),
        );
        assert_eq!(
            line,
            "192.0.2.7 - - [21/Nov/2026:04:41:00 +0000] \"GET /v1/search?q=a HTTP/1.1\" 429 180 \
             \"-\" \"curl/8.5.0\"\n"
        );
    }

    #[test]
    fn any_byte_gives_json_that_reads_back() {
        let all: Vec<u8> = (0..=255).collect();
        let line = line(LineFormat::Json, &record(b"/", &all));
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let text = value["user_agent"].as_str().expect("a string");
        assert_eq!(text, String::from_utf8_lossy(&all));
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn no_byte_breaks_out_of_the_quotes_of_combined() {
        let all: Vec<u8> = (0..=255).collect();
        let line = line(LineFormat::Combined, &record(b"/", &all));
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
        let mut formatter = Formatter::new(LineFormat::Json);
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
        let mut out = Vec::new();
        number(&mut out, u64::MAX);
        digits::<3>(&mut out, 7);
        number(&mut out, 0);
        digits::<6>(&mut out, 1_234_567);
        assert_eq!(out, b"184467440737095516150070234567");
    }

    #[test]
    fn addresses_are_written_as_people_write_them() {
        let octets = (0..=255).map(|octet| IpAddr::from([octet, 255 - octet, 0, octet]));
        let others = ["192.0.2.7", "255.255.255.255", "2001:db8::7"];
        let others = others.map(|text| text.parse().expect("an address"));
        for one in octets.chain(others) {
            let mut out = Vec::new();
            address(&mut out, one);
            assert_eq!(out, one.to_string().as_bytes());
        }
    }
}
