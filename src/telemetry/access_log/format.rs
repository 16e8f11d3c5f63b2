//! How a line is written: JSON, or the combined log format.

use std::{io::Write, net::IpAddr, sync::Arc, time::Duration};

use http::Version;

use super::{AccessLogSpec, LineFormat, LogField, LoggedHeader, LoggedKey, Record};
use crate::clock::Timestamp;

/// Writes lines of one format; keeps the last second as text, as most lines share it.
#[derive(Debug)]
pub(super) struct Formatter {
    format: LineFormat,
    /// The fields of JSON lines.
    fields: Box<[LogField]>,
    second: Option<i64>,
    second_text: String,
}

impl Formatter {
    pub(super) fn new(spec: &AccessLogSpec) -> Self {
        Self {
            format: spec.format,
            fields: spec.fields.clone().into(),
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
            LogField::Method => plain(out, b",\"method\":\"", record.method),
            LogField::Host => {
                json_text(out, b",\"host\":\"", record.host);
                out.push(b'"');
            }
            LogField::Path => {
                json_text(out, b",\"path\":\"", record.path);
                out.push(b'"');
            }
            LogField::Version => plain(out, b",\"version\":\"", version(record.version)),
            LogField::Status => {
                out.extend_from_slice(b",\"status\":");
                out.extend_from_slice(record.status.as_str().as_bytes());
            }
            LogField::Bytes => {
                out.extend_from_slice(b",\"bytes\":");
                number(out, record.bytes);
            }
            LogField::DurationMs => {
                out.extend_from_slice(b",\"duration_ms\":");
                milliseconds(out, record.duration);
            }
            LogField::DelayMs => time(out, b",\"delay_ms\":", record.delay),
            LogField::PendingMs => time(out, b",\"pending_ms\":", record.pending),
            LogField::UpstreamMs => time(out, b",\"upstream_ms\":", record.upstream_time),
            LogField::Attempts if record.attempts > 1 => {
                out.extend_from_slice(b",\"attempts\":");
                number(out, record.attempts.into());
            }
            LogField::Attempts => {}
            LogField::Costs => costs(out, record.costs),
            LogField::Route => text(out, b",\"route\":\"", record.route),
            LogField::Upstream => text(out, b",\"upstream\":\"", record.upstream),
            LogField::Endpoint => text(out, b",\"endpoint\":\"", record.endpoint),
            LogField::Error => text(out, b",\"error\":\"", record.error.as_bytes()),
            LogField::Policy => text(out, b",\"policy\":\"", record.policy),
            LogField::Decision => text(out, b",\"decision\":\"", record.decision.as_bytes()),
            LogField::Key => key(out, record.key),
            LogField::Remaining => {
                if let Some(units) = record.remaining {
                    out.extend_from_slice(b",\"remaining\":");
                    number(out, units.into());
                }
            }
            LogField::RetryAfterMs => time(out, b",\"retry_after_ms\":", record.retry_after),
            LogField::Referer => text(out, b",\"referer\":\"", record.referer),
            LogField::UserAgent => text(out, b",\"user_agent\":\"", record.user_agent),
            LogField::RequestId => text(out, b",\"request_id\":\"", record.request_id),
            LogField::TraceId => text(out, b",\"trace_id\":\"", record.trace_id),
            LogField::TlsVersion => {
                text(out, b",\"tls_version\":\"", record.tls_version.as_bytes());
            }
            LogField::Headers => headers(out, record.headers),
        }
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

/// A text in which nothing has to be escaped.
fn plain(out: &mut Vec<u8>, opening: &[u8], text: &[u8]) {
    out.extend_from_slice(opening);
    out.extend_from_slice(text);
    out.push(b'"');
}

/// A text, unless it is empty.
fn text(out: &mut Vec<u8>, opening: &[u8], text: &[u8]) {
    if !text.is_empty() {
        json_text(out, opening, text);
        out.push(b'"');
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
        LoggedKey::Readable([value]) => {
            json_text(out, b",\"key\":\"", value);
            out.push(b'"');
        }
        LoggedKey::Readable(values) => {
            for (place, value) in values.iter().enumerate() {
                let opening: &[u8] = match place {
                    0 => b",\"key\":[\"",
                    _ => b",\"",
                };
                json_text(out, opening, value);
                out.push(b'"');
            }
            out.push(b']');
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
    out.extend_from_slice(b",\"headers\":{");
    for (place, field) in headers
        .chunk_by(|one, next| one.name == next.name)
        .enumerate()
    {
        if place > 0 {
            out.push(b',');
        }
        plain(out, b"\"", field[0].name.as_bytes());
        let (before, after): (&[u8], &[u8]) = match field {
            [_] => (b":", b""),
            _ => (b":[", b"]"),
        };
        out.extend_from_slice(before);
        for (place, header) in field.iter().enumerate() {
            let opening: &[u8] = if place > 0 { b",\"" } else { b"\"" };
            json_text(out, opening, header.value);
            out.push(b'"');
        }
        out.extend_from_slice(after);
    }
    out.push(b'}');
    let mut opening: &[u8] = b",\"truncated\":[\"";
    for field in headers.chunk_by(|one, next| one.name == next.name) {
        if field.iter().any(|header| header.is_cut) {
            plain(out, opening, field[0].name.as_bytes());
            opening = b",\"";
        }
    }
    if opening == b",\"" {
        out.push(b']');
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

    use super::super::LogTarget;
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
            key: LoggedKey::None,
            remaining: None,
            retry_after: None,
            trace_id: b"",
            tls_version: "",
            headers: &[],
        }
    }

    fn line(format: LineFormat, record: &Record<'_>) -> String {
        line_of(&AccessLogSpec::new(format, LogTarget::Stdout), record)
    }

    fn line_of(spec: &AccessLogSpec, record: &Record<'_>) -> String {
        let mut out = Vec::new();
        Formatter::new(spec).write(&mut out, record);
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
    fn json_says_whose_bucket_decided_and_for_how_long() {
        let refused = |key| Record {
            key,
            remaining: Some(0),
            retry_after: Some(Duration::from_micros(2_554_000_500)),
            ..record(b"/", b"")
        };
        let parts = [b"alice"[..].into(), b"a\"b"[..].into()];
        for (key, expected) in [
            (LoggedKey::None, ""),
            (LoggedKey::Hashed(0x0a1b), "\"key\":\"k_0000000000000a1b\","),
            (LoggedKey::Readable(&parts[..1]), "\"key\":\"alice\","),
            (
                LoggedKey::Readable(&parts),
                "\"key\":[\"alice\",\"a\\\"b\"],",
            ),
        ] {
            let line = line(LineFormat::Json, &refused(key));
            let said = format!(
                "\"decision\":\"limited\",{expected}\"remaining\":0,\"retry_after_ms\":2554000.500}}\n"
            );
            assert!(line.ends_with(&said), "{line}");
        }
    }

    #[test]
    fn json_has_header_fields_and_names_those_that_were_cut() {
        let header = |name, value: &'static str, is_cut| LoggedHeader {
            name,
            value: value.as_bytes(),
            is_cut,
        };
        let headers = [
            header("cookie", "a=1", false),
            header("cookie", "b=\"2\"", true),
            header("x-api-key", "alice", false),
        ];
        let with = |headers| {
            line(
                LineFormat::Json,
                &Record {
                    headers,
                    ..record(b"/", b"")
                },
            )
        };
        let all = "\"headers\":{\"cookie\":[\"a=1\",\"b=\\\"2\\\"\"],\"x-api-key\":\"alice\"},\"truncated\":[\"cookie\"]}\n";
        assert!(with(&headers).ends_with(all), "{}", with(&headers));
        let one = ",\"headers\":{\"x-api-key\":\"alice\"}}\n";
        assert!(
            with(&headers[2..]).ends_with(one),
            "{}",
            with(&headers[2..])
        );
    }

    #[test]
    fn json_has_the_fields_that_are_asked_for_in_their_order() {
        let fields = |fields: &[LogField]| {
            let spec = AccessLogSpec {
                fields: fields.to_vec(),
                ..AccessLogSpec::new(LineFormat::Json, LogTarget::Stdout)
            };
            line_of(&spec, &record(b"/", b""))
        };
        let [path, status] = [LogField::Path, LogField::Status];
        assert_eq!(
            fields(&[status, LogField::Error, path]),
            "{\"status\":429,\"path\":\"/\"}\n"
        );
        assert_eq!(fields(&[LogField::Error]), "{}\n");
    }

    /// A line has each field under the name that the configuration knows.
    #[test]
    fn json_names_fields_as_the_configuration_does() {
        let headers = [LoggedHeader {
            name: "x",
            value: b"y",
            is_cut: false,
        }];
        let costs = [("tokens".into(), 57)];
        let all = Record {
            delay: Some(Duration::ZERO),
            pending: Some(Duration::ZERO),
            upstream_time: Some(Duration::ZERO),
            upstream: b"a",
            endpoint: b"a",
            attempts: 2,
            error: "a",
            costs: &costs,
            referer: b"a",
            request_id: b"a",
            key: LoggedKey::Hashed(1),
            remaining: Some(1),
            retry_after: Some(Duration::ZERO),
            trace_id: b"a",
            tls_version: "a",
            headers: &headers,
            ..record(b"/", b"a")
        };
        for field in LogField::all() {
            let spec = AccessLogSpec {
                fields: vec![field],
                ..AccessLogSpec::new(LineFormat::Json, LogTarget::Stdout)
            };
            let line = line_of(&spec, &all);
            assert!(
                line.starts_with(&format!("{{\"{}\":", field.name())),
                "{line}"
            );
        }
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
        let mut formatter =
            Formatter::new(&AccessLogSpec::new(LineFormat::Json, LogTarget::Stdout));
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
